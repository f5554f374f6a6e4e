"""``offaxis memoise`` and ``offaxis trend``: a release of sequences from file to table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import offaxis
from offaxis.client import Reporter
from offaxis.client.sequences import first_reports
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
    assert "all reports of a person, any two histories" in text
    assert "at most 2 permanent answers, ε = 2 each" in " ".join(text.split())
    assert "Trends: 1,000 people who report in every round" in text
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
    assert len(shown) == 7
    assert shown[-1]["promise"] == "in the first round and 3 to 8 rounds later"


def test_the_card_of_a_sequence_without_an_end_claims_no_limit_in_all(
    workspace: Path, run: Run
) -> None:
    fit_classes()
    run(*MEMOISE[:3], "0", *MEMOISE[4:], "open.release")
    card = " ".join(run("inspect", "open.release").stdout.split())
    assert "ε = 2, pure, per permanent answer" in card
    assert "All reports of a lifetime together have no limit" in card
    assert "no limit: permanent answers of ε = 2, one in every period" in card
    assert "Making a second report of the same vector costs as much" not in card
    text = run("ledger", "forecast", "open.release", "--reports", "365").stdout
    assert "one sequence of 365 reports: at most 62 permanent answers of ε = 2, pure" in text


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
    assert np.shape(facts["low"]) == np.shape(facts["high"]) == (4, 3)
    assert facts["drawn"][0] == [9, 9]
    np.savetxt("values.csv", [[1.0], [2.0], [6.0]], delimiter=",")
    means = json.loads(run(*command, "--values", "values.csv", "--new-only", "--json").stdout)
    assert np.shape(means["estimate"]) == (4, 1)
    assert_usage_error(run(*command[:-1], "trend.npy"), "must be a .csv file")
    assert_fails(run(*command[:3], "none", *command[4:]), 3, "folder not found")
    write_reports("days/9.reports", [b"x"])
    assert_fails(run(*command), 3, "two files of reports of round 9")
    Path("days/9.reports").unlink()
    for name in ("2026-01-17", "-5", "1e3", "other"):
        write_reports(f"days/{name}.reports", [b"x"])
        assert_fails(run(*command), 3, "does not name one number of a round")
        Path(f"days/{name}.reports").unlink()
    Path("days/notes.txt").touch()
    assert "read 4 rounds" in run(*command).stdout


def test_a_trend_reads_the_exports_of_a_collector(workspace: Path, run: Run) -> None:
    fit_classes()
    run(*MEMOISE, "year.release")
    release = offaxis.load("year.release")
    reports, _ = first_reports(release, np.random.default_rng(1).standard_normal((50, 3)))
    Path("rounds").mkdir()
    for kind in (pa.binary(), pa.binary(len(reports[0]))):
        table = {"id": list(range(50)), "group": [None] * 50, "report": pa.array(reports, kind)}
        parquet.write_table(pa.table(table), "rounds/energy-0.parquet")
        text = run("trend", "year.release", "--reports", "rounds", "--out", "t.csv").stdout
        assert "read 1 round" in text
        assert "0 to 0" in text
    parquet.write_table(pa.table({"report": [1, 2]}), "rounds/energy-1.parquet")
    failed = run("trend", "year.release", "--reports", "rounds", "--out", "t.csv")
    assert_fails(failed, 3, "must hold reports")


def test_a_sequence_is_forecast_and_paid_for_once(workspace: Path, run: Run) -> None:
    fit_classes()
    run(*MEMOISE, "year.release")
    forecast = ("ledger", "forecast", "year.release", "--reports", "365", "--json")
    assert json.loads(run(*forecast).stdout)["one_person"]["epsilon"] == "4"
    run("ledger", "create", "my.ledger", "--epsilon", "4")
    np.save("today.npy", np.zeros(3))
    report = ("privatize", "year.release", "--vectors", "today.npy", "--ledger", "my.ledger")
    first = run(*report, "--number", "17", "--out", "1.reports").stdout
    assert "paid ε = 4 from my.ledger" in first
    assert "all reports of this person's sequence together promise ε = 4" in first
    assert "paid ε = 0 from my.ledger" in run(*report, "--number=18", "--out", "2.reports").stdout
    again = run(*report, "--number", "18", "--out", "3.reports")
    assert_fails(again, 3, "the last report was for round 18, got number 18")
    assert_usage_error(run(*report, "--out", "3.reports"), "--number, the number of the round")
    unpaid = ("privatize", "year.release", "--vectors", "today.npy", "--out", "3.reports")
    assert_usage_error(run(*unpaid, "--number", "19"), "need --ledger")
    assert_usage_error(run(*unpaid), "needs --ledger")
    single = ("privatize", "classes.release", *report[2:], "--out", "3.reports")
    assert_usage_error(run(*single, "--number", "19"), "is for a release of sequences")
    np.save("today.npy", np.zeros(4))
    assert_fails(run(*report, "--number", "19", "--out", "3.reports"), 3, "dimension 3, got 4")


def test_two_studies_have_two_sequences(workspace: Path, run: Run) -> None:
    fit_classes()
    run(*MEMOISE, "year.release")
    run(*MEMOISE, "other.release", "--instant", "1")
    run("ledger", "create", "my.ledger", "--epsilon", "8")
    np.save("today.npy", np.zeros(3))
    options = ("--vectors", "today.npy", "--ledger", "my.ledger", "--number", "0")
    run("privatize", "year.release", *options, "--out", "1.reports")
    second = ("privatize", "other.release", *options, "--out", "2.reports")
    assert_fails(run(*second), 3, "needs a study of its own")
    assert "left: ε = 0" in run(*second, "--study", "steps").stdout
