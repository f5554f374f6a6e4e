"""One small run of the real demo, for all tests of its page and of its command."""

from __future__ import annotations

import pytest

from experiments.demo import run as demo
from experiments.demo.result import DemoResult

Calls = list[tuple[str, int, int]]
_kept: list[tuple[DemoResult, Calls]] = []


def small_demo(folders: pytest.TempPathFactory) -> tuple[DemoResult, Calls]:
    """Return what two budgets give, and how the progress was told; once in a process."""
    if _kept:
        return _kept[0]
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
    _kept.append((result, calls))
    return _kept[0]
