"""A person's budget on the command line: limits are stored, shown, enforced and forecast."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.cli import privatize as command
from offaxis.cli.ledger import parse_period
from offaxis.errors import InvalidInput
from offaxis.privacy.composition import Cost, Limit, by_loss_distribution, filtered_epsilon
from offaxis.privacy.ledger import Ledger
from offaxis.privacy.shuffling import shuffled_epsilon
from offaxis.privacy.wording import rounded
from offaxis.release import Release
from tests.cli.conftest import Run, assert_fails, assert_usage_error

SPEND = ("privatize", "laplace.release", "--vectors", "private.npy", "--out", "my.reports")
WITH = ("--ledger", "my.ledger")


def spent(path: str = "my.ledger") -> tuple[Fraction, Fraction]:
    with Ledger(path) as ledger:
        return ledger.spent()


def shown(run: Run, *options: str) -> dict[str, Any]:
    output = run("ledger", "show", "my.ledger", *options, "--json").stdout
    facts: dict[str, Any] = json.loads(output)
    return facts


def test_limits_are_stored(workspace: Path, run: Run) -> None:
    options = ("--epsilon", "1/3", "--delta", "1e-6", "--per", "30d", "--in-all", "8")
    result = run("ledger", "create", "my.ledger", *options)
    assert result.exit_code == 0, result.output
    assert (
        "limit: ε = 1/3, δ = 1e-06 in any 30 days\nlimit: ε = 8, δ = 1e-06 in all" in result.stdout
    )
    with Ledger("my.ledger") as ledger:
        assert ledger.limits == (Limit("1/3", "1e-6", 30 * 86_400), Limit(8, "1e-6"))


def test_an_existing_ledger_is_not_replaced(workspace: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40")
    assert run(*SPEND, *WITH).exit_code == 0
    again = run("ledger", "create", "my.ledger", "--epsilon", "1000")
    assert_fails(again, 3, "is a ledger already")
    assert spent() == (35, 0)


def test_a_limit_per_period_without_a_total_is_noted(workspace: Path, run: Run) -> None:
    output = run("ledger", "create", "a.ledger", "--epsilon", "1", "--per", "1d").stdout
    assert "does not limit the total" in output
    assert "in any 1 day\n" in output
    facts = run("ledger", "create", "b.ledger", "--epsilon", "1", "--json").stdout
    limit = {"epsilon": "1", "delta": "0", "slack": "0", "seconds": None}
    assert json.loads(facts)["limits"] == [limit]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "0"), "epsilon must be positive"),
        (("--epsilon", "x"), "epsilon must be a finite number"),
        (("--epsilon", "1", "--delta", "2"), "delta must be strictly between 0 and 1"),
        (("--epsilon", "1", "--per", "soon"), "30d, 12h, 45min, 90s or 2w, got 'soon'"),
        (("--epsilon", "1", "--per", "0d"), "30d, 12h"),
        (("--epsilon", "1", "--in-all", "2"), "--in-all requires --per"),
    ],
)
def test_invalid_limits_are_usage_errors(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run("ledger", "create", "my.ledger", *options), message)
    assert not Path("my.ledger").exists()


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("45min", 2700), ("12h", 43_200), ("1.5d", 129_600)]
)
def test_periods_are_read_in_seconds(text: str, expected: float) -> None:
    assert parse_period(text) == expected


def test_every_row_is_paid_for_and_the_limit_is_enforced(workspace: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40")
    result = run(*SPEND, *WITH)
    assert "paid ε = 35 from my.ledger; left: ε = 5 in all" in result.stdout
    first = Path("my.reports").read_bytes()
    again = run(*SPEND, *WITH, "--force")
    assert_fails(again, 3, "7 more of ε = 5, pure would exceed the limit of ε = 40 in all")
    assert Path("my.reports").read_bytes() == first
    assert spent() == (35, 0)
    np.save("one.npy", np.load("private.npy")[0])
    last = run(*SPEND[:3], "one.npy", *SPEND[4:], *WITH, "--force", "--json")
    limit = json.loads(last.stdout)["ledger"]["limits"][0]
    assert (limit["spent_epsilon"], limit["left_epsilon"]) == ("40", "0")


@pytest.mark.parametrize("rows", [3, 100])
def test_paid_reports_are_ordinary_reports(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(command, "_ROWS", rows)
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert run(*SPEND, *WITH).exit_code == 0
    release = offaxis.load("laplace.release")
    data = Path("my.reports").read_bytes()
    size = release.report_size
    reports = [data[start : start + size] for start in range(0, len(data), size)]
    assert len(set(reports)) == 7
    assert release.decode(reports).shape == (7, 5)
    assert spent() == (35, 0)


def test_a_crash_after_paying_has_paid_and_released_nothing(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
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
        (("--out", "nowhere/my.reports"), "folder nowhere not found"),
        (("--ledger", "typo.ledger"), "ledger not found: typo.ledger; create one"),
        (("--ledger", "private.npy"), "cannot be used as a ledger"),
    ],
)
def test_invalid_input_is_not_paid_for(
    workspace: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, ...],
    message: str,
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


def test_an_output_that_cannot_be_written_is_not_paid_for(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise InvalidInput("cannot write my.reports: No space left")

    monkeypatch.setattr("offaxis.files._create", full)
    run("ledger", "create", "my.ledger", "--epsilon", "100")
    assert_fails(run(*SPEND, *WITH), 3, "No space left")
    assert spent() == (0, 0)


def test_a_ledger_without_a_limit_is_shown_but_not_spent_from(workspace: Path, run: Run) -> None:
    Ledger("my.ledger", Limit(3)).close()
    assert_fails(run(*SPEND, *WITH), 3, "stores no limit")
    assert "no limit is stored" in run("ledger", "show", "my.ledger").stdout


def _items() -> None:
    """Write the Gaussian release as one that protects single vectors."""
    replace(offaxis.load("gaussian.release"), unit="item").save("items.release")


def test_a_release_per_person_is_reported_once_per_ledger(workspace: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40", "--delta", "1e-3")
    many = ("privatize", "gaussian.release", *SPEND[2:])
    assert_fails(run(*many, *WITH), 3, "one promise for all reports of a person, got 7")
    np.save("mine.npy", np.zeros(np.load("private.npy").shape[1]))
    one = ("privatize", "gaussian.release", "--vectors", "mine.npy", "--out", "one.reports")
    assert run(*one, *WITH).exit_code == 0
    assert_fails(run(*one, *WITH, "--force"), 3, "one report or one sequence per person")
    assert spent() == (2, Fraction(1, 10**5))


def test_spending_is_shown_by_release_and_limit(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--epsilon", "40", "--delta", "1e-3", "--per", "1d", "--in-all", "90")
    run("ledger", "create", "my.ledger", *options)
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert run(*SPEND, *WITH).exit_code == 0
    monkeypatch.setattr(time, "time", lambda: 1_100_000.0)
    _items()
    gaussian = ("privatize", "items.release", *SPEND[2:-1], "other.reports")
    assert run(*gaussian, *WITH).exit_code == 0
    facts = shown(run, "--delta", "1e-2")
    assert facts["reports"] == 14
    assert facts["spent"] == {"epsilon": "49", "delta": "7e-05"}
    costs = [Cost(5, 0, 7), Cost(2, "1e-5", 7)]
    total = by_loss_distribution(costs, "1e-2")
    assert total <= float(facts["by_loss_distribution"]["epsilon"]) <= total * (1 + 1e-5)
    daily, in_all = facts["limits"]
    assert (daily["spent_epsilon"], daily["seconds"]) == ("14", 86_400)
    assert in_all["spent_epsilon"] == "49"
    assert in_all["spent_epsilon_by_filter"] is None
    assert in_all["left_epsilon"] == "41"
    assert [payment["reports"] for payment in facts["releases"]] == [7, 7]
    assert facts["releases"][0]["release"] == offaxis.load("laplace.release").hash
    assert facts["releases"][0]["last_paid"] == "1970-01-12 13:46:40 UTC"
    text = run("ledger", "show", "my.ledger").stdout
    for part in ("14 reports paid for", "in any 1 day", "ε = 49, δ = 7e-05", "1970-01-12 13:46\n"):
        assert part in text


def test_a_total_needs_a_delta_as_large_as_that_of_the_releases(workspace: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40", "--delta", "1e-3")
    _items()
    run("privatize", "items.release", *SPEND[2:], *WITH)
    assert shown(run)["by_loss_distribution"]["why_not"] == "no figure: their own δ is larger"
    assert shown(run, "--delta", "1e-4")["by_loss_distribution"]["why_not"] is None


def test_without_the_extra_only_sums_are_shown(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
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
    assert_fails(run(*SPEND, *WITH, "--force"), 3, "would exceed the limit")
    assert spent() == (35, 0)


def test_a_ledger_with_slack_counts_small_budgets_by_the_filter(workspace: Path, run: Run) -> None:
    run("ledger", "create", "my.ledger", "--epsilon", "40", "--delta", "1e-3", "--slack", "1e-4")
    run(*SPEND, *WITH)
    [limit] = shown(run)["limits"]
    filtered = filtered_epsilon([Cost(5, reports=7)], Fraction(1, 10**4))
    assert filtered is not None
    assert limit["slack"] == "0.0001"
    assert filtered <= float(limit["spent_epsilon_by_filter"]) <= filtered * (1 + 1e-5)
    assert limit["left_epsilon"] == "5", "the sum is smaller here"
    assert "by the filter" in run("ledger", "show", "my.ledger").stdout
    wrong = ("ledger", "create", "x.ledger", "--epsilon", "1", "--slack", "1e-4")
    assert_usage_error(run(*wrong), "slack is a part of delta")


def test_showing_a_missing_ledger_does_not_create_it(workspace: Path, run: Run) -> None:
    assert_fails(run("ledger", "show", "my.ledger"), 3, "ledger not found: my.ledger")
    assert not Path("my.ledger").exists()


@pytest.mark.parametrize("options", [("show",), ("create", "x"), ("forecast", "laplace.release")])
def test_wrong_usage_exits_with_2(workspace: Path, run: Run, options: tuple[str, ...]) -> None:
    assert run("ledger", *options).exit_code == 2


# ---- Forecasts


def test_a_forecast_spends_nothing_and_shows_both_totals(workspace: Path, run: Run) -> None:
    small = offaxis.fit(
        None, np.load("public.npy"), epsilon="1/10", reshaping="none", mechanism="laplace"
    )
    small.save("small.release")
    before = sorted(workspace.iterdir())
    command = ("ledger", "forecast", "small.release", "--reports", "2000", "--shuffled")
    facts = json.loads(run(*command, "--json").stdout)
    assert facts["one_person"] == {"epsilon": "200", "delta": "0"}
    total = by_loss_distribution([Cost("1/10", 0, 2000)], "1e-6")
    assert total <= float(facts["by_loss_distribution"]["epsilon"]) <= total * (1 + 1e-5)
    central = shuffled_epsilon("1/10", 2000, "1e-6").epsilon
    assert central is not None
    assert facts["shuffled"]["bound"] == "clones"
    shown = float(facts["shuffled"]["central_epsilon"])
    assert central <= shown <= central * (1 + 1e-5) < 0.1
    text = " ".join(run(*command).stdout.split())
    assert "sum ε = 200, pure" in text
    assert "local ε = 0.1, pure, against anyone who may see whose report it is" in text
    assert "in a random order made by an honest shuffler" in text
    assert "(bound: of any randomizer of this ε)" in text
    assert sorted(workspace.iterdir()) == before
    assert "shuffle" not in run(*command[:-1]).stdout
    assert "shuffled" not in json.loads(run(*command[:-1], "--json").stdout)


@pytest.mark.parametrize(
    ("name", "reports", "reason"),
    [
        ("gaussian", "1000000", "known for pure ε only"),
        ("laplace", "100", "too few reports for this ε"),
    ],
)
def test_the_reason_is_shown_if_no_central_epsilon_is_known(
    workspace: Path, run: Run, name: str, reports: str, reason: str
) -> None:
    command = ("ledger", "forecast", f"{name}.release", "--reports", reports, "--shuffled")
    assert reason in run(*command).stdout
    assert json.loads(run(*command, "--json").stdout)["shuffled"]["central_epsilon"] is None


def test_more_reports_than_can_be_composed_have_only_a_sum(workspace: Path, run: Run) -> None:
    command = ("ledger", "forecast", "laplace.release", "--reports", "100001", "--json")
    facts = json.loads(run(*command).stdout)
    assert facts["one_person"]["epsilon"] == "500005"
    assert facts["by_loss_distribution"]["why_not"] == "no figure: more than 100,000 reports"


# ---- Rounding


def test_numbers_are_rounded_against_the_person() -> None:
    odd = Fraction(1000, 3001)
    assert odd < Fraction(rounded(odd, up=True)) < odd * (1 + Fraction(1, 10**5))
    assert odd > Fraction(rounded(odd, up=False)) > odd * (1 - Fraction(1, 10**5))
    assert rounded(Fraction(1, 3), up=True) == "1/3"
    assert rounded(Fraction(7, 2), up=True) == "3.5"
