"""One small run of the real demo, shared by the tests of its page and of its command."""

from __future__ import annotations

import pytest

from experiments.demo import run as demo
from experiments.demo.result import DemoResult

Calls = list[tuple[str, int, int]]
_cached: list[tuple[DemoResult, Calls]] = []


def small_demo(folders: pytest.TempPathFactory) -> tuple[DemoResult, Calls]:
    """Return the result at two budgets and the calls of progress; run once per process."""
    if _cached:
        return _cached[0]
    calls: Calls = []
    with pytest.MonkeyPatch.context() as patch:
        # Real reports of a small budget are quick, whatever the randomizer.
        patch.setattr(demo, "HEADLINE_EPSILON", 1.0)
        patch.setattr(demo, "RECOMMENDED", (7.5,))
        result = demo.run_demo(
            folders.mktemp("demo"),
            seeds=2,
            epsilons=(1.0, 7.5),
            progress=lambda *call: calls.append(call),
        )
    _cached.append((result, calls))
    return _cached[0]
