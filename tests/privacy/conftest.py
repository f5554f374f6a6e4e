"""An environment without the optional accounting package."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def without_dp_accounting(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
