"""Tiny data sets instead of the real ones, an empty cache, and no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.data.tiny import Registry, use_tiny


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, which is also the default one."""
    use_tiny(monkeypatch)
    monkeypatch.setenv("OFFAXIS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return an empty local registry, without pip."""
    monkeypatch.setattr("experiments.data.cache.importlib.util.find_spec", lambda name: None)
    return Registry(tmp_path, monkeypatch)
