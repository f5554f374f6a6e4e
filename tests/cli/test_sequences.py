"""``offaxis memoise`` and ``offaxis trend``: a release of sequences from file to table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

import offaxis
from offaxis.client import Reporter
from offaxis.formats.reports import write_reports
from offaxis.privacy.ledger import Ledger, Limit
from tests.cli.conftest import Run, assert_fails, assert_usage_error

MEMOISE = ("memoise", "classes.release", "--draws", "2", "--period", "6", "--out")


def fit_classes() -> None:
    public = np.random.default_rng(0).standard_normal((200, 3))
    offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response").save("classes.release")


def test_a_release_is_memoised_and_shown(workspace: Path, run: Run) -> None:
    fit_classes()
    text = run(*MEMOISE, "year.release").stdout
    assert "any two histories, all reports" in text
    assert "2 permanent answers of ε = 2" in " ".join(text.split())
    release = offaxis.load("year.release")
    assert (release.unit, release.guarantee.epsilon) == ("user", 4)
    facts = json.loads(run(*MEMOISE, "other.release", "--instant", "1/2", "--json").stdout)
    assert facts["hash"] == offaxis.load("other.release").hash
    assert facts["promises"][0]["promise"].startswith("ε = 4, however many")
    card = " ".join(run("inspect", "year.release").stdout.split())
    assert "A person reports again and again" in card
    assert "WHAT A SEQUENCE OF REPORTS PROMISES" in card
    assert "Sequences about the same person add up" in card
    shown = json.loads(run("inspect", "year.release", "--json").stdout)["card"]["sequence"]
    assert len(shown) == 6


def test_what_cannot_be_memoised_is_refused(workspace: Path, run: Run) -> None:
    fit_classes()
    laplace = ("memoise", "laplace.release", *MEMOISE[2:], "x.release")
    assert_fails(run(*laplace), 3, "sequences need a release of symbols or directions")
    assert run(*MEMOISE, "year.release").exit_code == 0
    assert_fails(run(*MEMOISE, "year.release"), 3, "already exists")
    twice = ("memoise", "year.release", *MEMOISE[2:], "x.release")
    assert_fails(run(*twice), 3, "already")
    assert_usage_error(run(*MEMOISE, "x.release", "--instant", "0"), "epsilon must be positive")
    assert not Path("x.release").exists()


def test_a_trend_is_estimated_from_a_folder_of_reports(workspace: Path, run: Run) -> None:
    fit_classes()
    run(*MEMOISE, "year.release")
    release = offaxis.load("year.release")
    rng = np.random.default_rng(1)
    people = [Reporter(release, Ledger(f"{i}.ledger", Limit(4))) for i in range(30)]
    Path("days").mkdir()
    for day in range(9, 13):
        reports = [p.report(rng.standard_normal(3), number=day) for p in people]
        write_reports(f"days/day-{day}.reports", reports)
    command = ("trend", "year.release", "--reports", "days", "--out", "trend.csv")
    assert "read 4 rounds" in run(*command).stdout
    rows = list(csv.DictReader(Path("trend.csv").read_text().splitlines()))
    assert [int(row["round"]) for row in rows[::3]] == [9, 10, 11, 12]
    for row in rows:
        assert float(row["low"]) < float(row["estimate"]) < float(row["high"])
    facts = json.loads(run(*command, "--window", "1", "--json").stdout)
    assert (facts["window"], np.shape(facts["estimate"])) == (1, (4, 3))
    assert_usage_error(run(*command[:-1], "trend.npy"), "must be a .csv file")
    assert_fails(run(*command[:3], "none", *command[4:]), 3, "folder not found")
    write_reports("days/9.reports", [b"x"])
    assert_fails(run(*command), 3, "two files of reports of round 9")


def test_a_sequence_is_forecast_and_paid_for_once(workspace: Path, run: Run) -> None:
    fit_classes()
    run(*MEMOISE, "year.release")
    forecast = ("ledger", "forecast", "year.release", "--reports", "365", "--json")
    assert json.loads(run(*forecast).stdout)["one_person"]["epsilon"] == "4"
    run("ledger", "create", "my.ledger", "--epsilon", "4")
    np.save("today.npy", np.zeros(3))
    report = ("privatize", "year.release", "--vectors", "today.npy", "--ledger", "my.ledger")
    first = run(*report, "--out", "1.reports").stdout
    assert "paid ε = 4 from my.ledger" in first
    assert "all reports of this person's sequence together promise ε = 4" in first
    assert "paid ε = 0 from my.ledger" in run(*report, "--out", "2.reports").stdout
