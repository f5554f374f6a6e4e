"""Reports: their header, their constant size, and strict reading of single reports and files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidReport
from offaxis.formats import reports as wire
from offaxis.formats.reports import (
    HEADER_SIZE,
    count_reports,
    header,
    read_reports,
    unframe,
    write_reports,
)
from offaxis.simulation import simulate
from tests.limits import bounded


def test_the_header_is_as_documented(release):
    report = release.privatize(np.zeros(6))
    assert HEADER_SIZE == 12
    assert report[:4] == b"OX\x01\x01"
    assert report[4:12].hex() == release.hash[:16]
    assert header(1, release.hash) == report[:12]


def test_every_report_of_a_release_has_the_same_size(release):
    rng = np.random.default_rng(0)
    Z = np.concatenate([np.zeros((1, 6)), np.full((1, 6), 1e300), rng.standard_normal((50, 6))])
    assert {len(report) for report in release.privatize(Z)} == {release.report_size}
    assert release.report_size == 12 + 3 * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: b"", "magic"),
        (lambda r: r[:5], "magic"),
        (lambda r: b"XX" + r[2:], "magic"),
        (lambda r: r[:2] + b"\x02" + r[3:], "version 2"),
        (lambda r: r[:3] + b"\x09" + r[4:], "randomizer id 9"),
        (lambda r: r[:4] + bytes(8) + r[12:], "belongs to release 0000"),
        (lambda r: r[:-1], "29 bytes"),
        (lambda r: r + b"\0", "31 bytes"),
        (lambda r: r[:12] + bytes(18), "no client"),
    ],
)
def test_a_malformed_report_is_refused(release, change, message):
    report = release.privatize(np.zeros(6))
    with pytest.raises(InvalidReport, match=message):
        release.decode(change(report))
    with pytest.raises(InvalidReport, match=r"report 1|no client"):
        release.decode([report, change(report)])


@given(st.binary(max_size=64))
def test_no_bytes_crash_the_decoder(release, blob):
    with pytest.raises(InvalidReport):
        release.decode(blob)


@given(st.binary(min_size=18, max_size=18))
def test_any_payload_of_the_right_size_decodes_or_is_refused(release, payload):
    report = header(1, release.hash) + payload
    try:
        decoded = release.decode(report)
    except InvalidReport:
        return
    assert decoded.shape == (6,)
    assert np.isfinite(decoded).all()


@pytest.mark.parametrize(
    "thing", [np.zeros((3, 6)), [np.zeros(6)], ["OX"], 5, None, [bytearray(30)], []]
)
def test_only_bytes_are_accepted_as_reports(release, thing):
    with pytest.raises(InvalidReport):
        release.decode(thing)
    with pytest.raises(InvalidReport):
        release.decode_mean(thing)


def test_simulated_vectors_are_not_reports(release):
    simulated = simulate(release, np.zeros((3, 6)), np.random.default_rng(0))
    with pytest.raises(InvalidReport, match="simulated"):
        release.decode(simulated)


def test_reports_must_be_iterable(release):
    for thing in (None, 5, object()):
        with pytest.raises(InvalidReport, match="list of bytes"):
            release.observe(thing)


def test_the_error_for_a_bad_report_gives_its_index_in_a_larger_whole(release):
    report = release.privatize(np.zeros(6))
    with pytest.raises(InvalidReport, match="report 12 has 29 bytes"):
        unframe([report, report, report[:-1]], 1, release.hash, 18, first=10)


def test_a_file_of_reports_is_read_back(release, tmp_path, monkeypatch):
    reports = release.privatize(np.ones((5, 6)))
    path = tmp_path / "x.reports"
    write_reports(path, reports)
    assert count_reports(path, release.report_size) == 5
    for piece in (1, 60, 1 << 20):
        monkeypatch.setattr(wire, "_PIECE", piece)
        assert list(read_reports(path, release.report_size)) == reports


@pytest.mark.parametrize("size", [0, 29, 61])
def test_a_truncated_file_of_reports_is_refused_before_it_is_read(release, tmp_path, size):
    (tmp_path / "x.reports").write_bytes(bytes(size))
    with pytest.raises(InvalidReport, match="not a whole number"):
        read_reports(tmp_path / "x.reports", release.report_size)


def test_an_unreadable_file_of_reports_is_an_error(release, tmp_path):
    with pytest.raises(InvalidReport, match="cannot read"):
        read_reports(tmp_path / "missing.reports", release.report_size)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidReport, match=r"cannot read|not a whole number"):
        list(read_reports(tmp_path / "folder", release.report_size))


def test_a_file_of_reports_that_shrinks_while_it_is_read_is_an_error(release, tmp_path):
    path = tmp_path / "x.reports"
    write_reports(path, release.privatize(np.ones((5, 6))))
    reports = read_reports(path, release.report_size)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InvalidReport, match="shorter"):
        list(reports)


def test_a_huge_file_of_reports_is_read_in_little_memory(release, tmp_path):
    path = tmp_path / "huge.reports"
    with path.open("wb") as file:
        file.truncate(release.report_size * 10**8)
    with bounded(mebibytes=4):
        reports = read_reports(path, release.report_size)
        for _ in range(100_000):
            assert next(reports) == bytes(release.report_size)
