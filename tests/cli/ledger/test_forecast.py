"""What reports would cost, on the command line: both counts, and the shuffled one beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.privacy.composition import Cost, by_loss_distribution, shuffled_epsilon
from tests.cli.conftest import Run


def test_a_forecast_spends_nothing_and_says_both_counts(desk: Path, run: Run) -> None:
    small = offaxis.fit(None, np.load("public.npy"), epsilon="1/10", reshaping="none")
    small.save("small.release")
    before = sorted(desk.iterdir())
    given = ("ledger", "forecast", "small.release", "--reports", "2000", "--shuffled")
    facts = json.loads(run(*given, "--json").stdout)
    assert facts["one_person"] == {"epsilon": "200", "delta": "0"}
    wanted = by_loss_distribution([Cost("1/10", 0, 2000)], "1e-6")
    assert wanted <= float(facts["by_loss_distribution"]["epsilon"]) <= wanted * (1 + 1e-5)
    central = shuffled_epsilon("1/10", 2000, "1e-6")
    assert central is not None
    found = float(facts["shuffled"]["central_epsilon"])
    assert central <= found <= central * (1 + 1e-5) < 0.1
    words = " ".join(run(*given).stdout.split())
    assert "added up ε = 200, pure" in words
    assert "local ε = 0.1, pure, to anybody who may see whose report it is" in words
    assert "an order that an honest shuffler made random" in words
    assert sorted(desk.iterdir()) == before
    assert "shuffle" not in run(*given[:-1]).stdout
    assert "shuffled" not in json.loads(run(*given[:-1], "--json").stdout)


@pytest.mark.parametrize(
    ("name", "reports", "reason"),
    [
        ("gaussian", "1000000", "known for pure releases only"),
        ("laplace", "100", "too few reports for this ε"),
    ],
)
def test_where_no_central_figure_is_known(
    desk: Path, run: Run, name: str, reports: str, reason: str
) -> None:
    given = ("ledger", "forecast", f"{name}.release", "--reports", reports, "--shuffled")
    assert reason in run(*given).stdout
    assert json.loads(run(*given, "--json").stdout)["shuffled"]["central_epsilon"] is None


def test_more_reports_than_can_be_composed_have_their_sum(desk: Path, run: Run) -> None:
    given = ("ledger", "forecast", "laplace.release", "--reports", "100001", "--json")
    facts = json.loads(run(*given).stdout)
    assert facts["one_person"]["epsilon"] == "500005"
    assert facts["by_loss_distribution"]["why_not"] == "no figure: more than 100,000 reports"
