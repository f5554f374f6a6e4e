"""Reports within a person's budget: pay first, then report.

    reporter = Reporter(release, Ledger("my.ledger", Limit(8)))
    reporter.report(z)              # every call is a new report and is paid for
    reporter.same_report(z)         # the same vector gives the same bytes again, paid for once
    reporter.reports(Z)             # one report a row, all paid for before the first is made

Which of the two to use is a choice between two leaks. Fresh reports of one vector add up. Kept
reports do not, but whoever follows a person sees *when* the vector changed, and each vector that
ever occurred has been paid for.
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

_PART: Final = 4096


@dataclass(frozen=True)
class Reporter:
    """Makes reports of one release and pays for them from one ledger.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.client import Reporter
    >>> from offaxis.privacy.ledger import Ledger, Limit
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none")
    >>> reporter = Reporter(release, Ledger("my.ledger", Limit(4)))
    >>> report = reporter.report([0.1, 0.2, 0.3])  # a new one each time, each paid for
    >>> again = [reporter.same_report([0.1, 0.2, 0.3]) for _ in range(5)]  # kept, and paid for once
    >>> len(set(again)), reporter.ledger.spent()
    (1, (Fraction(2, 1), Fraction(0, 1)))
    >>> [len(part) for part in reporter.reports(np.zeros((2, 3)))]
    [2]
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
            If the budget does not allow it. Nothing is paid and nothing is made.
        """
        return self._paid(self._checked(vector))

    def reports(self, vectors: Any, part: int = _PART) -> Iterator[list[bytes]]:
        """Check all rows, pay for all of them at once, then make their reports part by part.

        Everything is paid for when this returns. What goes wrong later, or reports that are never
        asked for, cost budget; nothing comes out that was not paid for.

        Parameters
        ----------
        vectors : array (m,) or (n, m)
            All about the person whose ledger it is. May be memory-mapped: it is read part by part.
        part : int
            Rows made at a time.

        Raises
        ------
        InvalidInput, BudgetExceeded
            As :meth:`report`, for all rows together: nothing is paid and nothing is made.
        """
        array = np.asanyarray(vectors)
        batch = array[None] if array.ndim == 1 else array
        count = len(batch) if batch.ndim else 0
        # An array without rows is passed on once, to be refused.
        starts = range(0, max(count, 1), part)
        for start in starts:
            as_batch(batch[start : start + part], self.release.input_dim, first_row=start)
        self.ledger.spend(self.release.guarantee, self.release.hash, reports=count)
        return self._made(batch, starts)

    def _made(self, batch: Any, starts: range) -> Iterator[list[bytes]]:
        for start in starts:
            rows = batch[start : start + starts.step]
            part, _ = as_batch(rows, self.release.input_dim, first_row=start)
            reports = self.release.privatize(part)
            assert isinstance(reports, list), "a batch gives a list"
            yield reports

    def same_report(self, vector: Any) -> bytes:
        """Return the report kept for this vector, or pay for one, make it and keep it.

        A report is kept before it is returned: what was sent can always be sent again.
        """
        checked = self._checked(vector)
        key = self._key(checked)
        kept = self.ledger.kept_report(self.release.hash, key)
        if kept is not None:
            return kept
        return self.ledger.keep_report(self.release.hash, key, self._paid(checked))

    def _checked(self, vector: Any) -> Vectors:
        # Copied, so that what is checked, paid for and reported is one and the same.
        batch, _ = as_batch(np.array(vector), self.release.input_dim)
        if len(batch) != 1:
            raise InvalidInput(f"a device reports one vector at a time, got {len(batch)}")
        check_finite(batch)
        return batch

    def _paid(self, batch: Vectors) -> bytes:
        self.ledger.spend(self.release.guarantee, self.release.hash)
        report = self.release.privatize(batch[0])
        assert isinstance(report, bytes), "one vector gives one report"
        return report

    def _key(self, batch: Vectors) -> bytes:
        """Return a name for the vector that tells nothing to who does not know the secret."""
        secret = self.ledger.secret(fresh_key())
        # Adding zero makes one vector of 0.0 and −0.0, which encode alike.
        octets = (batch + 0.0).astype("<f8").tobytes()
        return hmac.digest(secret, octets, hashlib.sha256)


def usable_vector(release: Release, source: Any) -> Vectors:
    """Return the vector, or the public mean; which of the two it was is known to nobody else.

    Contract: no exception of the source or of its value comes out, so that a failure cannot be
    seen. What is no error, such as an order to end the process, passes.

    Parameters
    ----------
    release : Release
    source : array (m,), or a callable that returns one
    """
    mean = release.public_mean
    try:
        value = source() if callable(source) else source
        batch, _ = as_batch(value, release.input_dim)
        # Copied, so that what is checked and what is reported is one and the same.
        vector = np.array(batch[0])
        check_finite(vector)
    except Exception:
        return mean
    return vector if len(batch) == 1 else mean
