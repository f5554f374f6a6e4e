from __future__ import annotations

from typing import Any

import pytest

from offaxis import Release


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of real reports of every call of ``Release.privatize``."""
    counts: list[int] = []
    privatize = Release.privatize

    def counted(self: Release, vectors: Any) -> Any:
        counts.append(len(vectors))
        return privatize(self, vectors)

    monkeypatch.setattr(Release, "privatize", counted)
    return counts
