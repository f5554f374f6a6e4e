from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

import offaxis
from offaxis import mechanisms
from offaxis.cli.fit import fit
from offaxis.geometry import Layers
from tests.cli.conftest import DIM, Run, assert_fails, assert_misused

BASICS = ("--model", "head.safetensors", "--public", "public.npy", "--out", "my.release")


def test_fit_writes_the_release_the_library_would(desk: Path, run: Run, small_head: Layers) -> None:
    result = run("fit", *BASICS, "--epsilon", "1/3", "--statement", "from a test")
    assert result.exit_code == 0, result.output
    expected = offaxis.fit(
        small_head, np.load("public.npy"), epsilon=Fraction(1, 3), statement="from a test"
    )
    assert offaxis.load("my.release") == expected
    assert expected.hash in result.stdout
    assert "ε = 1/3, pure, per item" in result.stdout


def test_every_option_reaches_the_release(desk: Path, run: Run) -> None:
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


def test_the_optimal_reshaping_and_its_rank_reach_the_release(desk: Path, run: Run) -> None:
    options = ("--epsilon", "2", "--mechanism", "privunit2", "--reshaping", "optimal")
    result = run("fit", *BASICS, *options, "--rank", "1")
    assert result.exit_code == 0, result.output
    release = offaxis.load("my.release")
    assert release.encoder.output_dim == 1
    assert release.provenance.settings["rank"] == 1.0
    assert run("fit", *BASICS[2:], *options).exit_code == 2  # it needs the model


def test_a_plain_release_needs_no_model(desk: Path, run: Run) -> None:
    result = run("fit", *BASICS[2:], "--epsilon", "2", "--reshaping", "none")
    assert result.exit_code == 0, result.output
    assert offaxis.load("my.release").provenance.model is None


def test_the_help_names_every_mechanism() -> None:
    told = get_type_hints(fit, include_extras=True)["mechanism"].__metadata__[0].help
    assert set(mechanisms.NAMES) <= set(re.split(r"[ ,:;.]+", told))


def test_a_release_that_is_there_is_not_replaced_unless_forced(desk: Path, run: Run) -> None:
    assert run("fit", *BASICS, "--epsilon", "2").exit_code == 0
    old = Path("my.release").read_bytes()
    refused = run("fit", *BASICS, "--epsilon", "3")
    assert_fails(refused, 3, "my.release is already there", "no longer be read", "--force")
    assert Path("my.release").read_bytes() == old
    assert run("fit", *BASICS, "--epsilon", "3", "--force").exit_code == 0
    assert offaxis.load("my.release").guarantee.epsilon == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "-1"), "epsilon must be positive"),
        (("--epsilon", "nan"), "epsilon must be a finite number"),
        (("--epsilon", "two"), "must be a finite number such as 0.1 or '1/3', got epsilon='two'"),
        (("--epsilon", "1", "--delta", "1e-5"), "it takes no delta"),
        (("--epsilon", "1", "--mechanism", "gaussian"), "needs delta"),
        (("--epsilon", "1", "--mechanism", "gaussian", "--delta", "2"), "delta must lie"),
        (("--epsilon", "1", "--mechanism", "laplas"), "'laplas'; did you mean 'laplace'?"),
        (("--epsilon", "1", "--mechanism", "noise"), "'noise'; choose one of laplace, gaussian"),
        (("--epsilon", "1", "--rank", "2"), "--rank goes with --reshaping optimal"),
        (
            ("--epsilon", "1", "--reshaping", "none", "--lambda-max", "9"),
            "--lambda-max goes with --reshaping jacobian, got --reshaping none",
        ),
        (
            ("--epsilon", "1", "--mechanism", "class-response", "--percentile", "50"),
            "a percentile changes nothing for 'class-response'",
        ),
        (("--epsilon", "1", "--size", "3"), "'laplace' takes no size"),
        (("--epsilon", "1", "--lambda-max", "0.5"), "--lambda-max"),
        (("--epsilon", "1", "--percentile", "0.9"), "--percentile"),
    ],
)
def test_what_the_command_line_alone_shows_to_be_wrong_is_wrong_usage(
    desk: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    assert_misused(run("fit", *BASICS, *options), message)
    # Told before a file is looked for.
    assert_misused(run("fit", *BASICS, *options, "--public", "missing.npy"), message)
    assert not Path("my.release").exists()


def test_a_model_that_is_missing_is_named_as_an_option_that_is(desk: Path, run: Run) -> None:
    told = run("fit", *BASICS[2:], "--epsilon", "1")
    assert_misused(told, "Missing option '--model': the noise is shaped to it")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "1", "--public", "missing.npy"), "there is no file missing.npy"),
        (("--epsilon", "1", "--public", "labels.npy"), "must be an array (n, m)"),
        (("--epsilon", "1", "--public", "few.npy"), "at least 10 public vectors"),
        (("--epsilon", "1", "--public", "hole.npy"), "must be finite"),
        (("--epsilon", "1", "--public", "wide.npy"), "dimension"),
        (("--epsilon", "1", "--model", "missing.safetensors"), "there is no file"),
        (("--epsilon", "1", "--out", "nowhere/my.release"), "there is no folder nowhere"),
        (("--epsilon", "1", "--out", "public.npy"), "is an input of this command"),
        (("--epsilon", "1", "--out", "head.safetensors"), "is an input of this command"),
    ],
)
def test_bad_input_exits_with_3_and_writes_nothing(
    desk: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    vectors = np.load("public.npy")
    np.save("few.npy", vectors[:9])
    np.save("wide.npy", np.ones((20, DIM + 1)))
    vectors[17, 2] = np.nan
    np.save("hole.npy", vectors)
    before = {path: path.read_bytes() for path in desk.iterdir()}
    assert_fails(run("fit", *BASICS, *options), 3, message)
    assert {path: path.read_bytes() for path in desk.iterdir()} == before


def test_units_that_no_public_vector_turns_on_are_told(desk: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    weights, biases = [rng.standard_normal((4, 5)), rng.standard_normal((2, 4))], [np.zeros(4)] * 2
    np.save("some.npy", rng.standard_normal((50, 5)))
    for name, level in (("heard", 0.0), ("deaf", -100.0)):
        bias = np.array([level, 0.0, 0.0, 0.0])
        Layers(weights, [bias, biases[1][:2]]).save(f"{name}.safetensors")
        told = run(
            *("fit", "--model", f"{name}.safetensors", "--public", "some.npy"),
            *("--epsilon", "1", "--out", f"{name}.release"),
        )
        assert ("1 of the model's 4 first-layer units" in told.stderr) == (name == "deaf")
