"""The command of the benchmarks."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from benchmarks.run import app
from tests.cli.conftest import Run


@pytest.fixture
def run() -> Run:
    """Return a function that runs ``python -m benchmarks`` with arguments."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])
