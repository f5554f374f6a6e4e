"""``offaxis device``: set up, answer, send and show, with a collector on a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from tests.cli.conftest import Run, assert_fails, assert_usage_error
from tests.client.collectors import PUBLISHER, Collector


@pytest.fixture
def collector(workspace: Path) -> Iterator[Collector]:
    """A collector with one round of the release with ε = 5."""
    running = Collector()
    running.offer(offaxis.load("laplace.release"))
    yield running
    running.close()


def init(run: Run, collector: Collector, *options: str) -> Any:
    address = ("--collector", collector.url, "--publisher", PUBLISHER)
    return run("device", "init", "my.device", *address, *options)


@pytest.fixture
def initialized(run: Run, collector: Collector) -> Collector:
    assert init(run, collector, "--limit", "8").exit_code == 0
    np.save("mine.npy", np.load("private.npy")[0])
    return collector


REPORT = ("device", "report", "my.device", "energy-1")


def test_a_device_is_set_up_answers_and_sends(initialized: Collector, run: Run) -> None:
    initialized.offer(offaxis.load("laplace.release"), groups=("north", "south"))
    assert "energy-1" in run("device", "rounds", "my.device").stdout
    result = run(*REPORT, "--vector", "mine.npy", "--group", "north")
    assert result.exit_code == 0, result.output
    assert "energy-1 is answered and queued; spent so far: ε = 5" in result.stdout
    assert initialized.uploads() == []
    assert "tried 0 reports, 1 waiting" in run("device", "send", "my.device").stdout
    sent = run("device", "send", "my.device", "--now")
    assert "tried 1 report, 0 waiting" in sent.stdout
    assert len(initialized.uploads()) == 1
    status = run("device", "status", "my.device").stdout
    assert "limit ε = 8 in all: ε = 3 left" in status
    assert "energy-1" in status
    assert "yes" in run("device", "rounds", "my.device").stdout


def test_every_command_prints_json(initialized: Collector, run: Run) -> None:
    rounds = json.loads(run("device", "rounds", "my.device", "--json").stdout)["rounds"]
    assert rounds[0]["round"] == "energy-1"
    assert rounds[0]["answered"] is False
    entry = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    assert entry["state"] == "queued"
    sent = json.loads(run("device", "send", "my.device", "--now", "--json").stdout)["answers"]
    assert [(answer["id"], answer["state"]) for answer in sent] == [(entry["id"], "sent")]
    back = json.loads(run("device", "withdraw", "my.device", "energy-1", "--json").stdout)
    assert back["answers"][0]["state"] == "withdrawing"
    status = json.loads(run("device", "status", "my.device", "--json").stdout)
    assert status["limits"][0]["left_epsilon"] == "3"
    assert "report" not in status["answers"][0]


def test_a_round_is_answered_once(initialized: Collector, run: Run) -> None:
    first = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    np.save("mine.npy", np.zeros(5))
    again = json.loads(run(*REPORT, "--vector", "mine.npy", "--json").stdout)
    assert again == first
    assert "ε = 5" in run(*REPORT, "--public-mean").stdout


@pytest.mark.parametrize("content", [np.full(5, np.nan), np.zeros(4), np.zeros((3, 5))])
def test_a_file_without_a_usable_vector_is_answered_like_any_other(
    initialized: Collector, run: Run, content: np.ndarray
) -> None:
    np.save("mine.npy", content)
    result = run(*REPORT, "--vector", "mine.npy")
    assert result.stdout == "round energy-1 is answered and queued; spent so far: ε = 5\n"
    assert result.stderr == ""


def test_a_damaged_file_is_answered_too(initialized: Collector, run: Run) -> None:
    Path("mine.npy").write_bytes(b"\x93NUMPY garbage")
    assert run(*REPORT, "--vector", "mine.npy").exit_code == 0
    initialized.offer(offaxis.load("privunit2.release"), name="energy-2", number=2)
    assert_fails(
        run(*REPORT[:3], "energy-2", "--public-mean"), 3, "would exceed the limit of ε = 8"
    )


def test_a_mistyped_command_reports_nothing(initialized: Collector, run: Run) -> None:
    assert_fails(run(*REPORT, "--vector", "missing.npy"), 3, "file not found: missing.npy")
    assert_usage_error(run(*REPORT), "FILE or both, or --public-mean")
    both = run(*REPORT, "--vector", "mine.npy", "--public-mean")
    assert_usage_error(both, "FILE or both, or --public-mean")
    assert_fails(run("device", "status", "your.device"), 3, "device not found: your.device")
    assert_fails(run(*REPORT[:3], "../x", "--public-mean"), 3, "is not a valid name of a round")
    assert json.loads(run("device", "status", "my.device", "--json").stdout)["answers"] == []


def test_limits_apply_to_one_report_and_to_a_period(collector: Collector, run: Run) -> None:
    result = init(run, collector, "--limit", "20", "--limit", "6 per 30d", "--epsilon", "9/2")
    assert "limit: ε = 20 in all\nlimit: ε = 6 in any 30 days\n" in result.stdout
    assert "one report or sequence: up to ε = 4.5, pure, at least per item" in result.stdout
    assert_fails(run(*REPORT, "--public-mean"), 3, "would have ε = 5", "up to ε = 4.5")
    assert_fails(init(run, collector, "--limit", "100"), 3, "already")


def test_a_token_is_read_from_a_file_and_never_shown(collector: Collector, run: Run) -> None:
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
def test_an_invalid_address_or_certificate_is_rejected(
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
def test_invalid_limits_and_keys_are_usage_errors(
    collector: Collector, run: Run, options: tuple[str, ...], words: str
) -> None:
    assert_usage_error(init(run, collector, *options), words)
    assert not Path("my.device").exists()


def test_a_device_needs_a_key_or_a_hash(collector: Collector, run: Run) -> None:
    result = run("device", "init", "my.device", "--collector", collector.url, "--limit", "8")
    assert_fails(result, 3, "publisher's key or the hash of its release")


def test_an_unreachable_collector_is_reported(initialized: Collector, run: Run) -> None:
    run(*REPORT, "--vector", "mine.npy")
    initialized.scripts["PUT", "/"] = lambda handler: handler.problem(503, "unavailable")
    assert "503, 'this is unavailable'" in run("device", "send", "my.device", "--now").stdout
    initialized.scripts["GET", "/"] = lambda handler: handler.connection.close()
    assert_fails(run("device", "rounds", "my.device"), 3, "request to the collector failed")
