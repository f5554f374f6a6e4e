"""What bulk work does to batches of Arrow records, whoever brings them: one machine or Spark.

Reports are drawn one record at a time from its own stream (sampling/record_entropy.py), and a
record is encoded alone and on one thread: how records are cut into batches changes no byte, so a
task that is tried again repeats the reports it may already have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.decoding.aggregate import GroupMoments, positive
from offaxis.engines.columns import (
    arrow,
    column_of,
    ids_of,
    is_binary,
    is_list,
    lists_of,
    present,
    rows_of,
    vectors_of,
)
from offaxis.errors import InvalidInput
from offaxis.evaluation.metrics import Evaluation, check_targets
from offaxis.evaluation.tally import Tally
from offaxis.formats.reports import header
from offaxis.geometry import TaskModel
from offaxis.geometry.folding import A
from offaxis.randomizers.records import report_records
from offaxis.release import Release
from offaxis.sampling.record_entropy import JobKey
from offaxis.vectors import Vectors

Batches = Iterable[Any]
"""pyarrow record batches."""

REPORT: Final = "report"
VECTOR: Final = "vector"
ID: Final = "id"


def privatize_batches(
    release: Release, key: JobKey, batches: Batches, *, ids: str = ID, vectors: str = VECTOR
) -> Iterator[Any]:
    """Yield batches of two columns: the records' ids, and a report of each.

    Every id must come once in a job: who calls checks it. A refused row names its column only.
    """
    pa = arrow()
    threads = ThreadpoolController()
    for batch in _some(batches):
        rows, named = vectors_of(batch, vectors, release.input_dim), ids_of(batch, ids)
        with threads.limit(limits=1), np.errstate(all="ignore"):
            drawn = list(_reports(release, key, named, rows))
        columns = [batch.column(ids), pa.array(drawn, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, names=[ids, REPORT])


def _reports(release: Release, key: JobKey, ids: list[Any], rows: Vectors) -> Iterator[bytes]:
    head = header(release.randomizer.wire_id, release.hash)
    stream = key.streams(release.hash)
    each = [rows[at : at + 1] for at in range(len(rows))]
    sources = [stream(name, row.tobytes()) for name, row in zip(ids, each, strict=True)]
    # A matrix product of many rows may round a row otherwise than a product of it alone.
    encoded = np.concatenate([release.encoder.encode(row) for row in each])
    return (head + payload for payload in report_records(release.randomizer, encoded, sources))


def decode_batches(
    release: Release, batches: Batches, *, reports: str = REPORT, fixed: bool = True
) -> Iterator[Any]:
    """Yield the batches with a column of decoded vectors in place of the reports.

    Parameters
    ----------
    fixed : bool
        Whether the lists are of the Arrow type of constant size, which Spark does not take.
    """
    pa = arrow()
    for batch in _some(batches):
        decoded = release.decode(_reports_of(batch, reports))
        at = batch.schema.get_field_index(reports)
        columns, names = batch.columns, batch.schema.names
        columns[at], names[at] = lists_of(decoded, fixed=fixed), VECTOR
        yield pa.RecordBatch.from_arrays(columns, names=names)


def fold_means(
    release: Release,
    batches: Batches,
    *,
    reports: str = REPORT,
    groups: str | None = None,
    weights: str | None = None,
) -> GroupMoments:
    """Return the moments of decoded reports, of all or of each group, as Release.aggregate has."""
    found = GroupMoments(grouped=groups is not None)
    decoder = release.decoder_of_means
    for batch in _some(batches):
        decoded = decoder.decode(release.observe(_reports_of(batch, reports)))
        labels = None if groups is None else present(column_of(batch, groups), groups)
        numbers = None if weights is None else present(column_of(batch, weights), weights)
        found.add(decoded, positive(numbers, len(decoded)), labels)
    return found


def _reports_of(batch: Any, name: str) -> list[bytes]:
    column = column_of(batch, name)
    if not is_binary(column.type):
        raise InvalidInput(f"column {name!r} must hold reports, it is of type {column.type}")
    return present(column, name)


def fold_vectors(total: A, batches: Batches, rows: int, *, vectors: str = VECTOR) -> A:
    """Add public vectors to an accumulator, at most ``rows`` at a time, and return it."""
    for batch in _some(batches):
        found = vectors_of(batch, vectors)
        for start in range(0, len(found), rows):
            total.add(found[start : start + rows])
    return total


class Tallies:
    """Tallies of several releases over several repetitions; partial ones merge."""

    def __init__(self, releases: int, seeds: int) -> None:
        self._clean: Tally | None = None
        self._runs: list[list[Tally | None]] = [[None] * seeds for _ in range(releases)]

    def merge(self, other: Tallies) -> None:
        """Add what was seen of other vectors."""
        self._clean = _merged(self._clean, other._clean)
        for mine, theirs in zip(self._runs, other._runs, strict=True):
            mine[:] = map(_merged, mine, theirs)

    def add(
        self,
        releases: Sequence[Release],
        task: TaskModel,
        vectors: Vectors,
        targets: Any,
        seed: Sequence[int],
    ) -> None:
        """Simulate reports of some vectors, the same noise for every release, and count."""
        clean = task.outputs(vectors)
        wanted = check_targets(targets, clean)
        self._clean = _merged(self._clean, Tally.of(clean, clean, wanted))
        for release, runs in zip(releases, self._runs, strict=True):
            for index, before in enumerate(runs):
                rng = np.random.default_rng([*seed, index])
                outputs = task.outputs(release.simulate(vectors, rng))
                runs[index] = _merged(before, Tally.of(outputs, clean, wanted))

    def evaluations(self) -> list[Evaluation]:
        """Return the scores of every release."""
        if self._clean is None:
            raise InvalidInput("there are no vectors to evaluate on")
        return [_evaluation(self._clean, runs) for runs in self._runs]


def fold_tallies(
    releases: Sequence[Release],
    task: TaskModel,
    batches: Batches,
    *,
    vectors: str = VECTOR,
    targets: str | None = None,
    seeds: int = 20,
    seed: int = 0,
    part: int = 0,
) -> Tallies:
    """Try releases on labelled public vectors; ``part`` says which part of a whole these are."""
    tallies = Tallies(len(releases), seeds)
    for number, batch in enumerate(_some(batches)):
        rows = vectors_of(batch, vectors, releases[0].input_dim)
        wanted = None if targets is None else _targets_of(batch, targets)
        tallies.add(releases, task, rows, wanted, [seed, part, number])
    return tallies


def _targets_of(batch: Any, name: str) -> Any:
    column = column_of(batch, name)
    return rows_of(column, f"column {name!r}") if is_list(column.type) else present(column, name)


def _merged(one: Tally | None, other: Tally | None) -> Tally | None:
    if one is None or other is None:
        return one or other
    one.merge(other)
    return one


def _evaluation(clean: Tally, runs: list[Tally | None]) -> Evaluation:
    scores = [run.scores() for run in runs if run is not None]
    names = clean.scores()
    return Evaluation(names, {name: np.array([run[name] for run in scores]) for name in names})


def _some(batches: Batches) -> Iterator[Any]:
    """Leave out batches without rows."""
    return (batch for batch in batches if batch.num_rows)
