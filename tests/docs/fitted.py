"""Watch code for private vectors on the fitted side: no row that was fitted may be privatized."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from offaxis.geometry import PublicVectors
from offaxis.release import Release


@contextmanager
def rejecting_fitted_rows() -> Iterator[None]:
    """Fail if a report is made of a vector that a release was fitted to before.

    Rows are compared bit by bit: data in which different people have equal vectors needs a split
    without them. Populations encode the public vectors themselves, which makes no report.
    """
    fitted: set[bytes] = set()
    batches, encode = PublicVectors.batches, Release.encode_private

    def record(self: PublicVectors, rows: int) -> Iterator[Any]:
        for batch in batches(self, rows):
            fitted.update(row.tobytes() for row in np.asarray(batch, dtype=np.float64))
            yield batch

    def check(self: Release, vectors: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"] == "offaxis.learning.likelihoods":
            return encode(self, vectors)
        shared = sum(row.tobytes() in fitted for row in np.asarray(vectors, dtype=np.float64))
        if shared:
            pytest.fail(f"{shared} of {len(vectors)} reports are of vectors that were fitted")
        return encode(self, vectors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublicVectors, "batches", record)
        patch.setattr(Release, "encode_private", check)
        yield
