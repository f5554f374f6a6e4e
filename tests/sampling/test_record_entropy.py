import copy
import hashlib
import hmac
import inspect
import itertools
import os
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import EntropyFailure, InvalidInput
from offaxis.randomizers.base import require_entropy
from offaxis.sampling.entropy import JobKey, RecordEntropy, canonical
from tests.checks import ALPHA, counts_p_value

RELEASE, VECTOR = "ab" * 32, np.arange(4.0).tobytes()


def bits_of(job: JobKey, release: str = RELEASE, name=7, vector: bytes = VECTOR) -> bytes:
    return job.stream(release, name, vector).words(16).tobytes()


def test_no_seed_can_be_given():
    assert list(inspect.signature(JobKey).parameters) == []
    with pytest.raises(TypeError):
        JobKey(b"seed")
    with pytest.raises(TypeError, match="comes from a JobKey"):
        RecordEntropy(b"seed", b"message")


def test_the_same_record_repeats_its_bits_on_another_machine():
    job = JobKey()
    assert bits_of(pickle.loads(pickle.dumps(job))) == bits_of(job)


def test_another_id_vector_release_or_key_gives_other_bits():
    job = JobKey()
    others = [
        bits_of(job, name=8),
        bits_of(job, name="7"),
        bits_of(job, name=b"7"),
        bits_of(job, vector=np.nextafter(np.arange(4.0), 9).tobytes()),
        bits_of(job, release="ac" * 32),
        bits_of(JobKey()),
    ]
    every = [bits_of(job), *others]
    assert all(one != other for one, other in itertools.combinations(every, 2))


def test_bits_are_as_the_module_says(monkeypatch):
    key = bytes(range(32))
    monkeypatch.setattr(os, "urandom", lambda count: key[:count])
    message = b"offaxis bulk job 1\x00" + (64).to_bytes(8, "little") + RELEASE.encode()
    message += (3).to_bytes(8, "little") + b"i-5" + hashlib.sha256(VECTOR).digest()
    inner = hmac.new(key, message, hashlib.sha256).digest()
    stream = Cipher(algorithms.AES(inner), modes.CTR(bytes(16))).encryptor()
    expected = stream.update(bytes(40))
    record = JobKey().stream(RELEASE, -5, VECTOR)
    assert record.words(16).tobytes() == expected[:32]
    assert record.integer(64) == int.from_bytes(expected[32:], "little")


ids = st.integers() | st.text() | st.binary()


@given(ids, ids)
def test_different_ids_are_written_differently(one, other):
    assert (canonical(one) == canonical(other)) == (type(one) is type(other) and one == other)


@pytest.mark.parametrize("name", [None, True, 1.0, ("a",)])
def test_other_ids_are_refused_and_not_repeated(name):
    with pytest.raises(InvalidInput, match=f"got {type(name).__name__}"):
        canonical(name)


def first_words(job: JobKey, count: int) -> np.ndarray:
    """The first word of many records: what would repeat if streams were alike."""
    stream = job.streams(RELEASE)
    return np.array([stream(name, VECTOR).words(1)[0] for name in range(count)])


def test_first_words_over_records_are_uniform_and_a_shared_key_is_caught():
    # False alarms: ALPHA each. The twin forgets the id.
    cells = np.full(64, 1 / 64)
    words = first_words(JobKey(), 6400)
    assert counts_p_value(np.bincount(words >> 10, minlength=64), cells) > ALPHA
    differences = (words[1:] - words[:-1]) >> 10
    assert counts_p_value(np.bincount(differences, minlength=64), cells) > ALPHA
    stream = JobKey().streams(RELEASE)
    twin = np.array([stream(0, VECTOR).words(1)[0] for _ in range(6400)])
    assert counts_p_value(np.bincount(twin >> 10, minlength=64), cells) < ALPHA


def test_vectors_with_one_id_get_independent_noise():
    # Without the vector in the message every exclusive or would be zero.
    job, rng = JobKey(), np.random.default_rng(0)
    stream = job.streams(RELEASE)
    vectors = [rng.standard_normal(4).tobytes() for _ in range(6401)]
    words = np.array([stream(7, vector).words(1)[0] for vector in vectors])
    cells = np.full(64, 1 / 64)
    gaps = (words[1:] ^ words[:-1]) >> 10
    assert counts_p_value(np.bincount(gaps, minlength=64), cells) > ALPHA


def test_a_destroyed_key_gives_nothing_and_goes_nowhere():
    job = JobKey()
    stream, key = job.streams(RELEASE), job._key
    job.destroy()
    job.destroy()
    assert job.destroyed
    assert key == bytearray()
    for attempt in (
        lambda: stream(1, VECTOR),
        lambda: job.stream(RELEASE, 1, VECTOR),
        lambda: pickle.dumps(job),
        lambda: copy.copy(job),
    ):
        with pytest.raises(EntropyFailure, match="destroyed"):
            attempt()


def test_nothing_of_the_key_is_shown():
    job = JobKey()
    assert repr(job) == str(job) == "JobKey(…)"
    job.destroy()
    assert repr(job) == "JobKey(destroyed)"


def test_a_failing_operating_system_is_an_error(monkeypatch):
    def broken(count: int) -> bytes:
        raise OSError("no randomness")

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(EntropyFailure, match="no randomness"):
        JobKey()


def test_a_stream_cannot_be_copied():
    with pytest.raises(EntropyFailure, match="send the job's key"):
        pickle.dumps(JobKey().stream(RELEASE, 1, VECTOR))


def test_reports_are_drawn_from_it_but_from_no_subclass():
    record = JobKey().stream(RELEASE, 1, VECTOR)
    require_entropy(record)

    class Weaker(RecordEntropy):
        pass

    with pytest.raises(TypeError, match="Weaker"):
        require_entropy(Weaker(JobKey(), b""))
