"""Sums over reports of pairs in batches of Arrow records, from which models are learnt.

They merge, so that reports of any number are summed part by part (:mod:`offaxis.learning`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import tee
from typing import Any, Final

from offaxis.engines.arrow import REPORT, Batches, nonempty, reports_of
from offaxis.engines.columns import column_of, values_of
from offaxis.errors import InvalidInput
from offaxis.learning import PairSums
from offaxis.release import Release

_SEQUENCES: Final = (
    "a model would count the reports of a person as those of several people; learn from a release "
    "of single reports"
)


def empty_sums(release: Release, labels: str | None, answers: Any) -> PairSums:
    """Return sums of no reports; raise if the release or the labels are unsuitable.

    Parameters
    ----------
    release : Release
        Of pairs.
    labels : str or None
        The column of public labels.
    answers : Classes, Number, int or list of str; or None
        What the labels are.
    """
    release.require_single_reports(_SEQUENCES)
    if (labels is None) != (answers is None):
        raise InvalidInput(
            "labels and answers belong together: the column of public labels, and what they are, "
            "such as a number of classes or Number(low, high)"
        )
    return PairSums(release, answers)


def fold_sums(
    release: Release,
    batches: Batches,
    *,
    reports: str = REPORT,
    labels: str | None = None,
    answers: Any = None,
) -> PairSums:
    """Return the sums of the reports in batches, in memory that does not grow with their number."""
    sums = empty_sums(release, labels, answers)
    if labels is None:
        sums.add(_values(batches, reports, reports_of))
        return sums
    first, second = tee(batches)
    sums.add(_values(first, reports, reports_of), _values(second, labels, _labels_of))
    return sums


def _values(batches: Batches, name: str, values: Callable[[Any, str], list[Any]]) -> Iterator[Any]:
    return (value for batch in nonempty(batches) for value in values(batch, name))


def _labels_of(batch: Any, name: str) -> list[Any]:
    return values_of(column_of(batch, name), name)
