"""The fixture ``audit`` of the pytest plugin: sound functions pass, others fail with evidence."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import math
import numpy as np
from offaxis.randomizers.base import Ball

rng = np.random.default_rng()

def response(x, epsilon=1.0):
    return x if rng.random() < 1 / (1 + math.exp(-epsilon)) else 1 - x

def test_sound(audit):
    result = audit(response, epsilon=1, domain=[0, 1], reports=4000)
    assert result.false_alarm == 1e-6

def test_broken(audit):
    audit(response, epsilon=0.3, domain=[0, 1], reports=8000)

def test_vector(audit):
    def noisy(x):
        return np.round(x + rng.laplace(scale=0.5, size=x.shape), 6)
    audit(noisy, epsilon=1, domain=Ball(3, 1, 2), reports=8000)

def test_time(audit):
    result = audit(response, epsilon=1, domain=[0, 1])
    assert result.seconds < 60

def test_large_epsilon(audit):
    audit(response, epsilon=9, domain=[0, 1], reports=400)
"""


@pytest.fixture
def plugin() -> tuple[str, ...]:
    # The entry point loads the plugin if this checkout is installed since it was added.
    return ("-p", "no:offaxis", "-p", "offaxis.integrations.pytest", "-p", "no:cacheprovider")


def test_the_fixture_passes_and_fails_tests(pytester: pytest.Pytester, plugin) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\naudit_seconds = 2\n")
    result = pytester.runpytest_subprocess(*plugin)
    result.assert_outcomes(passed=3, failed=2, warnings=1)
    text = " ".join(result.stdout.str().split())
    assert "AssertionError: Violation found at ε = 0.3 by: main-" in text
    assert "x = 0, x′ = 1: " in text
    assert "for one input and" in text
    assert "this run could not have contradicted ε = 9" in text
    # The traceback ends at the line of the test.
    assert "src/offaxis" not in text


def test_the_entry_point_names_the_plugin() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"offaxis": "offaxis.integrations.pytest"}


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    """Pytest loads it in every run, also of projects that do not use it."""
    code = (
        "import sys, pytest; before = set(sys.modules); import offaxis.integrations.pytest; "
        "print(*sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"numpy", "scipy", "pydantic", "typer", "cryptography"} & loaded
    assert "offaxis.auditing" not in done.stdout
