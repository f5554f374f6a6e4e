"""``offaxis fit``: options reach the release, and invalid ones are rejected early."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import offaxis
from offaxis import mechanisms
from offaxis.cli.fit import fit
from offaxis.geometry import Layers
from offaxis.learning import (
    Classes,
    Number,
    fit_answers,
    fit_pairs,
    fit_second_moments,
    principal,
)
from tests.cli.conftest import DIM, Run, assert_fails, assert_usage_error

BASICS = ("--model", "head.safetensors", "--public", "public.npy", "--out", "my.release")


def test_fit_writes_the_release_of_the_library(
    workspace: Path, run: Run, small_head: Layers
) -> None:
    vector = ("--mechanism", "laplace")
    result = run("fit", *BASICS, *vector, "--epsilon", "1/3", "--statement", "from a test")
    assert result.exit_code == 0, result.output
    expected = offaxis.fit(
        small_head,
        np.load("public.npy"),
        epsilon=Fraction(1, 3),
        statement="from a test",
        mechanism="laplace",
    )
    assert offaxis.load("my.release") == expected
    assert expected.hash in result.stdout
    assert "ε = 1/3, pure, per item" in result.stdout


def test_every_option_reaches_the_release(workspace: Path, run: Run) -> None:
    result = run(
        *("fit", *BASICS, "--epsilon", "0.1", "--mechanism", "gaussian", "--delta", "1e-6"),
        *("--unit", "user", "--percentile", "50", "--lambda-max", "20", "--order", "1.5"),
        *("--allocation", "gap", "--json"),
    )
    facts = json.loads(result.stdout)
    release = offaxis.load("my.release")
    assert facts["release"] == release.hash
    assert facts["out"] == "my.release"
    assert facts["guarantee"]["epsilon"] == "0.1"
    assert facts["guarantee"]["delta"] == "1e-06"
    assert facts["guarantee"]["unit"] == "user"
    assert facts["report_bytes"] == release.report_size
    assert facts["provenance"]["settings"] == {
        "mechanism": "gaussian",
        "reshaping": "jacobian",
        "percentile": 50.0,
        "lambda_max": 20.0,
        "order": 1.5,
        "allocation": "gap",
    }


def test_the_optimal_reshaping_and_its_rank_reach_the_release(workspace: Path, run: Run) -> None:
    options = ("--epsilon", "2", "--mechanism", "privunit2", "--reshaping", "optimal")
    result = run("fit", *BASICS, *options, "--rank", "1")
    assert result.exit_code == 0, result.output
    release = offaxis.load("my.release")
    assert release.encoder.output_dim == 1
    assert release.provenance.settings["rank"] == 1.0
    assert run("fit", *BASICS[2:], *options).exit_code == 2  # it needs the model


def test_a_plain_release_needs_no_model(workspace: Path, run: Run) -> None:
    result = run(
        "fit", *BASICS[2:], "--epsilon", "2", "--reshaping", "none", "--mechanism", "laplace"
    )
    assert result.exit_code == 0, result.output
    assert offaxis.load("my.release").provenance.model is None


def test_the_help_names_every_mechanism() -> None:
    text = get_type_hints(fit, include_extras=True)["mechanism"].__metadata__[0].help
    assert set(mechanisms.NAMES) <= set(re.split(r"[ ,:;.]+", text))


def test_an_existing_release_is_replaced_only_with_force(workspace: Path, run: Run) -> None:
    assert run("fit", *BASICS, "--epsilon", "2").exit_code == 0
    old = Path("my.release").read_bytes()
    result = run("fit", *BASICS, "--epsilon", "3")
    assert_fails(result, 3, "my.release already exists", "no longer be read", "--force")
    assert Path("my.release").read_bytes() == old
    assert run("fit", *BASICS, "--epsilon", "3", "--force").exit_code == 0
    assert offaxis.load("my.release").guarantee.epsilon == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "-1"), "epsilon must be positive"),
        (("--epsilon", "nan"), "epsilon must be a finite number"),
        (("--epsilon", "two"), "must be a finite number such as 0.1 or '1/3', got epsilon='two'"),
        (("--epsilon", "1", "--mechanism", "laplace", "--delta", "1e-5"), "it takes no delta"),
        (("--epsilon", "1", "--delta", "1e-5"), "--delta is a setting of a mechanism"),
        (("--epsilon", "1", "--goal", "means", "--mechanism", "laplace"), "either --goal or"),
        (("--epsilon", "1", "--mechanism", "gaussian"), "needs delta"),
        (("--epsilon", "1", "--mechanism", "gaussian", "--delta", "2"), "delta must be strictly"),
        (("--epsilon", "1", "--mechanism", "laplas"), "'laplas'; did you mean 'laplace'?"),
        (("--epsilon", "1", "--mechanism", "noise"), "'noise'; choose one of laplace, gaussian"),
        (("--epsilon", "1", "--rank", "2"), "--rank requires --reshaping optimal"),
        (
            ("--epsilon", "1", "--reshaping", "none", "--lambda-max", "9"),
            "--lambda-max requires --reshaping jacobian, got --reshaping none",
        ),
        (
            ("--epsilon", "1", "--mechanism", "class-response", "--percentile", "50"),
            "a percentile changes nothing for 'class-response'",
        ),
        (("--epsilon", "1", "--mechanism", "laplace", "--size", "3"), "'laplace' takes no size"),
        (("--epsilon", "1", "--lambda-max", "0.5"), "--lambda-max"),
        (("--epsilon", "1", "--percentile", "0.9"), "--percentile"),
    ],
)
def test_invalid_options_are_usage_errors(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run("fit", *BASICS, *options), message)
    # Usage errors are reported before files are opened.
    assert_usage_error(run("fit", *BASICS, *options, "--public", "missing.npy"), message)
    assert not Path("my.release").exists()


def test_a_missing_model_is_reported_as_a_missing_option(workspace: Path, run: Run) -> None:
    result = run("fit", *BASICS[2:], "--epsilon", "1")
    assert_usage_error(result, "Missing option '--model': reports are fitted to it")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "1", "--public", "missing.npy"), "file not found: missing.npy"),
        (("--epsilon", "1", "--public", "labels.npy"), "must be an array (n, m)"),
        (("--epsilon", "1", "--public", "few.npy"), "at least 10 public vectors"),
        (("--epsilon", "1", "--public", "hole.npy"), "must be finite"),
        (("--epsilon", "1", "--public", "wide.npy"), "dimension"),
        (("--epsilon", "1", "--model", "missing.safetensors"), "file not found"),
        (("--epsilon", "1", "--out", "nowhere/my.release"), "folder nowhere not found"),
        (("--epsilon", "1", "--out", "public.npy"), "is an input of this command"),
        (("--epsilon", "1", "--out", "head.safetensors"), "is an input of this command"),
    ],
)
def test_invalid_input_exits_with_3_and_writes_nothing(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    vectors = np.load("public.npy")
    np.save("few.npy", vectors[:9])
    np.save("wide.npy", np.ones((20, DIM + 1)))
    vectors[17, 2] = np.nan
    np.save("hole.npy", vectors)
    before = {path: path.read_bytes() for path in workspace.iterdir()}
    assert_fails(run("fit", *BASICS, *options), 3, message)
    assert {path: path.read_bytes() for path in workspace.iterdir()} == before


def test_units_that_are_silent_on_all_public_vectors_are_reported(
    workspace: Path, run: Run
) -> None:
    rng = np.random.default_rng(0)
    weights, biases = [rng.standard_normal((4, 5)), rng.standard_normal((2, 4))], [np.zeros(4)] * 2
    np.save("some.npy", rng.standard_normal((50, 5)))
    for name, level in (("active", 0.0), ("silent", -100.0)):
        bias = np.array([level, 0.0, 0.0, 0.0])
        Layers(weights, [bias, biases[1][:2]]).save(f"{name}.safetensors")
        result = run(
            *("fit", "--model", f"{name}.safetensors", "--public", "some.npy"),
            *("--epsilon", "1", "--mechanism", "laplace", "--out", f"{name}.release"),
        )
        assert ("1 of the model's 4 first-layer units" in result.stderr) == (name == "silent")


# ---- Releases of private answers alone, and of second moments


def test_answers_alone_need_no_public_vectors(workspace: Path, run: Run) -> None:
    fit = ("fit", "--epsilon", "1", "--out", "my.release", "--unit", "user", "--statement", "a")
    result = run(*fit, "--answers", "no,yes")
    assert result.exit_code == 0, result.output
    expected = fit_answers(["no", "yes"], epsilon=1, unit="user", statement="a")
    assert offaxis.load("my.release") == expected
    assert "asked      answer: one of no, yes" in result.stdout
    assert "mechanism  answers, by response" in result.stdout
    # One standard error of 10,000 people: 1 / (2 tanh(1/2) · 100).
    assert "a share of 10,000 people has a standard error of 1.1 % at most" in result.stdout
    assert_fails(run(*fit, "--answers", "3"), 3, "my.release already exists")
    ages = ("--number", "0", "100", "--bins", "20", "--mechanism", "hashing", "--force", "--json")
    facts = json.loads(run(*fit, *ages).stdout)
    expected = fit_answers(
        Number(0, 100, bins=20), epsilon=1, unit="user", statement="a", mechanism="hashing"
    )
    assert offaxis.load("my.release") == expected
    assert facts["asked"][0]["bins"] == 20


def test_several_answers_are_described_in_a_file(workspace: Path, run: Run) -> None:
    asked: list[dict[str, Any]] = [
        {"name": "smoker", "names": ["no", "yes"], "optional": True},
        {"name": "age", "low": 0, "high": 100, "bins": 10},
    ]
    Path("asked.json").write_text(json.dumps(asked))
    fit = ("fit", "--epsilon", "2", "--answers", "asked.json", "--out")
    facts = json.loads(run(*fit, "my.release", "--json").stdout)
    parts = [Classes(["no", "yes"], name="smoker", optional=True)]
    expected = fit_answers([*parts, Number(0, 100, name="age", bins=10)], epsilon=2)
    assert offaxis.load("my.release") == expected
    # The form that inspect --json shows is read again.
    Path("asked.json").write_text(json.dumps(facts["asked"]))
    assert run(*fit, "again.release").exit_code == 0
    assert offaxis.load("again.release") == expected
    assert_fails(run(*fit, "asked.json", "--force"), 3, "is an input of this command")
    del asked[1]["bins"]
    Path("asked.json").write_text(json.dumps(asked))
    assert_fails(run(*fit, "x.release"), 3, "a number without bins")
    Path("asked.json").write_text(json.dumps([{**asked[0], "bins": 3}]))
    assert_fails(run(*fit, "x.release"), 3, "asked.json must hold")
    assert not Path("x.release").exists()


def test_the_goal_of_a_covariance_fits_second_moments(workspace: Path, run: Run) -> None:
    fit = ("fit", "--public", "public.npy", "--goal", "covariance", "--epsilon", "2")
    result = run(*fit, "--rank", "3", "--percentile", "95", "--out", "my.release")
    assert result.exit_code == 0, result.output
    expected = fit_second_moments(np.load("public.npy"), 3, epsilon=2, percentile=95)
    assert offaxis.load("my.release") == expected
    assert "measures   3 directions" in result.stdout
    assert "of the public variance in them" in result.stdout
    facts = json.loads(run(*fit, "--out", "all.release", "--json").stdout)
    assert facts["provenance"]["settings"]["rank"] == DIM
    assert_fails(run(*fit, "--rank", "9", "--out", "x.release"), 3, "fewer than rank=9")
    assert_fails(run(*fit, "--out", "public.npy"), 3, "is an input of this command")


def test_the_goal_of_later_questions_fits_to_none(workspace: Path, run: Run) -> None:
    fit = ("fit", "--goal", "questions", "--epsilon", "1", "--public")
    result = run(*fit, "public.npy", "--rank", "3", "--unit", "user", "--out", "my.release")
    assert result.exit_code == 0, result.output
    public = np.load("public.npy")
    expected = fit_pairs(principal(public, rank=3), None, epsilon=1, unit="user")
    assert offaxis.load("my.release").hash == expected.hash
    assert "shows      the direction of 3 principal coordinates" in result.stdout
    # Nine directions, as docs/ask-the-crowd.md advises, or all of the vectors.
    wide = np.random.default_rng(6).standard_normal((300, 12))
    np.save("wide.npy", wide)
    for name, vectors, rank in (("wide.npy", wide, 9), ("public.npy", public, DIM)):
        facts = json.loads(run(*fit, name, "--out", f"{rank}.release", "--json").stdout)
        assert facts["release"] == fit_pairs(principal(vectors, rank=rank), None, epsilon=1).hash
        assert facts["provenance"]["settings"]["rank"] == rank
    assert_fails(run(*fit, "public.npy", "--rank", "9", "--out", "x.release"), 3, "a smaller rank")
    assert_fails(run(*fit, "public.npy", "--out", "public.npy"), 3, "is an input of this command")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--public'"),
        (("--goal", "questions"), "Missing option '--public'"),
        (("--goal", "questions", *BASICS[:4]), "--model has no effect with --goal questions"),
        (
            ("--goal", "questions", *BASICS[2:4], "--percentile", "90"),
            "--percentile has no effect with --goal questions",
        ),
        (("--number", "0", "100"), "--number and --bins belong together"),
        (("--bins", "10"), "--number and --bins belong together"),
        (("--answers", "no,yes", "--bins", "10"), "--number and --bins belong together"),
        (("--number", "5", "5", "--bins", "10"), "a range low < high"),
        (("--answers", "no,yes", "--number", "0", "1", "--bins", "2"), "use one of them"),
        (("--answers", "no,yes", "--public", "public.npy"), "--public has no effect with"),
        (("--answers", "no,yes", "--goal", "means"), "--goal has no effect with"),
        (("--answers", "no,yes", "--delta", "1e-5"), "--delta has no effect with"),
        (("--answers", "no,yes", "--mechanism", "laplace"), "there is no mechanism 'laplace'"),
        (("--answers", "one"), "two or more"),
        (("--goal", "covariance"), "Missing option '--public'"),
        (("--goal", "covariance", *BASICS[:4]), "--model has no effect with --goal covariance"),
        (
            ("--goal", "covariance", *BASICS[2:4], "--reshaping", "none"),
            "--reshaping has no effect with --goal covariance",
        ),
    ],
)
def test_options_that_do_not_apply_to_these_releases_are_usage_errors(
    workspace: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run("fit", "--epsilon", "1", "--out", "x.release", *options), message)
    assert not Path("x.release").exists()
