"""A person's budget on the command line: limits are stored, shown, kept, and looked ahead to."""

from __future__ import annotations

import json
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.cli import privatize as command
from offaxis.cli.ledger import seconds
from offaxis.errors import InvalidInput
from offaxis.privacy.composition import (
    Cost,
    Limit,
    by_loss_distribution,
)
from offaxis.privacy.ledger import Ledger
from offaxis.release import Release
from tests.cli.conftest import Run, assert_fails, assert_misused

SPEND = ("privatize", "laplace.release", "--vectors", "private.npy", "--out", "my.reports")
WITH = ("--ledger", "my.ledger")


def spent(path: str = "my.ledger") -> tuple[Fraction, Fraction]:
    with Ledger(path) as ledger:
        return ledger.spent()


def shown(run: Run, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run("ledger", "show", "my.ledger", *options, "--json").stdout
    )
    return found


def test_limits_are_stored(desk: Path, run: Run) -> None:
    options = ("--epsilon", "1/3", "--delta", "1e-6", "--per", "30d", "--in-all", "8")
    result = run("ledger", "create", "my.ledger", *options)
    assert result.exit_code == 0, result.output
    assert (
        "limit: ε = 1/3, δ = 1e-06 in any 30 days\nlimit: ε = 8, δ = 1e-06 in all" in result.stdout
    )
    with Ledger("my.ledger") as ledger:
        assert ledger.limits == (Limit("1/3", "1e-6", 30 * 86_400), Limit(8, "1e-6"))


