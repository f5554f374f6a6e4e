"""Likelihoods of reports in batches of Arrow records, for populations (:mod:`offaxis.learning`).

A row of likelihoods depends on its report alone, so sums over rows merge in any order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from offaxis.engines.arrow import REPORT, Batches, nonempty, reports_of
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput
from offaxis.learning.likelihoods import Block, Sample, Sums, Support, Terms, chunks, rows_of
from offaxis.learning.population import sources_of
from offaxis.release import Release

LIKELIHOODS: Final = "likelihoods"
SAMPLE: Final = "sample"
COLUMNS: Final = f"{LIKELIHOODS} binary, {SAMPLE} binary"
"""A row holds the likelihoods of a report; the last row of a partition holds its sample."""


def paired(releases: Any, sources: Any) -> list[tuple[Release, Any]]:
    """Return pairs of a release and the source of its reports, which may be one of each."""
    if not isinstance(releases, Release) and not isinstance(sources, list | tuple):
        raise InvalidInput("for several releases, pass a list with one source of reports for each")
    return sources_of(releases, sources)


def report_values(batches: Batches, reports: str = REPORT) -> Iterator[bytes]:
    """Yield the reports in batches."""
    return (report for batch in nonempty(batches) for report in reports_of(batch, reports))


def likelihood_batches(
    public: tuple[Release, Support], batches: Batches, *, reports: str = REPORT
) -> Iterator[Any]:
    """Yield batches of two columns: likelihoods of reports, and the sample in the last row."""
    release, support = public
    sample, compute = Sample(release), rows_of(release, support)

    def sampled() -> Iterator[Any]:
        values = report_values(batches, reports)
        for first in values:  # A partition may be empty, and no reports at all are an error.
            for observed in release.observe_in_batches(chain([first], values)):
                sample.add(observed)
                yield observed

    with threadpool_limits(1, user_api="blas"):
        for observed in chunks(sampled(), support):
            yield _record(_packed(compute(observed)), None)
    yield _record(None, pickle.dumps(sample))


def _record(rows: Any, sample: bytes | None) -> Any:
    pa = arrow()
    rows = pa.nulls(1, pa.binary()) if rows is None else rows
    samples = pa.array([sample] * len(rows), pa.binary())
    return pa.RecordBatch.from_arrays([rows, samples], [LIKELIHOODS, SAMPLE])


def _packed(block: Block) -> Any:
    """Return an Arrow array with the bytes of every row."""
    pa, (count, width) = arrow(), block.shape
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(4 * width)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(block))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def fold_terms(terms: Terms, width: int, batches: Batches) -> Sums:
    """Return the sums of terms over batches of likelihoods."""
    total = Sums()
    with threadpool_limits(1, user_api="blas"):
        for batch in batches:
            data = b"".join(batch.column(LIKELIHOODS).drop_null().to_pylist())
            if data:
                total.add(terms(np.frombuffer(data, dtype=np.float32).reshape(-1, width)))
    return total


def fold_samples(release: Release, batches: Batches) -> Sample:
    """Return the sample of all reports of a release."""
    total = Sample(release)
    for batch in batches:
        for sample in batch.column(SAMPLE).drop_null().to_pylist():
            total.merge(pickle.loads(sample))
    return total
