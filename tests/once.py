"""What takes long to start is started once in a run, whatever the number of workers."""

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
"""The worker that a test goes to, by the fixture that it asks for."""


def group(item: pytest.Item) -> str:
    """Return the name that keeps a test with all that need the same server, or with its file."""
    callspec = getattr(item, "callspec", None)
    # Fixtures that are asked for while a test runs are named by one of its parameters.
    asked = [*getattr(item, "fixturenames", ()), *(callspec.params.values() if callspec else ())]
    wanted = [GROUPS[name] for name in asked if isinstance(name, str) and name in GROUPS]
    return wanted[0] if wanted else str(item.path)


def starts(what: str, factory: pytest.TempPathFactory) -> None:
    """Fail if another worker of this run has started the same: then tests are not grouped."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return
    try:
        (factory.getbasetemp().parent / f"{what}-of-{run}").touch(exist_ok=False)
    except FileExistsError:
        pytest.fail(f"{what} is started a second time in this run; see tests/once.py")
