"""``offaxis audit --python``: a function of the user, its domain, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checks import ALPHA
from tests.cli.conftest import Run, assert_fails, assert_usage_error

MODULE = """
import math
import numpy as np

rng = np.random.default_rng()
NUMBER = 3

def noisy(X):
    return np.round(X + rng.laplace(scale=2, size=X.shape), 6)

def label(x):
    return "yes" if x == "a" else "no"

def clipped(x):
    return round(min(max(x, 0.0), 1.0) + rng.laplace(), 6)
"""

QUICK = ("--reports", "4000", "--false-alarm", str(ALPHA))


@pytest.fixture
def function(workspace: Path, request: pytest.FixtureRequest) -> str:
    """Return a module of its own name: an imported module would be found again."""
    name = f"mechanisms_{abs(hash(request.node.nodeid))}"
    (workspace / f"{name}.py").write_text(MODULE)
    return name


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_sound_function_exits_with_0(function: str, run: Run) -> None:
    vectors = ("--dim", "3", "--radius", "1", "--norm", "1", "--batched")
    result = run("audit", "--python", f"{function}:noisy", "--epsilon", "1", *vectors, *QUICK)
    assert result.exit_code == 0, result.output
    text = words(result.stdout)
    assert "ε = 1, noisy on Ball(dim=3, radius=1.0, order=1) NO VIOLATION FOUND" in text
    assert "On a function that keeps its guarantee" in text
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_without_a_radius_every_vector_is_an_input(function: str, run: Run) -> None:
    options = ("--epsilon", "1", "--dim", "3", "--batched", *QUICK)
    result = run("audit", "--python", f"{function}:noisy", *options)
    assert result.exit_code == 1
    assert "VIOLATION FOUND" in result.stdout


def test_labels_numbers_json_and_page(function: str, run: Run) -> None:
    options = ("--epsilon", "2", "--delta", "1e-6", *QUICK, "--json", "--html", "audit.html")
    result = run("audit", "--python", f"{function}:label", "--labels", "a, b,c", *options)
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert facts["target"] == "label"
    assert facts["promise"] == "ε = 2, δ = 1e-06"
    assert facts["domain"] == "3 values"
    page = Path("audit.html").read_text(encoding="utf-8")
    assert facts["summary"] in page
    assert "<code>label</code>" in page
    numbers = ("--low", "0", "--high", "1", "--epsilon", "1", *QUICK)
    assert run("audit", "--python", f"{function}:clipped", *numbers).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one of the two"),
        (("laplace.release", "--python", "a:b"), "exactly one of the two"),
        (("laplace.release", "--epsilon", "1"), "--epsilon is for --python"),
        (("laplace.release", "--batched"), "--batched is for --python"),
        (("--python", "a:b", "--dim", "3"), "--python needs --epsilon"),
        (("--python", "a:b", "--epsilon", "1"), "needs the inputs of the function"),
        (("--python", "a:b", "--epsilon", "1", "--low", "1"), "belong together"),
        (
            ("--python", "a:b", "--epsilon", "1", "--dim", "3", "--labels", "a,b"),
            "needs the inputs of the function",
        ),
        (("--python", "a:b", "--epsilon", "1", "--labels", "a,b", "--radius", "1"), "needs --dim"),
        (("--python", "a:b", "--epsilon", "1", "--dim", "3", "--norm", "1"), "needs --radius"),
        (
            ("--python", "a:b", "--epsilon", "1", "--dim", "3", "--radius", "1", "--norm", "3"),
            "must be 1, 2 or inf",
        ),
        (("--python", "a:b", "--epsilon", "1", "--dim", "0"), "dim must be"),
        (("--python", "a:b", "--epsilon", "1", "--dim", "3", "--expect", "00"), "for a release"),
    ],
)
def test_wrong_usage_exits_with_2(
    workspace: Path, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run("audit", *arguments), message)


def test_what_is_no_function_exits_with_3(function: str, run: Run) -> None:
    options = ("--epsilon", "1", "--labels", "a,b")
    assert_fails(run("audit", "--python", "no_module:f", *options), 3, "cannot import no_module")
    assert_fails(run("audit", "--python", f"{function}:f", *options), 3, "has no attribute 'f'")
    assert_fails(run("audit", "--python", "noisy", *options), 3, "package.module:function")
    assert_fails(run("audit", "--python", f"{function}:NUMBER", *options), 3, "not a function")


def test_the_help_says_that_code_is_run(run: Run) -> None:
    text = words(run("audit", "--help").stdout)
    assert "this runs its code" in text
