"""``offaxis privatize``: real reports, written completely or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.cli import privatize as command
from offaxis.cli.inputs import write_array
from offaxis.formats.reports import read_reports
from offaxis.learning import Classes, Number, fit_answers
from offaxis.release import Release
from tests.cli.conftest import DIM, Run, assert_fails, assert_usage_error

COMMAND = ("privatize", "laplace.release", "--out", "my.reports", "--vectors")


def test_reports_decode_to_the_vectors_they_came_from(workspace: Path, run: Run) -> None:
    write_array(workspace / "same.npy", np.tile(np.load("private.npy")[:1], (20_000, 1)))
    result = run(*COMMAND, "same.npy")
    assert result.exit_code == 0, result.output
    release = offaxis.load("laplace.release")
    reports = list(read_reports("my.reports", release.report_size))
    assert len(reports) == 20_000
    assert len(set(reports)) == 20_000  # fresh randomness for every one
    expected = release.decoder.decode(
        release.randomizer.domain.project(release.encoder.encode(np.load("private.npy")[:1]))
    )[0]
    spread = release.decode(reports).std(axis=0) / np.sqrt(len(reports))
    # Five standard errors on five coordinates: a false alarm in 350,000 runs.
    assert (np.abs(release.decode_mean(reports) - expected) < 5 * spread + 1e-3).all()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_vectors_are_read_from_every_format(workspace: Path, run: Run, suffix: str) -> None:
    write_array(workspace / f"mine{suffix}", np.load("private.npy"))
    facts = json.loads(run(*COMMAND, f"mine{suffix}", "--json").stdout)
    size = offaxis.load("laplace.release").report_size
    assert facts["reports"] == 7
    assert facts["report_bytes"] == size
    assert facts["guarantee"]["epsilon"] == "5"
    assert Path("my.reports").stat().st_size == 7 * size


def test_one_vector_makes_one_report(workspace: Path, run: Run) -> None:
    np.save("one.npy", np.load("private.npy")[0])
    assert "wrote 1 report of" in run(*COMMAND, "one.npy").stdout


def test_reports_made_in_parts_are_written_to_one_file(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ROWS", 3)
    assert "wrote 7 reports" in run(*COMMAND, "private.npy").stdout
    release = offaxis.load("laplace.release")
    assert release.decode(read_reports("my.reports", release.report_size)).shape == (7, DIM)


@pytest.mark.parametrize("old", [None, b"old reports"])
@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.where(np.arange(35).reshape(7, 5) == 33, np.nan, 1.0), "must be finite"),
        (np.where(np.arange(35).reshape(7, 5) == 33, -np.inf, 1.0), "must be finite"),
        (np.ones((7, DIM + 1)), f"must have dimension {DIM}"),
        (np.ones(DIM + 1), f"must have dimension {DIM}"),
        (np.ones((0, DIM)), "must not be empty"),
        (np.ones((2, 2, DIM)), "one vector or a batch"),
        (np.ones((7, DIM), dtype=bool), "must hold real numbers"),
        (np.ones((7, DIM), dtype=complex), "must hold real numbers"),
    ],
)
def test_invalid_vectors_exit_with_3_and_write_nothing(
    workspace: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    vectors: np.ndarray,
    message: str,
    old: bytes | None,
) -> None:
    monkeypatch.setattr(command, "_ROWS", 2)  # the bad row comes after good ones
    np.save("bad.npy", vectors)
    if old is not None:
        Path("my.reports").write_bytes(old)
    before = sorted(workspace.iterdir())
    assert_fails(run(*COMMAND, "bad.npy", "--force"), 3, message)
    assert sorted(workspace.iterdir()) == before
    assert old is None or Path("my.reports").read_bytes() == old


def test_an_invalid_entry_is_named_by_its_position_in_the_file(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_ROWS", 2)
    np.save("bad.npy", np.where(np.arange(35).reshape(7, 5) == 33, np.nan, 1.0))
    assert_fails(run(*COMMAND, "bad.npy"), 3, "(6, 3)")


def test_existing_reports_are_replaced_only_with_force(workspace: Path, run: Run) -> None:
    assert run(*COMMAND, "private.npy").exit_code == 0
    first = Path("my.reports").read_bytes()
    assert_fails(run(*COMMAND, "private.npy"), 3, "spend the budget again", "--force")
    assert Path("my.reports").read_bytes() == first
    assert run(*COMMAND, "private.npy", "--force").exit_code == 0
    assert Path("my.reports").read_bytes() != first


def test_a_pinned_hash_is_enforced(workspace: Path, run: Run) -> None:
    expected = Release.load("laplace.release").hash
    assert run(*COMMAND, "private.npy", "--expect", expected).exit_code == 0
    assert_fails(run(*COMMAND, "private.npy", "--force", "--expect", "0" * 64), 3, "expected")


@pytest.mark.parametrize("name", ["gaussian", "privunit2"])
def test_every_mechanism_makes_reports(workspace: Path, run: Run, name: str) -> None:
    file = f"{name}.release"
    result = run("privatize", file, "--vectors", "private.npy", "--out", "my.reports", "--json")
    release = offaxis.load(file)
    assert json.loads(result.stdout)["reports"] == 7
    reports = list(read_reports("my.reports", release.report_size))
    assert release.decode(reports).shape == (7, DIM)


def test_a_seed_is_rejected_with_the_reason(workspace: Path, run: Run) -> None:
    result = run(*COMMAND, "private.npy", "--seed", "3")
    assert_usage_error(result, "takes no --seed", "fresh randomness", "offaxis evaluate --seed")
    assert not Path("my.reports").exists()
    assert "--seed" not in run("privatize", "--help").stdout


def test_an_interrupt_leaves_no_file(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Release.privatize
    calls = []

    def interrupted(self: Release, vectors: np.ndarray) -> list[bytes]:
        calls.append(len(vectors))
        if len(calls) == 3:
            raise KeyboardInterrupt
        reports: list[bytes] = real(self, vectors)
        return reports

    monkeypatch.setattr(command, "_ROWS", 2)
    monkeypatch.setattr(Release, "privatize", interrupted)
    before = sorted(workspace.iterdir())
    assert run(*COMMAND, "private.npy").exit_code == 130
    assert sorted(workspace.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.release", "--vectors", "private.npy", "--out", "x"), "no release file"),
        (("private.npy", "--vectors", "private.npy", "--out", "x"), "release"),
        (("laplace.release", "--vectors", "missing.npy", "--out", "x"), "file not found"),
        (("laplace.release", "--vectors", "private.npy", "--out", "."), "it is a folder"),
        (("laplace.release", "--vectors", "private.npy", "--out", "private.npy"), "is an input"),
        (
            ("laplace.release", "--vectors", "private.npy", "--out", "laplace.release"),
            "is an input",
        ),
    ],
)
def test_invalid_paths_are_rejected(
    workspace: Path, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    before = {path: path.read_bytes() for path in workspace.iterdir()}
    assert_fails(run("privatize", *arguments), 3, message)
    assert {path: path.read_bytes() for path in workspace.iterdir()} == before


def test_answers_alone_are_privatized_without_vectors(workspace: Path, run: Run) -> None:
    fit_answers([Classes(2, "smokes"), Classes(3, "drinks")], epsilon=2).save("two.release")
    fit_answers(["no", "yes"], epsilon=2).save("one.release")
    Path("two.csv").write_text("smokes,drinks\n0,2\n1,1\n")
    Path("one.csv").write_text("no\nyes\nno\n")
    text = run("privatize", "one.release", "--answers", "one.csv", "--out", "one.reports").stdout
    assert "wrote 3 reports of 13 bytes to one.reports" in text
    assert "each promises ε = 2, pure; a second run on the same answers would" in text
    text = run("privatize", "two.release", "--answers", "two.csv", "--out", "two.reports").stdout
    assert "ε = 2, pure, for all answers together; a second run" in text
    both = ("--vectors", "private.npy", "--answers", "one.csv", "--out", "x.reports")
    for options in (both, both[:2] + both[4:]):
        result = run("privatize", "one.release", *options)
        assert_usage_error(result, "asks for answers alone: pass --answers, not --vectors")
    assert not Path("x.reports").exists()
    assert "asked answer: one of no, yes" in " ".join(run("inspect", "one.release").stdout.split())


def test_a_header_with_another_name_is_pointed_out(workspace: Path, run: Run) -> None:
    fit_answers(Number(0, 100, bins=10), epsilon=2).save("ages.release")
    command = ("privatize", "ages.release", "--out", "ages.reports", "--answers")
    hint = "; if it is a header, it must be 'answer' or left out"
    Path("mine.csv").write_text("age\n31\n")
    assert_fails(
        run(*command, "mine.csv"), 3, f"entry 0 of 'answer' in mine.csv is not a number{hint}"
    )
    # No other entry is a header, nor are those of files that have none or a right one.
    for name, text in (
        ("late.csv", "31\nage\n"),
        ("mine.txt", "age\n31\n"),
        ("named.csv", "answer\nage\n"),
    ):
        Path(name).write_text(text)
        result = run(*command, name)
        assert_fails(result, 3, f"in {name} is not a number")
        assert "header" not in result.stderr
    for text in ("31\n", "answer\n31\n"):
        Path("mine.csv").write_text(text)
        assert "wrote 1 report " in run(*command, "mine.csv", "--force").stdout
