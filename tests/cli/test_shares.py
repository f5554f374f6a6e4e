"""``offaxis decode --shares``: files, the table on the terminal, and options that do not apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import offaxis
from offaxis.cli import shares as command
from offaxis.formats.reports import write_reports
from offaxis.geometry import Layers
from tests.cli.conftest import DIM, Run, assert_fails, assert_usage_error

COMMAND = ("decode", "answers.release", "--reports", "my.reports", "--shares", "--out")
PLACES = ["north", "south", "far, away"] * 20
COLUMNS = ["share", "standard_error", "low", "high", "projected"]


@pytest.fixture
def reports(workspace: Path, small_head: Layers) -> list[bytes]:
    public = np.load("public.npy")
    release = offaxis.fit(small_head, public, epsilon=2, mechanism="class-response")
    release.save("answers.release")
    reports: Any = release.privatize(np.tile(np.load("private.npy"), (9, 1))[:60])
    write_reports("my.reports", reports)
    np.save("places.npy", np.array(PLACES))
    privatized: list[bytes] = reports
    return privatized


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_files_hold_what_the_library_estimates(
    run: Run, reports: list[bytes], suffix: str, grouped: bool
) -> None:
    out = f"shares.{suffix}"
    result = run(*COMMAND, out, *(["--groups", "places.npy"] if grouped else []))
    assert result.exit_code == 0, result.output
    expected = offaxis.load("answers.release").shares(reports, PLACES if grouped else None)
    size = expected.randomizer.size
    low, high = expected.interval(0.95)
    values = dict(
        zip(
            COLUMNS,
            (expected.estimate, expected.standard_error, low, high, expected.projected()),
            strict=True,
        )
    )
    if suffix == "npz":
        with np.load(out, allow_pickle=False) as archive:
            written = dict(archive)
        extra = {"groups"} if grouped else set()
        assert set(written) == {*COLUMNS, "names", "count"} | extra
        assert written["names"].tolist() == list(expected.names)
        np.testing.assert_array_equal(written["count"], expected.count)
        for name, array in values.items():
            np.testing.assert_array_equal(written[name], array)
        return
    table = (
        pd.read_csv(out, float_precision="round_trip", dtype={"name": str})
        if suffix == "csv"
        else pd.read_parquet(out)
    )
    first = ["group"] if grouped else []
    assert list(table) == [*first, "symbol", "name", *COLUMNS, "reports"]
    assert len(table) == size * (3 if grouped else 1)
    assert table["symbol"].tolist() == list(range(size)) * (3 if grouped else 1)
    assert table["name"].tolist()[:size] == list(expected.names)
    for name, array in values.items():
        np.testing.assert_array_equal(table[name], array.ravel())
    if grouped:
        assert list(dict.fromkeys(table["group"])) == ["north", "south", "far, away"]


def test_the_table_shows_shares_with_intervals(run: Run, reports: list[bytes]) -> None:
    result = run(*COMMAND, "shares.csv")
    expected = offaxis.load("answers.release").shares(reports)
    lines = result.stdout.splitlines()
    assert lines[0] == "read 60 reports, wrote shares to shares.csv"
    assert lines[2].split() == ["answer", "share", "95", "%", "interval", "standard", "error"]
    (low, *_), (high, *_) = expected.interval(0.95)
    row = f"{expected.names[0]} {100 * expected.estimate[0]:.1f} % "
    row += f"{100 * low:.1f} to {100 * high:.1f} % {100 * expected.standard_error[0]:.1f} %"
    assert " ".join(lines[3].split()) == row
    assert "for any population" in result.stdout
    assert result.stderr == ""


def test_groups_are_shown_with_a_warning_and_many_rows_are_cut(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(*COMMAND, "shares.csv", "--groups", "places.npy")
    assert "labels are not protected" in result.stderr
    assert "read 60 reports, wrote shares of 3 groups" in result.stdout
    assert result.stdout.splitlines()[2].split()[:2] == ["group", "answer"]
    monkeypatch.setattr(command, "_MAX_ROWS", 2)
    cut = run(*COMMAND, "shares.csv", "--groups", "places.npy").stdout
    size = offaxis.load("answers.release").shares(reports).randomizer.size
    assert f"… and {3 * size - 2} more" in cut


def test_a_label_cannot_control_the_terminal(run: Run, reports: list[bytes]) -> None:
    np.save("odd.npy", np.array(["\x1b[31mred", "[bold]b[/bold]", "x" * 500] * 20))
    shown = run(*COMMAND, "shares.csv", "--groups", "odd.npy").stdout
    assert "\x1b" not in shown
    assert "[bold]b[/bold]" in shown


def test_json_lists_all_numbers(run: Run, reports: list[bytes]) -> None:
    expected = offaxis.load("answers.release").shares(reports, PLACES)
    facts = json.loads(run(*COMMAND, "shares.csv", "--json").stdout)
    assert facts["reports"] == 60
    assert facts["level"] == 0.95
    assert facts["names"] == list(expected.names)
    np.testing.assert_array_equal(facts["share"], expected.merged().estimate)
    facts = json.loads(run(*COMMAND, "s.csv", "--json", "--groups", "places.npy").stdout)
    assert [entry["group"] for entry in facts["groups"]] == ["north", "south", "far, away"]
    assert [entry["reports"] for entry in facts["groups"]] == [20, 20, 20]
    for index, entry in enumerate(facts["groups"]):
        for name, end in zip(("low", "high"), expected.interval(0.95), strict=True):
            np.testing.assert_array_equal(entry[name], end[index])


def test_options_without_effect_are_usage_errors(run: Run, reports: list[bytes]) -> None:
    np.save("weights.npy", np.ones(60))
    assert_usage_error(run(*COMMAND, "s.csv", "--mean"), "--mean and --shares exclude each other")
    assert_usage_error(run(*COMMAND, "s.csv", "--weights", "weights.npy"), "with --mean only")
    assert_usage_error(run(*COMMAND, "s.npy"), "cannot store names", ".npz, .csv or .parquet")
    assert_usage_error(run(*COMMAND, "s.csv", "--engine", "local"), "drop --engine")
    assert not list(Path().glob("s.*"))


def test_releases_of_vectors_have_no_shares(run: Run, workspace: Path) -> None:
    release = offaxis.load("laplace.release")
    reports: Any = release.privatize(np.zeros((3, DIM)))
    write_reports("my.reports", reports)
    arguments = ("--reports", "my.reports", "--out", "s.csv", "--shares")
    result = run("decode", "laplace.release", *arguments)
    assert_fails(result, 3, "hold vectors, not symbols", "aggregate()", "class-response")
    assert not Path("s.csv").exists()
