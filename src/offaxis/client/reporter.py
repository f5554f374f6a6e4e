"""Reports within a person's budget: pay first, then report.

    reporter = Reporter(release, Ledger("my.ledger", Limit(8)))
    reporter.report(z)              # every call makes a new report and pays for it
    reporter.same_report(z)         # the same vector gives the same bytes again, paid for once
    reporter.reports(Z)             # one report per row, all paid for before the first is made

Choosing between ``report`` and ``same_report`` is a choice between two leaks. The costs of fresh
reports of one vector add up. Kept reports cost once per distinct vector, but an observer who
follows a person learns *when* the vector changed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.privacy.ledger import Ledger
from offaxis.release import Release
from offaxis.sampling.entropy import fresh_key
from offaxis.vectors import Vectors, as_batch, check_finite

_BATCH_ROWS: Final = 4096


@dataclass(frozen=True)
class Reporter:
    """Makes reports of one release and pays for them from one ledger.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.client import Reporter
    >>> from offaxis.privacy.ledger import Ledger, Limit
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    >>> reporter = Reporter(release, Ledger("my.ledger", Limit(2)))
    >>> report = reporter.report([0.1, 0.2, 0.3])  # each call pays
    >>> kept = [reporter.same_report([0.1, 0.2, 0.3]) for _ in range(5)]  # paid for once
    >>> len(set(kept)), reporter.ledger.spent()
    (1, (Fraction(2, 1), Fraction(0, 1)))
    >>> reporter.report([0.1, 0.2, 0.3])
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: ...
    """

    release: Release
    ledger: Ledger

    def report(self, vector: Any) -> bytes:
        """Pay for one report and make it.

        Raises
        ------
        InvalidInput
            If the vector cannot be reported. Nothing is paid.
        BudgetExceeded
            If the report would exceed the budget. Nothing is paid and nothing is made.
        """
        return self._pay_and_report(self._check(vector))

    def reports(self, vectors: Any, part: int = _BATCH_ROWS) -> Iterator[list[bytes]]:
        """Check all rows, pay for all of them at once, then make their reports in parts.

        Everything is paid for when this returns. Reports that fail later, or that the caller never
        consumes, still cost budget; no report is made that was not paid for.

        Parameters
        ----------
        vectors : array (m,) or (n, m)
            All about the person whose ledger it is. May be memory-mapped: it is read in parts.
        part : int
            Number of rows per part.

        Raises
        ------
        InvalidInput, BudgetExceeded
            As :meth:`report`, for all rows together: nothing is paid and nothing is made.
        """
        self.release.require_model()
        array = np.asanyarray(vectors)
        batch = array[None] if array.ndim == 1 else array
        count = len(batch) if batch.ndim else 0
        # An array without rows is passed to as_batch once, which rejects it.
        starts = range(0, max(count, 1), part)
        for start in starts:
            as_batch(batch[start : start + part], self.release.input_dim, first_row=start)
        self.ledger.spend(self.release.guarantee, self.release.hash, reports=count)
        return self._make_parts(batch, starts)

    def _make_parts(self, batch: Any, starts: range) -> Iterator[list[bytes]]:
        for start in starts:
            rows = batch[start : start + starts.step]
            part, _ = as_batch(rows, self.release.input_dim, first_row=start)
            reports = self.release.privatize(part)
            assert isinstance(reports, list), "a batch gives a list"
            yield reports

    def same_report(self, vector: Any) -> bytes:
        """Return the report kept for this vector, or pay for one, make it and keep it.

        A report is kept before it is returned, so a sent report can always be sent again.
        """
        batch = self._check(vector)
        key = self._key(batch)
        kept = self.ledger.kept_report(self.release.hash, key)
        if kept is not None:
            return kept
        return self.ledger.keep_report(self.release.hash, key, self._pay_and_report(batch))

    def _check(self, vector: Any) -> Vectors:
        self.release.require_model()
        # Copied, so that the vector that is checked is the vector that is reported.
        batch, _ = as_batch(np.array(vector), self.release.input_dim)
        if len(batch) != 1:
            raise InvalidInput(f"a device reports one vector at a time, got {len(batch)}")
        check_finite(batch)
        return batch

    def _pay_and_report(self, batch: Vectors) -> bytes:
        self.ledger.spend(self.release.guarantee, self.release.hash)
        report = self.release.privatize(batch[0])
        assert isinstance(report, bytes), "one vector gives one report"
        return report

    def _key(self, batch: Vectors) -> bytes:
        """Return a key for the vector that reveals nothing without the ledger's secret."""
        secret = self.ledger.secret(fresh_key())
        # Adding zero turns −0.0 into 0.0: the two encode alike.
        octets = (batch + 0.0).astype("<f8").tobytes()
        return hmac.digest(secret, octets, hashlib.sha256)


def usable_vector(release: Release, source: Any) -> Vectors:
    """Return the vector, or the public mean if it is unusable, without revealing which.

    Contract: no exception of the source or of its value propagates, so that a failure cannot be
    observed. Only requests to end the process (BaseException) do.

    Parameters
    ----------
    release : Release
    source : array (m,), or a callable that returns one
    """
    mean = release.public_mean
    try:
        value = source() if callable(source) else source
        batch, _ = as_batch(value, release.input_dim)
        # Copied, so that the vector that is checked is the vector that is reported.
        vector = np.array(batch[0])
        check_finite(vector)
    except Exception:
        return mean
    return vector if len(batch) == 1 else mean
