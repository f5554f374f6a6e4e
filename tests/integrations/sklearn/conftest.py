from __future__ import annotations

from typing import Any

import pytest

from offaxis import Release


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count real reports, by the call; the real thing still runs."""
    counts: list[int] = []
    real = Release.privatize

    def counted(self: Release, vectors: Any) -> Any:
        counts.append(len(vectors))
        return real(self, vectors)

    monkeypatch.setattr(Release, "privatize", counted)
    return counts
