from __future__ import annotations

import csv
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import offaxis
from offaxis.cli import decode as cli_means
from offaxis.cli import decode as command
from offaxis.cli.inputs import read_array
from offaxis.decoding import Aggregate, LinearDecoder
from offaxis.formats.reports import write_reports
from tests.cli.conftest import DIM, Run, assert_fails, assert_misused

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


PLACES = ["north", "south", "north", "far, away", "south", "north", "south"]
MEAN = ("--mean", "--groups", "people.csv:place", "--weights", "weights.npy")


@pytest.fixture
def grouped(reports: list[bytes]) -> Aggregate:
    """Return what the library says about the reports, whose labels and weights lie on the desk."""
    rows = [["id", "place"], *([str(at), place] for at, place in enumerate(PLACES))]
    with Path("people.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    weights = np.linspace(0.5, 2, 7)
    np.save("weights.npy", weights)
    return offaxis.load("laplace.release").aggregate(reports, weights, PLACES)


@pytest.mark.parametrize("out", ["mean.csv", "mean.parquet"])
def test_means_of_groups_are_a_tidy_table(run: Run, grouped: Aggregate, out: str) -> None:
    result = run(*COMMAND, out, *MEAN)
    assert result.exit_code == 0, result.output
    table = (
        pd.read_csv(out, float_precision="round_trip")
        if out.endswith("csv")
        else pd.read_parquet(out)
    )
    assert list(table) == ["group", "coordinate", "mean", "standard_error", "reports"]
    assert len(table) == 3 * DIM
    for label in ("north", "south", "far, away"):
        part, one = table[table["group"] == label], grouped.of(label)
        assert part["coordinate"].tolist() == list(range(DIM))
        np.testing.assert_array_equal(part["mean"], one.estimate)
        np.testing.assert_array_equal(part["standard_error"], one.standard_error)
        assert (part["reports"] == one.count).all()


def test_means_of_groups_are_arrays(run: Run, grouped: Aggregate) -> None:
    assert run(*COMMAND, "mean.npz", *MEAN).exit_code == 0
    with np.load("mean.npz", allow_pickle=False) as found:
        assert set(found) == {"mean", "standard_error", "count", "groups"}
        np.testing.assert_array_equal(found["mean"], grouped.estimate)
        np.testing.assert_array_equal(found["standard_error"], grouped.standard_error)
        assert found["count"].tolist() == [3, 3, 1]
        assert found["groups"].tolist() == list(grouped.groups or ())


@pytest.mark.parametrize("out", ["mean.csv", "mean.parquet", "mean.npz"])
def test_one_mean_has_its_errors_and_no_group(run: Run, reports: list[bytes], out: str) -> None:
    assert run(*COMMAND, out, "--mean").exit_code == 0
    wanted = offaxis.load("laplace.release").aggregate(reports)
    if out.endswith("npz"):
        with np.load(out) as archive:
            found = dict(archive)
        assert set(found) == {"mean", "standard_error", "count"}
        assert found["count"] == 7
    else:
        found = (
            pd.read_csv(out, float_precision="round_trip")
            if out.endswith("csv")
            else pd.read_parquet(out)
        )
        assert list(found) == ["coordinate", "mean", "standard_error", "reports"]
    np.testing.assert_array_equal(found["mean"], wanted.estimate)
    np.testing.assert_array_equal(found["standard_error"], wanted.standard_error)


def test_groups_are_summed_up_for_people_with_a_warning(run: Run, grouped: Aggregate) -> None:
    result = run(*COMMAND, "mean.csv", *MEAN)
    assert result.stderr.count("\n") == 1
    assert "labels are not protected" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "read 7 reports, wrote the means of 3 groups to mean.csv"
    largest = f"{grouped.of('south').standard_error.max():.4g}"
    assert lines[4].split() == ["south", "3", largest]
    assert "unknown from 1 report" in lines[5]


def test_a_label_cannot_steer_the_terminal(run: Run, reports: list[bytes]) -> None:
    np.save("odd.npy", np.array(["\x1b[31mred", "[bold]b[/bold]", "x" * 500, *"abcd"]))
    shown = run(*COMMAND, "mean.csv", "--mean", "--groups", "odd.npy").stdout
    assert "\x1b" not in shown
    assert "[bold]b[/bold]" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_json_sums_groups_up(run: Run, grouped: Aggregate) -> None:
    facts = json.loads(run(*COMMAND, "mean.npz", *MEAN, "--json").stdout)
    assert facts["shape"] == [3, DIM]
    north, _, far = facts["groups"]
    assert north == {
        "group": "north",
        "reports": 3,
        "effective_reports": grouped.of("north").effective_count,
        "largest_standard_error": grouped.of("north").standard_error.max(),
    }
    assert far["largest_standard_error"] is None
    alone = json.loads(run(*COMMAND, "mean.npy", "--mean", "--json").stdout)
    assert alone["shape"] == [DIM]
    assert alone["largest_standard_error"] > 0


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("a.csv", ("--groups", "people.csv:place"), "--groups is read with --mean only"),
        ("a.csv", ("--weights", "weights.npy"), "--weights is read with --mean only"),
        ("a.npy", MEAN, "cannot name the groups"),
    ],
)
def test_options_that_do_not_go_together(
    run: Run, out: str, options: tuple[str, ...], message: str
) -> None:
    assert_misused(run(*COMMAND, out, *options), message)


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("people.csv", MEAN, "is an input"),
        ("weights.npy", MEAN[:1] + MEAN[3:], "is an input"),
        ("a.csv", ("--mean", "--groups", "people.csv"), "say which column"),
        ("a.csv", ("--mean", "--groups", "no.csv"), "there is no file"),
        ("a.csv", ("--mean", "--groups", "short.txt"), "one label a report, 7, but holds 2"),
        ("a.csv", ("--mean", "--weights", "private.npy"), "one weight a report, 7"),
        ("a.csv", ("--mean", "--weights", "zero.npy"), "weights must be positive"),
    ],
)
def test_bad_labels_and_weights_write_nothing(
    run: Run, grouped: Aggregate, out: str, options: tuple[str, ...], message: str
) -> None:
    Path("short.txt").write_text("a\nb\n")
    np.save("zero.npy", np.zeros(7))
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert_fails(run(*COMMAND, out, *options), 3, message)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_more_groups_than_fit_into_memory_are_refused(
    run: Run, grouped: Aggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_means, "_GROUP_NUMBERS", 2 * DIM)
    assert_fails(run(*COMMAND, "a.csv", *MEAN), 3, "more than 2 groups", "coarser labels")
    assert not Path("a.csv").exists()


