"""Reports within a person's budget: pay first, then report.

    reporter = Reporter(release, Ledger("my.ledger", Limit(8)))
    reporter.report(z)              # every call makes a new report and pays for it
    reporter.reports(Z)             # one report per row, all paid for before the first is made

A release of sequences (:func:`offaxis.memoise`) is paid for once, however many reports follow. A
release per person (unit "user") gives one report or one sequence per study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.client.sequences import pay_and_report, pay_per_report, vector_needed
from offaxis.encoding.pairs import PairEncoder
from offaxis.encoding.questions import AnswersEncoder, check_rows
from offaxis.errors import InvalidInput
from offaxis.privacy.ledger import Ledger
from offaxis.randomizers.memoised import MOST_ROUNDS, Memoised
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_batch, as_integer, as_rows, check_finite

_BATCH_ROWS: Final = 4096


@dataclass(frozen=True)
class Reporter:
    """Makes reports of one release and pays for them from one ledger.

    Parameters
    ----------
    release : Release
    ledger : Ledger
        That of the person whose vectors are reported.
    study : str
        Names what the reports are for. A release with unit "user" is reported once per study and
        person, or as one sequence, and no other release is reported in that study. By default all
        reports belong to one study without a name.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.client import Reporter
    >>> from offaxis.privacy.ledger import Ledger, Limit
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    >>> reporter = Reporter(release, Ledger("my.ledger", Limit(2)))
    >>> reports = [reporter.report([0.1, 0.2, 0.3]) for _ in range(2)]  # each call pays
    >>> reporter.ledger.spent()
    (Fraction(2, 1), Fraction(0, 1))
    >>> reporter.report([0.1, 0.2, 0.3])
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: ...

    A year of daily reports, paid for once:

    >>> classes = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
    >>> sequences = offaxis.memoise(classes, draws=4, period=91)
    >>> meter = Reporter(sequences, Ledger("meter.ledger", Limit(8)))
    >>> year = [meter.report(day) for day in np.random.default_rng(1).standard_normal((365, 3))]
    >>> meter.ledger.spent()[0]
    Fraction(8, 1)
    """

    release: Release
    ledger: Ledger
    study: str = ""

    def __post_init__(self) -> None:
        """Reject what is not a release and a ledger, before anything is reported."""
        for name, expected in (("release", Release), ("ledger", Ledger)):
            if not isinstance(getattr(self, name), expected):
                raise InvalidInput(
                    f"{name} must be a {expected.__name__}, got "
                    f"{type(getattr(self, name)).__name__}"
                )

    @property
    def _per_person(self) -> bool:
        """Whether one promise covers all reports of the person."""
        return self.release.unit == "user" or isinstance(self.release.randomizer, Memoised)

    def report(self, vector: Any, number: int | None = None) -> bytes:
        """Pay for one report and make it.

        Parameters
        ----------
        vector : array (m,)
            For a release of pairs the row of a vector and its answers
            (:meth:`offaxis.Release.pairs`), or ``{"vector": vector, "answers": answers}``; for one
            of answers alone ``{"answers": answers}``.

            For a release of sequences also None, or a callable: it is evaluated only if the round
            draws a permanent answer, and then None, NaN, an unknown answer or a callable that
            raises count as the public mean, so that nobody learns of it.
        number : int, optional
            For a release of sequences: the number of the round, such as the day, the same for
            everybody and larger than every earlier one. By default rounds are numbered by the
            person's own reports, which :func:`offaxis.learning.trend` cannot tell from missed
            rounds.

        Raises
        ------
        InvalidInput
            If the vector cannot be reported, or a number is not larger than the last one. Nothing
            is paid.
        RoundRefused
            If the study has one promise per person, and this report would be outside it.
        BudgetExceeded
            If the report would exceed the budget. Nothing is paid and nothing is made.
        """
        if isinstance(self.release.randomizer, Memoised):
            return self._continue(vector, number)
        if number is not None:
            raise InvalidInput("only a release of sequences numbers its reports")
        batch = self._check(vector)
        if self._per_person:
            with self.ledger.alone():
                return pay_and_report(self.ledger, self.release, self.study, None, batch[0])
        self._pay(1)
        report = self.release.privatize(batch[0])
        assert isinstance(report, bytes), "one vector gives one report"
        return report

    def _continue(self, vector: Any, number: int | None) -> bytes:
        """Make the next report of the person's sequence."""
        self.release.require_model()
        if number is not None:
            number = as_integer(number, "number", 0, MOST_ROUNDS)
        if vector is not None and not callable(vector):
            # Its size is no secret; whether its numbers are finite or its answers known could be.
            self._check_size(vector)
        with self.ledger.alone():
            needed = vector_needed(self.ledger, self.release, self.study, number)
        usable = usable_vector(self.release, vector) if needed else None
        with self.ledger.alone():
            return pay_and_report(self.ledger, self.release, self.study, number, usable)

    def reports(self, vectors: Any, part: int = _BATCH_ROWS) -> Iterator[list[bytes]]:
        """Check all rows, pay for all of them at once, then make their reports in parts.

        Everything is paid for when this returns, and counts in the periods of that time. Reports
        that fail later, or that the caller never consumes, still cost budget; no report is made
        that was not paid for.

        Parameters
        ----------
        vectors : array (m,) or (n, m)
            All about the person whose ledger it is. May be memory-mapped: it is read in parts.
            Only one for a release with unit "user" or of sequences.
        part : int
            Number of rows per part.

        Raises
        ------
        InvalidInput, BudgetExceeded
            As :meth:`report`, for all rows together: nothing is paid and nothing is made.
        """
        self.release.require_model()
        if self._per_person:
            batch, _ = as_batch(vectors, self.release.input_dim)
            if len(batch) > 1:
                raise InvalidInput(
                    f"this release makes one promise for all reports of a person, got {len(batch)} "
                    f"vectors: make reports one at a time with report()"
                )
            return iter([[self.report(batch)]])
        array = np.asanyarray(vectors)
        batch = array[None] if array.ndim == 1 else array
        count = len(batch) if batch.ndim else 0
        # An array without rows is passed to as_batch once, which rejects it.
        starts = range(0, max(count, 1), part)
        for start in starts:
            rows = batch[start : start + part]
            rows, _ = as_batch(rows, self.release.input_dim, first_row=start)
            check_rows(self.release.encoder, rows)
        self._pay(count)
        return self._make_parts(batch, starts)

    def _pay(self, reports: int) -> None:
        """Pay for reports before the first is made."""
        with self.ledger.alone():
            pay_per_report(self.ledger, self.release, self.study, reports)

    def _make_parts(self, batch: Any, starts: range) -> Iterator[list[bytes]]:
        for start in starts:
            rows = batch[start : start + starts.step]
            part, _ = as_batch(rows, self.release.input_dim, first_row=start)
            reports = self.release.privatize(part)
            assert isinstance(reports, list), "a batch gives a list"
            self.ledger.check_process()  # a fork since then has paid once for both processes
            yield reports

    def _check(self, vector: Any) -> Vectors:
        self.release.require_model()
        # Copied, so that the vector that is checked is the vector that is reported.
        batch = np.array(self._one_row(joined(self.release, vector)))
        check_finite(batch)
        check_rows(self.release.encoder, batch)
        return batch

    def _check_size(self, vector: Any) -> None:
        encoder = self.release.encoder
        if isinstance(vector, Mapping) and isinstance(encoder, PairEncoder):
            self._one_row(_parts(vector)[0], encoder.vector_dim)
        elif isinstance(vector, Mapping) and isinstance(encoder, AnswersEncoder):
            _parts(vector)
        else:
            self._one_row(vector)

    def _one_row(self, vector: Any, dim: int | None = None) -> Vectors:
        """Return a batch of one vector; its numbers may be anything."""
        batch = as_rows(as_array(vector), self.release.input_dim if dim is None else dim)
        if len(batch) != 1:
            raise InvalidInput(f"a device reports one vector at a time, got {len(batch)}")
        return batch


