"""Shared fixtures of the demo's tests."""

from __future__ import annotations

import pytest

from experiments.demo.result import DemoResult
from tests.experiments.demo.small_demo import Calls, small_demo


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResult, Calls]:
    return small_demo(tmp_path_factory)


@pytest.fixture(scope="session")
def result(demo_run: tuple[DemoResult, Calls]) -> DemoResult:
    return demo_run[0]
