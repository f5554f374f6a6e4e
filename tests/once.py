"""Start each slow server only once per test run, however many workers there are."""

from __future__ import annotations

import os

import pytest

GROUPS = {
    "spark": "spark",
    "new_database": "postgresql",
    "postgres": "postgresql",
    "browser": "browser",
    "demo_run": "demo",
}
"""Fixtures that need a slow server, and the group of their tests; one worker runs a group."""


def group_of(item: pytest.Item) -> str:
    """Return the group of a test: that of the server it needs, or its file."""
    callspec = getattr(item, "callspec", None)
    # A parameter may name a fixture that the test requests while it runs.
    names = [*getattr(item, "fixturenames", ()), *(callspec.params.values() if callspec else ())]
    groups = [GROUPS[name] for name in names if isinstance(name, str) and name in GROUPS]
    return groups[0] if groups else str(item.path)


def register_start(server: str, factory: pytest.TempPathFactory) -> None:
    """Fail if another worker of this run has started the same server: tests are not grouped."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return
    try:
        (factory.getbasetemp().parent / f"{server}-of-{run}").touch(exist_ok=False)
    except FileExistsError:
        pytest.fail(f"{server} is started a second time in this run; see tests/once.py")
