import inspect
import os
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from offaxis.errors import EntropyFailure
from offaxis.sampling.entropy import Entropy
from tests.checks import ALPHA, counts_p_value


def test_no_seed_can_be_given():
    assert list(inspect.signature(Entropy).parameters) == []
    with pytest.raises(TypeError):
        Entropy(1)


def test_two_streams_differ():
    assert not np.array_equal(Entropy().words(64), Entropy().words(64))


def test_a_stream_does_not_repeat_itself():
    entropy = Entropy()
    assert not np.array_equal(entropy.words(64), entropy.words(64))


def test_large_requests_are_served():
    assert Entropy().words(1 << 20).size == 1 << 20


def test_words_are_uniform_and_a_stuck_bit_is_caught():
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


def test_a_forked_process_draws_its_own_bits():
    entropy = Entropy()
    entropy.words(8)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, entropy.words(32).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 64)
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 64
    assert theirs != entropy.words(32).tobytes()


def test_it_can_be_neither_copied_nor_sent():
    with pytest.raises(EntropyFailure):
        pickle.dumps(Entropy())


def test_the_key_is_32_bytes_of_the_operating_system_and_nothing_else(monkeypatch):
    key = bytes(range(32))
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or key)
    entropy = Entropy()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    expected = stream.update(bytes(200_000 + 8))
    assert asked == [32]
    assert entropy.words(4).tobytes() == expected[:8]
    assert entropy.words(100_000).tobytes() == expected[8:]


def test_a_failing_operating_system_is_an_error_not_a_fallback(monkeypatch):
    def broken(count: int) -> bytes:
        raise OSError("no randomness")

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(EntropyFailure, match="no randomness"):
        Entropy()