def test_memory_does_not_grow_with_labels_and_reports(run: Run, reports: list[bytes]) -> None:
    count = 80_000
    write_reports("my.reports", reports[:1] * count)
    Path("place.txt").write_text("north\nsouth\n" * (count // 2))
    np.save("weights.npy", np.ones(count))
    # Once beforehand, so that imports are not counted.
    options = ("--mean", "--groups", "place.txt", "--weights", "weights.npy")
    run(*COMMAND, "a.csv", *options)
    tracemalloc.start()
    try:
        assert run(*COMMAND, "a.csv", *options).exit_code == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20  # a list of the reports would add 5 MB, one of the labels 4 MB


def test_a_mean_along_some_directions_says_so(desk: Path, run: Run) -> None:
    public = np.load("public.npy")
    weights = np.eye(2, DIM)
    few = offaxis.fit(weights, public, epsilon=5, mechanism="laplace", reshaping="optimal")
    back = few.decoder
    few = replace(few, mean_decoder=LinearDecoder(back.matrix, back.offset))
    few.save("few.release")
    write_reports("few.reports", few.privatize(np.load("private.npy")))
    asked = ("--reports", "few.reports", "--out", "mean.npy", "--mean", "--json")
    result = run("decode", "few.release", *asked)
    assert json.loads(result.stdout)["directions"] == 2
    assert "along the 2 directions that are sent" in result.stderr
    assert "along the 2 directions that are sent" in run("inspect", "few.release").stdout
    assert "directions that are sent" not in run("inspect", "laplace.release").stdout


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
