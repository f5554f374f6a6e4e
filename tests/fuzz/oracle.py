"""What must hold for every hostile input: a declared error, or a sound result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import safetensors

import offaxis
from offaxis.errors import BiasedDecoder, InvalidRelease, InvalidReport
from offaxis.formats.release_file import from_bytes, read, tensors_of, to_bytes
from offaxis.formats.reports import header, read_reports

ACCEPTED = "accepted"
_LONGEST_MESSAGE = 1000


def _error_name(error: Exception) -> str:
    """Return the name of an error; its message must be short and printable."""
    message = str(error)
    assert message.isprintable(), ascii(message)
    assert len(message) <= _LONGEST_MESSAGE, len(message)
    return type(error).__name__


def load(blob: bytes) -> str:
    """Load a release from untrusted bytes; return "accepted" or the name of the declared error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            release = from_bytes(blob)
        except InvalidRelease as error:
            return _error_name(error)
        _check_sound(release, blob)
    return ACCEPTED


def load_file(path: Path, content: bytes) -> str:
    """Load a release from an untrusted file; the outcome must be that of its bytes."""
    path.write_bytes(content)
    try:
        read(path)
    except InvalidRelease as error:
        outcome = _error_name(error)
    else:
        outcome = ACCEPTED
    assert outcome == load(content)
    return outcome


def _check_sound(release: offaxis.Release, blob: bytes) -> None:
    """Check that an accepted file is what it claims to be, and can be used."""
    size = int.from_bytes(blob[:8], "little")
    assert release.hash.encode() in blob[8 : 8 + size]
    assert from_bytes(to_bytes(release)) == release
    # Every file that this reader accepts, the reference reader accepts too, with the same numbers.
    reference = dict(safetensors.deserialize(blob))
    loaded = {f"decoder.{name}": array for name, array in tensors_of(release.decoder).items()}
    assert {name: array.tobytes() for name, array in loaded.items()} == {
        name: bytes(entry["data"]) for name, entry in reference.items() if name in loaded
    }
    assert release.guarantee.epsilon == release.randomizer.guarantee.epsilon
    assert np.isfinite(release.randomizer.expected_squared_error())
    assert repr(release).isprintable()
    decode(release, [framed(release, bytes(release.randomizer.payload_size))])
    # A report of very many directions may take half a second on a device: too long for here.
    if getattr(release.randomizer, "directions", 0) < 10_000:
        report = release.privatize(np.ones(release.input_dim))
        assert decode(release, [report]) == ACCEPTED


def decode(release: offaxis.Release, reports: Sequence[bytes]) -> str:
    """Decode untrusted reports in every way; return "accepted" or the declared error's name."""
    methods = [release.observe, release.decode]
    methods += [release.decode_mean] if release.supports_mean else []
    outcomes = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in methods:
            try:
                result = method(reports)
            except InvalidReport as error:
                outcomes.add(_error_name(error))
            else:
                assert np.isfinite(result).all()
                assert method == release.decode_mean or len(result) == len(reports)
                outcomes.add(ACCEPTED)
        if not release.supports_mean:
            try:
                release.decode_mean(reports)
            except BiasedDecoder as error:
                _error_name(error)
    assert len(outcomes) == 1, outcomes
    return outcomes.pop()


def read_payloads(release: offaxis.Release, payloads: list[bytes]) -> str:
    """Read untrusted payloads; return "accepted" or the declared error's name."""
    try:
        observations = release.randomizer.read(payloads)
    except InvalidReport as error:
        return _error_name(error)
    assert len(observations) == len(payloads)
    assert np.isfinite(observations).all()
    return ACCEPTED


def decode_file(release: offaxis.Release, path: Path, content: bytes) -> str:
    """Decode an untrusted file of reports; the outcome must be that of its reports."""
    path.write_bytes(content)
    try:
        received = list(read_reports(path, release.report_size))
    except InvalidReport as error:
        assert not content or len(content) % release.report_size
        return _error_name(error)
    assert b"".join(received) == content
    return decode(release, received)


def framed(release: offaxis.Release, payload: bytes) -> bytes:
    """Put the right header before a payload."""
    return header(release.randomizer.wire_id, release.hash) + payload
