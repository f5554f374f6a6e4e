"""Tiny data sets in the place of the real ones, a cache of their own, and no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.data.tiny import Registry, use_tiny


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, which is also the usual one."""
    use_tiny(monkeypatch)
    monkeypatch.setenv("OFFAXIS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return a local registry without any package in it, and no pip."""
    monkeypatch.setattr("experiments.data.cache.importlib.util.find_spec", lambda name: None)
    return Registry(tmp_path, monkeypatch)
