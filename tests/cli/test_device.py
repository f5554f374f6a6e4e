"""A device on the command line: set up, answer, send, look; against a collector on a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from tests.cli.conftest import Run, assert_fails, assert_misused
from tests.client.collectors import PUBLISHER, Collector


@pytest.fixture
def collector(desk: Path) -> Iterator[Collector]:
    """A collector with one round of the release of ε = 5; vectors have five numbers."""
    running = Collector()
    running.offer(offaxis.load("laplace.release"))
    yield running
    running.close()


def init(run: Run, collector: Collector, *options: str) -> Any:
    given = ("--collector", collector.url, "--publisher", PUBLISHER, *options)
    return run("device", "init", "my.device", *given)


@pytest.fixture
def made(run: Run, collector: Collector) -> Collector:
    assert init(run, collector, "--limit", "8").exit_code == 0
    np.save("mine.npy", np.load("private.npy")[0])
    return collector


REPORT = ("device", "report", "my.device", "energy-1")


def test_from_setting_up_to_sent(made: Collector, run: Run) -> None:
    made.offer(offaxis.load("laplace.release"), groups=("north", "south"))
    assert "energy-1" in run("device", "rounds", "my.device").stdout
    result = run(*REPORT, "--vector", "mine.npy", "--group", "north")
    assert result.exit_code == 0, result.output
    assert "energy-1 is answered and queued; spent so far: ε = 5" in result.stdout
    assert made.uploads() == []
    assert "tried 0 reports, 1 waiting" in run("device", "send", "my.device").stdout
    sent = run("device", "send", "my.device", "--now")
    assert "tried 1 report, 0 waiting" in sent.stdout
    assert len(made.uploads()) == 1
    status = run("device", "status", "my.device").stdout
    assert "limit ε = 8 in all: ε = 3 left" in status
    assert "energy-1" in status
    assert "yes" in run("device", "rounds", "my.device").stdout


def test_everything_as_json(made: Collector, run: Run) -> None:
    rounds = json.loads(run("device", "rounds", "my.device", "--json").stdout)["rounds"]
    assert rounds[0]["round"] == "energy-1"
    assert rounds[0]["answered"] is False
    entry = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    assert entry["state"] == "queued"
    sent = json.loads(run("device", "send", "my.device", "--now", "--json").stdout)["answers"]
    assert [(one["id"], one["state"]) for one in sent] == [(entry["id"], "sent")]
    back = json.loads(run("device", "withdraw", "my.device", "energy-1", "--json").stdout)
    assert back["answers"][0]["state"] == "withdrawing"
    status = json.loads(run("device", "status", "my.device", "--json").stdout)
    assert status["limits"][0]["left_epsilon"] == "3"
    assert "report" not in status["answers"][0]


def test_a_round_is_answered_once(made: Collector, run: Run) -> None:
    first = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    np.save("mine.npy", np.zeros(5))
    again = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    assert again == first
    assert "ε = 5" in run(*REPORT, "--public-mean").stdout


@pytest.mark.parametrize("content", [np.full(5, np.nan), np.zeros(4), np.zeros((3, 5))])
def test_an_unusable_file_is_answered_like_any_other(
    made: Collector, run: Run, content: np.ndarray
) -> None:
    np.save("mine.npy", content)
    result = run(*REPORT, "--vector", "mine.npy")
    assert result.stdout == "round energy-1 is answered and queued; spent so far: ε = 5\n"
    assert result.stderr == ""


def test_a_damaged_file_and_one_row_are_answered_too(made: Collector, run: Run) -> None:
    Path("mine.npy").write_bytes(b"\x93NUMPY garbage")
    assert run(*REPORT, "--vector", "mine.npy").exit_code == 0
    made.offer(offaxis.load("privunit2.release"), name="energy-2", number=2)
    assert_fails(run(*REPORT[:3], "energy-2", "--public-mean"), 3, "would pass the limit of ε = 8")


def test_a_mistyped_command_answers_nothing(made: Collector, run: Run) -> None:
    assert_fails(run(*REPORT, "--vector", "missing.npy"), 3, "there is no file missing.npy")
    assert_misused(run(*REPORT), "either --vector FILE or --public-mean")
    both = run(*REPORT, "--vector", "mine.npy", "--public-mean")
    assert_misused(both, "either --vector FILE or --public-mean")
    assert_fails(run("device", "status", "your.device"), 3, "there is no device your.device")
    assert_fails(run(*REPORT[:3], "../x", "--public-mean"), 3, "is no name of a round")
    assert json.loads(run("device", "status", "my.device", "--json").stdout)["answers"] == []


def test_limits_of_one_report_and_of_a_stretch(collector: Collector, run: Run) -> None:
    result = init(run, collector, "--limit", "20", "--limit", "6 per 30d", "--epsilon", "9/2")
    assert "limit: ε = 20 in all\nlimit: ε = 6 in any 30 days\n" in result.stdout
    assert "one report: up to ε = 4.5, pure, per item" in result.stdout
    assert_fails(run(*REPORT, "--public-mean"), 3, "would promise ε = 5", "up to ε = 4.5")
    assert_fails(init(run, collector, "--limit", "100"), 3, "already")


def test_a_token_comes_from_a_file_and_is_shown_nowhere(collector: Collector, run: Run) -> None:
    Path("token").write_text("my-secret-token\n")
    result = init(run, collector, "--limit", "8", "--token-file", "token")
    run("device", "rounds", "my.device")
    assert collector.seen[-1].headers["authorization"] == "Bearer my-secret-token"
    assert "my-secret" not in result.output + run("device", "status", "my.device", "--json").output
    assert_fails(
        init(run, collector, "--limit", "8", "--token-file", "none"), 3, "cannot read a token"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--limit", "8", "--collector", "http://collect.example"), "https://host"),
        (
            ("--limit", "8", "--collector", "https://127.0.0.1", "--ca-file", "none.crt"),
            "cannot read certificates",
        ),
    ],
)
def test_what_cannot_be_set_up(
    collector: Collector, run: Run, options: tuple[str, ...], words: str
) -> None:
    assert_fails(init(run, collector, *options), 3, words)
    assert not Path("my.device").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--limit", "0"), "epsilon must be positive"),
        (("--limit", "1 per month"), "30d, 12h"),
        (("--limit", "8", "--delta", "x"), "delta must be a finite number"),
        (("--limit", "8", "--publisher", "12"), "64 hexadecimal digits"),
    ],
)
def test_limits_and_keys_that_cannot_be(
    collector: Collector, run: Run, options: tuple[str, ...], words: str
) -> None:
    assert_misused(init(run, collector, *options), words)
    assert not Path("my.device").exists()


def test_nobody_to_trust(collector: Collector, run: Run) -> None:
    result = run("device", "init", "my.device", "--collector", collector.url, "--limit", "8")
    assert_fails(result, 3, "publisher's key, or the hash of its release")


def test_a_collector_that_is_gone(made: Collector, run: Run) -> None:
    run(*REPORT, "--vector", "mine.npy")
    made.scripts["PUT", "/"] = lambda handler: handler.problem(503, "unavailable")
    assert "503, 'this is unavailable'" in run("device", "send", "my.device", "--now").stdout
    made.scripts["GET", "/"] = lambda handler: handler.connection.close()
    assert_fails(run("device", "rounds", "my.device"), 3, "collector could not be asked")