def test_a_ledger_that_is_there_is_kept(desk: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40")
    assert run(*SPEND, *WITH).exit_code == 0
    again = run("ledger", "create", "my.ledger", "--epsilon", "1000")
    assert_fails(again, 3, "is a ledger already")
    assert spent() == (35, 0)


def test_a_schedule_alone_is_pointed_out(desk: Path, run: Run) -> None:
    alone = run("ledger", "create", "a.ledger", "--epsilon", "1", "--per", "1d").stdout
    assert "bounds no total" in alone
    assert "in any 1 day\n" in alone
    facts = run("ledger", "create", "b.ledger", "--epsilon", "1", "--json").stdout
    assert json.loads(facts)["limits"] == [{"epsilon": "1", "delta": "0", "seconds": None}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "0"), "epsilon must be positive"),
        (("--epsilon", "x"), "epsilon must be a finite number"),
        (("--epsilon", "1", "--delta", "2"), "delta must lie strictly between 0 and 1"),
        (("--epsilon", "1", "--per", "soon"), "30d, 12h, 45min, 90s or 2w, got 'soon'"),
        (("--epsilon", "1", "--per", "0d"), "30d, 12h"),
        (("--epsilon", "1", "--in-all", "2"), "--in-all goes with --per"),
    ],
)
def test_limits_that_cannot_be(
    desk: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_misused(run("ledger", "create", "my.ledger", *options), message)
    assert not Path("my.ledger").exists()


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("45min", 2700), ("12h", 43_200), ("1.5d", 129_600)]
)
def test_stretches_of_time(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


def test_every_row_is_paid_for_and_the_limit_is_kept(desk: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40")
    result = run(*SPEND, *WITH)
    assert "paid ε = 35 from my.ledger; left: ε = 5 in all" in result.stdout
    first = Path("my.reports").read_bytes()
    again = run(*SPEND, *WITH, "--force")
    assert_fails(again, 3, "7 more of ε = 5, pure would pass the limit of ε = 40 in all")
    assert Path("my.reports").read_bytes() == first
    assert spent() == (35, 0)
    np.save("one.npy", np.load("private.npy")[0])
    last = run(*SPEND[:3], "one.npy", *SPEND[4:], *WITH, "--force", "--json")
    limit = json.loads(last.stdout)["ledger"]["limits"][0]
    assert (limit["spent_epsilon"], limit["left_epsilon"]) == ("40", "0")


@pytest.mark.parametrize("rows", [3, 100])
def test_reports_that_were_paid_for_are_reports_like_any(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(command, "_ROWS", rows)
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert run(*SPEND, *WITH).exit_code == 0
    release = offaxis.load("laplace.release")
    data = Path("my.reports").read_bytes()
    size = release.report_size
    reports = [data[at : at + size] for at in range(0, len(data), size)]
    assert len(set(reports)) == 7
    assert release.decode(reports).shape == (7, 5)
    assert spent() == (35, 0)


def test_a_crash_after_paying_has_paid_and_released_nothing(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Release.privatize, []

    def crashing(self: Release, vectors: np.ndarray) -> Any:
        seen.append(spent())
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(self, vectors)

    monkeypatch.setattr(command, "_ROWS", 3)
    monkeypatch.setattr(Release, "privatize", crashing)
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert run(*SPEND, *WITH).exit_code == 130
    assert seen == [(35, 0), (35, 0)], "all rows are paid for before the first report is made"
    assert spent() == (35, 0)
    assert not Path("my.reports").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--vectors", "bad.npy"), "must be finite"),
        (("--vectors", "empty.npy"), "must not be empty"),
        (("--vectors", "wide.npy"), "must have dimension 5"),
        (("--vectors", "flat.npy"), "must have dimension 5"),
        (("--vectors", "cube.npy"), "one vector or a batch"),
        (("--out", "my.ledger", "--force"), "is an input"),
        (("--out", "nowhere/my.reports"), "there is no folder"),
        (("--ledger", "typo.ledger"), "there is no ledger typo.ledger; make one"),
        (("--ledger", "private.npy"), "cannot be used as a ledger"),
    ],
)
def test_what_cannot_be_reported_is_not_paid_for(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch, change: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(command, "_ROWS", 2)  # the bad row comes after good ones
    np.save("bad.npy", np.where(np.arange(35).reshape(7, 5) == 33, np.nan, 1.0))
    np.save("empty.npy", np.ones((0, 5)))
    np.save("wide.npy", np.ones((7, 6)))
    np.save("flat.npy", np.ones(6))
    np.save("cube.npy", np.ones((2, 2, 5)))
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert_fails(run(*SPEND, *WITH, *change), 3, message)
    assert spent() == (0, 0)
    assert not Path("my.reports").exists()
    assert not Path("typo.ledger").exists()


def test_an_output_that_turns_out_unwritable_is_not_paid_for(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise InvalidInput("cannot write my.reports: No space left")

    monkeypatch.setattr("offaxis.files._create", full)
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert_fails(run(*SPEND, *WITH), 3, "No space left")
    assert spent() == (0, 0)


def test_a_ledger_without_a_limit_is_shown_but_not_spent_from(desk: Path, run: Run) -> None:
    Ledger("my.ledger", Limit(3)).close()
    assert_fails(run(*SPEND, *WITH), 3, "stores no limit")
    assert "no limit is stored" in run("ledger", "show", "my.ledger").stdout


def test_what_was_spent_is_shown_by_release_and_limit(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--epsilon", "40", "--delta", "1e-3", "--per", "1d", "--in-all", "90")
    run("ledger", "create", "my.ledger", *options)
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert run(*SPEND, *WITH).exit_code == 0
    monkeypatch.setattr(time, "time", lambda: 1_100_000.0)
    gaussian = ("privatize", "gaussian.release", *SPEND[2:-1], "other.reports")
    assert run(*gaussian, *WITH).exit_code == 0
    facts = shown(run, "--delta", "1e-2")
    assert facts["reports"] == 14
    assert facts["spent"] == {"epsilon": "49", "delta": "7e-05"}
    costs = [Cost(5, 0, 7), Cost(2, "1e-5", 7)]
    whole = by_loss_distribution(costs, "1e-2")
    assert whole <= float(facts["by_loss_distribution"]["epsilon"]) <= whole * (1 + 1e-5)
    daily, in_all = facts["limits"]
    assert (daily["spent_epsilon"], daily["seconds"]) == ("14", 86_400)
    assert in_all["spent_epsilon"] == "49"
    counted = by_loss_distribution(costs, "1e-3")
    assert counted < 49
    assert 90 - counted - 1e-3 <= float(in_all["left_epsilon"]) <= 90 - counted
    assert [one["reports"] for one in facts["releases"]] == [7, 7]
    assert facts["releases"][0]["release"] == offaxis.load("laplace.release").hash
    assert facts["releases"][0]["last_paid"] == "1970-01-12 13:46:40 UTC"
    text = run("ledger", "show", "my.ledger").stdout
    for part in ("14 reports paid for", "in any 1 day", "ε = 49, δ = 7e-05", "1970-01-12 13:46\n"):
        assert part in text


def test_a_total_needs_a_delta_as_large_as_the_releases(desk: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40", "--delta", "1e-3")
    run("privatize", "gaussian.release", *SPEND[2:], *WITH)
    assert shown(run)["by_loss_distribution"]["why_not"] == "no figure: their own δ is larger"
    assert shown(run, "--delta", "1e-4")["by_loss_distribution"]["why_not"] is None


def test_without_the_extra_sums_are_shown(
    desk: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40", "--delta", "1e-6")
    run(*SPEND, *WITH)
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    facts = shown(run)
    assert facts["spent"]["epsilon"] == "35"
    assert facts["limits"][0]["left_epsilon"] == "5"
    assert ".[accounting]" in facts["by_loss_distribution"]["why_not"]
    assert ".[accounting]" in run("ledger", "show", "my.ledger").stdout
    assert_fails(run(*SPEND, *WITH, "--force"), 4, ".[accounting]")
    assert spent() == (35, 0)


def test_a_missing_ledger_is_not_made_by_looking(desk: Path, run: Run) -> None:
    assert_fails(run("ledger", "show", "my.ledger"), 3, "there is no ledger my.ledger")
    assert not Path("my.ledger").exists()


@pytest.mark.parametrize("options", [("show",), ("create", "x"), ("forecast", "laplace.release")])
def test_wrong_usage_exits_with_2(desk: Path, run: Run, options: tuple[str, ...]) -> None:
    assert run("ledger", *options).exit_code == 2
