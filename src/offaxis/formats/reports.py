"""Reports: the bytes that leave a device. Specified in docs/report-format.md.

A report is a 12-byte header and a payload whose size is constant for a release:

    offset  size  content
    0       2     magic, ASCII "OX"
    2       1     format version, 1
    3       1     wire id of the randomizer
    4       8     first 8 bytes of the release's SHA-256
    12      …     payload, written and read by the randomizer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidReport
from offaxis.files import replacing

MAGIC: Final = b"OX"
VERSION: Final = 1
HEADER_SIZE: Final = 12
_PIECE: Final = 1 << 20


def header(wire_id: int, release_hash: str) -> bytes:
    """Return the header of every report of a release."""
    return MAGIC + bytes([VERSION, wire_id]) + bytes.fromhex(release_hash)[:8]


def frame(payloads: list[bytes], wire_id: int, release_hash: str) -> list[bytes]:
    """Put the header before every payload."""
    head = header(wire_id, release_hash)
    return [head + payload for payload in payloads]


def as_iterable(reports: Any) -> Iterable[bytes]:
    """Return one or several reports as an iterable; reject anything else."""
    if isinstance(reports, bytes):
        return [reports]
    is_array = isinstance(reports, np.ndarray | bytearray | memoryview | str)
    if is_array or not isinstance(reports, Iterable):
        raise InvalidReport(
            f"reports must be bytes or a list of bytes, got {type(reports).__name__}; simulated "
            f"arrays are not reports, only privatize() makes them"
        )
    return reports


def unframe(
    reports: Iterable[bytes],
    wire_id: int,
    release_hash: str,
    payload_size: int,
    *,
    first: int = 0,
) -> list[bytes]:
    """Check every report strictly and return the payloads.

    Parameters
    ----------
    reports : iterable of bytes
        Untrusted. Errors raised by the iterable pass through.
    wire_id, release_hash, payload_size
        Common to all reports of the release.
    first : int
        The index of the first report in a larger whole, for messages.

    Raises
    ------
    InvalidReport
        If there are no reports, or one differs in form from what clients of the release write.
    """
    if not isinstance(reports, Iterable):
        raise InvalidReport(f"reports must be a list of bytes, got {type(reports).__name__}")
    expected = header(wire_id, release_hash)
    size = HEADER_SIZE + payload_size
    payloads = []
    for index, report in enumerate(reports, first):
        if not isinstance(report, bytes):
            raise InvalidReport(
                f"report {index} is a {type(report).__name__}, not bytes; simulated arrays are "
                f"not reports, only privatize() makes them"
            )
        if report[:HEADER_SIZE] != expected or len(report) != size:
            raise InvalidReport(f"report {index} {_fault(report, expected, size)}")
        payloads.append(report[HEADER_SIZE:])
    if not payloads:
        raise InvalidReport("there are no reports to decode")
    return payloads


def _fault(report: bytes, expected: bytes, size: int) -> str:
    if len(report) < HEADER_SIZE or report[:2] != MAGIC:
        return "is not an offaxis report (it does not start with the magic bytes 'OX')"
    if report[2] != VERSION:
        return f"has format version {report[2]}; this offaxis reads version {VERSION}"
    if report[4:HEADER_SIZE] != expected[4:]:
        return (
            f"belongs to release {report[4:HEADER_SIZE].hex()}…, "
            f"not to {expected[4:].hex()}…; decode it with the release it belongs to"
        )
    if report[3] != expected[3]:
        return f"has randomizer id {report[3]}, this release writes {expected[3]}"
    return f"has {len(report)} bytes, a report of this release has {size}"


def write_reports(path: str | Path, reports: Iterable[bytes]) -> None:
    """Write reports one after the other; no separator is needed, since their size is constant."""
    with replacing(Path(path)) as file:
        file.writelines(reports)


def count_reports(path: str | Path, report_size: int) -> int:
    """Return the number of reports in a file, by its size alone.

    Raises
    ------
    InvalidReport
        If the file cannot be read, is empty, or does not hold a whole number of reports.
    """
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if not size or size % report_size:
        raise InvalidReport(
            f"{path} holds {size} bytes, which is not a whole number of {report_size}-byte "
            f"reports; is it a file of reports of this release?"
        )
    return size // report_size


def read_reports(path: str | Path, report_size: int) -> Iterator[bytes]:
    """Yield the reports of a file, in memory that does not grow with it.

    The content of the reports is checked when they are decoded.

    Raises
    ------
    InvalidReport
        Immediately, as :func:`count_reports`; or while reading, if the file becomes shorter.
    """
    return _read(path, report_size, count_reports(path, report_size))


def _read(path: str | Path, size: int, count: int) -> Iterator[bytes]:
    rows = max(1, _PIECE // size)
    try:
        with Path(path).open("rb") as file:
            for start in range(0, count, rows):
                expected = size * min(rows, count - start)
                piece = file.read(expected)
                if len(piece) < expected:
                    raise InvalidReport(f"{path} became shorter while it was read")
                yield from (piece[i : i + size] for i in range(0, len(piece), size))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: OSError) -> InvalidReport:
    return InvalidReport(f"cannot read {path}: {error.strerror or error}")
