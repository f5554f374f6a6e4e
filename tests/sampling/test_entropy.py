"""Randomness of reports and of bulk jobs: unseeded, fresh after a fork, never copied.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

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
from offaxis.sampling.entropy import Entropy, JobKey, RecordEntropy, canonical
from tests.checks import ALPHA, counts_p_value


def test_entropy_takes_no_seed():
    assert list(inspect.signature(Entropy).parameters) == []
    with pytest.raises(TypeError):
        Entropy(1)  # type: ignore[call-arg]


def test_two_streams_differ():
    assert not np.array_equal(Entropy().words(64), Entropy().words(64))


def test_a_stream_does_not_repeat_itself():
    entropy = Entropy()
    assert not np.array_equal(entropy.words(64), entropy.words(64))


def test_large_requests_are_served():
    assert Entropy().words(1 << 20).size == 1 << 20


def test_words_are_uniform_and_a_stuck_bit_is_rejected():
    words = Entropy().words(1 << 18)
    cells = np.full(256, 1 / 256)
    assert counts_p_value(np.bincount(words >> 8, minlength=256), cells) > ALPHA
    stuck = (words | 0x0100) >> 8
    assert counts_p_value(np.bincount(stuck, minlength=256), cells) < ALPHA


def test_integers_fill_their_range():
    entropy = Entropy()
    drawn = [entropy.integer(3) for _ in range(4000)]
    assert set(drawn) == set(range(8))
    assert entropy.integer(64) < 1 << 64


def test_a_forked_process_draws_different_bits():
    entropy = Entropy()
    entropy.words(8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, entropy.words(32).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    of_child = os.read(reader, 64)
    os.close(reader)
    os.close(writer)
    assert len(of_child) == 64
    assert of_child != entropy.words(32).tobytes()


def test_entropy_cannot_be_pickled():
    with pytest.raises(EntropyFailure):
        pickle.dumps(Entropy())


def test_the_key_is_exactly_32_bytes_of_the_operating_system(monkeypatch):
    key = bytes(range(32))
    requested = []

    def urandom(count):
        requested.append(count)
        return key

    monkeypatch.setattr(os, "urandom", urandom)
    entropy = Entropy()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    expected = stream.update(bytes(200_000 + 8))
    assert requested == [32]
    assert entropy.words(4).tobytes() == expected[:8]
    assert entropy.words(100_000).tobytes() == expected[8:]


def test_missing_randomness_is_an_error_without_fallback(monkeypatch):
    def failing(count: int) -> bytes:
        raise OSError("no randomness")

    monkeypatch.setattr(os, "urandom", failing)
    with pytest.raises(EntropyFailure, match="no randomness"):
        Entropy()


# ---- Bulk jobs

RELEASE, VECTOR = "ab" * 32, np.arange(4.0).tobytes()


def bits_of(job: JobKey, release: str = RELEASE, record=7, vector: bytes = VECTOR) -> bytes:
    return job.stream(release, record, vector).words(16).tobytes()


def test_a_job_key_takes_no_seed():
    assert list(inspect.signature(JobKey).parameters) == []
    with pytest.raises(TypeError):
        JobKey(b"seed")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="comes from a JobKey"):
        RecordEntropy(b"seed", b"message")  # type: ignore[arg-type]


def test_the_same_record_repeats_its_bits_on_another_machine():
    job = JobKey()
    assert bits_of(pickle.loads(pickle.dumps(job))) == bits_of(job)


def test_a_different_id_vector_release_or_key_gives_different_bits():
    job = JobKey()
    others = [
        bits_of(job, record=8),
        bits_of(job, record="7"),
        bits_of(job, record=b"7"),
        bits_of(job, vector=np.nextafter(np.arange(4.0), 9).tobytes()),
        bits_of(job, release="ac" * 32),
        bits_of(JobKey()),
    ]
    streams = [bits_of(job), *others]
    assert all(first != second for first, second in itertools.combinations(streams, 2))


def test_bits_follow_the_documented_construction(monkeypatch):
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
def test_different_ids_have_different_encodings(first, second):
    same = type(first) is type(second) and first == second
    assert (canonical(first) == canonical(second)) == same


@pytest.mark.parametrize("record", [None, True, 1.0, ("a",)])
def test_an_id_of_another_type_is_rejected_without_repeating_it(record):
    with pytest.raises(InvalidInput, match=f"got {type(record).__name__}"):
        canonical(record)


def first_words(job: JobKey, count: int) -> np.ndarray:
    """The first word of many records, which would repeat if streams were equal."""
    stream = job.streams(RELEASE)
    return np.array([stream(record, VECTOR).words(1)[0] for record in range(count)])


def test_first_words_over_records_are_uniform_and_a_shared_stream_is_rejected():
    # The broken control ignores the id.
    cells = np.full(64, 1 / 64)
    words = first_words(JobKey(), 6400)
    assert counts_p_value(np.bincount(words >> 10, minlength=64), cells) > ALPHA
    differences = (words[1:] - words[:-1]) >> 10
    assert counts_p_value(np.bincount(differences, minlength=64), cells) > ALPHA
    stream = JobKey().streams(RELEASE)
    broken = np.array([stream(0, VECTOR).words(1)[0] for _ in range(6400)])
    assert counts_p_value(np.bincount(broken >> 10, minlength=64), cells) < ALPHA


def test_different_vectors_with_one_id_get_independent_noise():
    # Without the vector in the message every exclusive or would be zero.
    job, rng = JobKey(), np.random.default_rng(0)
    stream = job.streams(RELEASE)
    vectors = [rng.standard_normal(4).tobytes() for _ in range(6401)]
    words = np.array([stream(7, vector).words(1)[0] for vector in vectors])
    cells = np.full(64, 1 / 64)
    gaps = (words[1:] ^ words[:-1]) >> 10
    assert counts_p_value(np.bincount(gaps, minlength=64), cells) > ALPHA


def test_a_destroyed_key_gives_no_bits_and_no_copies():
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


def test_the_representation_reveals_nothing_about_the_key():
    job = JobKey()
    assert repr(job) == str(job) == "JobKey(…)"
    job.destroy()
    assert repr(job) == "JobKey(destroyed)"


def test_a_job_without_randomness_from_the_operating_system_is_an_error(monkeypatch):
    def failing(count: int) -> bytes:
        raise OSError("no randomness")

    monkeypatch.setattr(os, "urandom", failing)
    with pytest.raises(EntropyFailure, match="no randomness"):
        JobKey()


def test_a_record_stream_cannot_be_pickled():
    with pytest.raises(EntropyFailure, match="send the job's key"):
        pickle.dumps(JobKey().stream(RELEASE, 1, VECTOR))


def test_reports_accept_a_record_stream_but_no_subclass():
    record = JobKey().stream(RELEASE, 1, VECTOR)
    require_entropy(record)

    class Weaker(RecordEntropy):
        pass

    with pytest.raises(TypeError, match="Weaker"):
        require_entropy(Weaker(JobKey(), b""))