def usable_vector(release: Release, source: Any) -> Vectors:
    """Return the vector, or the public mean if it is unusable, without revealing which.

    Contract: no exception of the source or of its value propagates, so that a failure cannot be
    observed. Only requests to end the process (BaseException) do.

    Parameters
    ----------
    release : Release
    source : array (m,), or a callable that returns one
        For a release of pairs also a mapping, as in :func:`joined`.
    """
    mean = release.public_mean
    try:
        value = source() if callable(source) else source
        batch, _ = as_batch(joined(release, value), release.input_dim)
        # Copied, so that the vector that is checked is the vector that is reported.
        vector = np.array(batch[0])
        check_finite(vector)
        check_rows(release.encoder, vector[None])
    except Exception:
        return mean
    return vector if len(batch) == 1 else mean


def joined(release: Release, value: Any) -> Any:
    """Return the row of a pair ``{"vector": vector, "answers": answers}``; all else unchanged.

    Raises
    ------
    InvalidInput
        If the mapping has other keys, or :meth:`offaxis.Release.pairs` rejects the pair.
    """
    return release.pairs(*_parts(value)) if isinstance(value, Mapping) else value


def _parts(pair: Mapping[str, Any]) -> tuple[Any, Any]:
    if set(pair) != {"vector", "answers"} and set(pair) != {"answers"}:
        raise InvalidInput(
            'a pair is a mapping {"vector": vector, "answers": answers}, and answers alone are '
            '{"answers": answers}'
        )
    return pair.get("vector"), pair["answers"]
