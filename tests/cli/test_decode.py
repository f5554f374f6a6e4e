from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.cli import decode as command
from offaxis.cli.arrays import read_array
from offaxis.reports import write_reports
from tests.cli.conftest import DIM, Run, assert_fails

COMMAND = ("decode", "laplace.release", "--reports", "my.reports", "--out")


@pytest.fixture
def reports(desk: Path) -> list[bytes]:
    made: list[bytes] = offaxis.load("laplace.release").privatize(np.load("private.npy"))
    write_reports("my.reports", made)
    return made


@pytest.mark.parametrize("out", ["a.npy", "a.npz", "a.csv", "a.parquet"])
def test_vectors_of_every_format(
    run: Run, reports: list[bytes], out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ROWS", 3)
    facts = json.loads(run(*COMMAND, out, "--json").stdout)
    assert facts["reports"] == 7
    assert facts["shape"] == [7, DIM]
    np.testing.assert_allclose(read_array(out), offaxis.load("laplace.release").decode(reports))


def test_the_mean(run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_ROWS", 3)
    result = run(*COMMAND, "mean.npy", "--mean")
    assert "read 7 reports, wrote their mean to mean.npy" in result.stdout
    expected = offaxis.load("laplace.release").decode_mean(reports)
    np.testing.assert_allclose(np.load("mean.npy"), expected)


def test_a_biased_release_has_no_mean(desk: Path, run: Run) -> None:
    release = offaxis.load("privunit2.release")
    write_reports("other.reports", release.privatize(np.load("private.npy")))
    command = ("decode", "privunit2.release", "--reports", "other.reports", "--out", "mean.npy")
    assert_fails(run(*command, "--mean"), 3, "privunit2 randomizer", "biased")
    assert not Path("mean.npy").exists()


def test_a_bad_report_is_named_by_its_place_in_the_file(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ROWS", 2)
    reports[5] = b"XX" + reports[5][2:]
    write_reports("my.reports", reports)
    assert_fails(run(*COMMAND, "a.npy"), 3, "report 5 is not an offaxis report")
    assert not Path("a.npy").exists()


def test_wide_reports_are_decoded_in_parts_of_fewer_rows(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_NUMBERS", 2 * DIM)
    run(*COMMAND, "a.npy")
    np.testing.assert_allclose(np.load("a.npy"), offaxis.load("laplace.release").decode(reports))


def test_more_vectors_than_fit_into_memory_are_refused(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*shape: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", empty)
    assert_fails(run(*COMMAND, "a.npy"), 3, "7 vectors of dimension 5 do not fit into memory")


@pytest.mark.parametrize("blob", [b"", b"OX", b"OX" * 100])
def test_files_that_are_no_reports(run: Run, reports: list[bytes], blob: bytes) -> None:
    Path("my.reports").write_bytes(blob)
    assert_fails(run(*COMMAND, "a.npy"), 3, "my.reports" if len(blob) < 100 else "report")
    assert not Path("a.npy").exists()


def test_reports_of_another_release(run: Run, reports: list[bytes]) -> None:
    again = offaxis.fit(None, np.load("public.npy"), epsilon=5, reshaping="none")
    write_reports("my.reports", again.privatize(np.load("private.npy")))
    assert_fails(run(*COMMAND, "a.npy"), 3, "report 0 belongs to release", again.hash[:16])


@pytest.mark.parametrize("name", ["gaussian", "privunit2"])
def test_reports_of_every_randomizer_are_decoded(desk: Path, run: Run, name: str) -> None:
    release = offaxis.load(f"{name}.release")
    made = release.privatize(np.load("private.npy"))
    write_reports("other.reports", made)
    result = run("decode", f"{name}.release", "--reports", "other.reports", "--out", "a.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("a.npy"), release.decode(made))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--reports", "missing.reports", "--out", "a.npy"), "no file of reports"),
        (("--reports", "my.reports", "--out", "a.mat"), "must end in .npy"),
        (("--reports", "my.reports", "--out", "no/a.npy"), "there is no folder"),
    ],
)
def test_bad_files(run: Run, reports: list[bytes], options: tuple[str, ...], message: str) -> None:
    assert_fails(run("decode", "laplace.release", *options), 3, message)
