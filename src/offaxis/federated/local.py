"""Gradients of one client under *local* differential privacy.

Each client reports the clipped mean of its per-sample gradients, in one report at the full budget.
The client counts its rounds; the server averages the decoded reports of many clients. A client
answers whatever its data are: values that are not finite count as zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from offaxis.decoding import Aggregate, aggregate
from offaxis.errors import BudgetExceeded, InvalidInput, InvalidReport
from offaxis.fitting import fit
from offaxis.privacy.composition import Cost, basic
from offaxis.privacy.guarantee import ALWAYS, Guarantee
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_batch, as_integer, as_rows

_WHOLE_CLIENT = "all samples of a client are protected together: its whole bundle is one promise"


class GradientMechanism(Protocol):
    """A mechanism that turns a client's gradients into a bundle of reports.

    ``DirectGradient`` is the one in this package.
    """

    @property
    def release(self) -> Release:
        """The release that makes every report of a bundle."""
        ...

    @property
    def samples(self) -> int:
        """Number of per-sample gradients per client."""
        ...

    @property
    def dim(self) -> int:
        """Dimension d of a gradient."""
        ...

    @property
    def reports(self) -> int:
        """Number of reports in a client's bundle."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a client's whole bundle."""
        ...

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle."""
        ...

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,)."""
        ...


@dataclass(frozen=True, eq=False)
class DirectGradient:
    """The mean of a client's gradients, clipped and randomized once.

    Parameters
    ----------
    release : Release
        A release of d-dimensional vectors that supports means.
    samples : int
        Number of per-sample gradients that a client averages.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))  # per-sample gradients of public data
    >>> mechanism = DirectGradient.fit(public, samples=20, epsilon=4)
    >>> print(mechanism.guarantee)
    ε = 4, pure
    >>> bundle = mechanism.report(rng.normal(0.3, 1, (20, 5)))  # on the client
    >>> mechanism.decode(bundle).shape
    (5,)
    """

    release: Release
    samples: int

    @classmethod
    def fit(
        cls,
        public: Any,
        *,
        samples: int,
        epsilon: Any,
        delta: Any = None,
        mechanism: str = "privunit2-mean",
        reshaping: Literal["centre", "none"] = "none",
    ) -> DirectGradient:
        """Fit to public per-sample gradients (n, d), averaged in groups of ``samples``."""
        release = fit(
            None,
            client_groups(public, samples).mean(axis=1),
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            reshaping=reshaping,
            unit="user",
        )
        _ = release.unbiased_decoder  # raises for a biased mechanism, before any client reports
        return cls(release, samples)

    @property
    def dim(self) -> int:
        """Dimension d of a gradient."""
        return self.release.input_dim

    @property
    def reports(self) -> int:
        """Number of reports in a client's bundle."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a client's whole bundle."""
        return total(self.release, self.reports)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle."""
        rows = checked_rows(gradients, self.samples, self.dim)
        with np.errstate(all="ignore"):
            mean = (rows / self.samples).sum(axis=0)
        report = self.release.privatize(bounded(mean))
        assert isinstance(report, bytes)
        return (report,)

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,); unbiased except for clipping."""
        reports = bundle_of(bundle, self.reports)
        decoded: Vectors = self.release.unbiased_decoder.decode(self.release.observe(reports))[0]
        return decoded


@dataclass(eq=False)
class LocalClient:
    """A client that sends one bundle per round and stops when its budget is spent.

    The count is lost when the program ends; a :class:`~offaxis.privacy.Ledger` keeps it.

    Parameters
    ----------
    mechanism : DirectGradient or PermutedGradients
    rounds : int
        How many bundles the client may ever send.
    sent : int
        How many it has sent so far; pass it on when the client restarts.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalClient
    >>> public, private = np.random.default_rng(0).normal(0.3, 1, (2, 400, 5))
    >>> client = LocalClient(DirectGradient.fit(public, samples=20, epsilon=2), rounds=3)
    >>> print(client.guarantee)  # of all rounds together
    ε = 6, pure
    >>> bundle = client.report(private[:20])
    >>> client.sent
    1
    """

    mechanism: GradientMechanism
    rounds: int = 1
    sent: int = 0
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the counts."""
        as_integer(self.rounds, "rounds", 1)
        as_integer(self.sent, "sent", 0)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all bundles of this client together."""
        return total(self.mechanism.release, self.mechanism.reports * self.rounds)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Make the bundle of one round.

        Raises
        ------
        BudgetExceeded
            If all rounds are spent.
        """
        rows = checked_rows(gradients, self.mechanism.samples, self.mechanism.dim)
        with self._lock:
            if self.sent >= self.rounds:
                raise BudgetExceeded(
                    f"{self.sent} of {self.rounds} bundles were sent; the budget is spent"
                )
            self.sent += 1  # before anything is drawn: a bundle lost on the way is spent, too
        return self.mechanism.report(rows)


@dataclass(frozen=True, eq=False)
class LocalServer:
    """Averages the bundles of many clients.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalServer
    >>> public, private = np.random.default_rng(0).normal(0.3, 1, (2, 400, 5))
    >>> mechanism = DirectGradient.fit(public, samples=20, epsilon=8)
    >>> bundles = [mechanism.report(private[:20]) for _ in range(30)]  # from 30 clients
    >>> LocalServer(mechanism).average(bundles).estimate.shape
    (5,)
    """

    mechanism: GradientMechanism

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate one client's mean gradient."""
        return self.mechanism.decode(bundle)

    def average(
        self, bundles: Iterable[Iterable[bytes]], weights: Iterable[float] | None = None
    ) -> Aggregate:
        """Estimate the mean over clients, with standard errors; weights are public."""
        return aggregate((self.decode(bundle)[None] for bundle in bundles), weights)


# ---- Shared by the mechanisms


def total(release: Release, reports: int) -> Guarantee:
    """Return the guarantee of this many reports of one client together, exactly."""
    single = release.guarantee
    epsilon, delta = basic([Cost(single.epsilon, single.delta, reports)])
    return Guarantee(epsilon, delta, "user", (*ALWAYS, _WHOLE_CLIENT))


def usable_rows(value: Any, dim: int, name: str) -> Vectors:
    """Return (n, dim) rows; a row that holds a NaN or an infinity counts as zero.

    The server chooses the model, and so it can choose for which data an update overflows. A client
    that raised an error then would reveal, without any noise, that it holds such data.
    """
    rows = as_rows(as_array(value, name), dim, name)
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)


def checked_rows(gradients: Any, samples: int, dim: int) -> Vectors:
    """Return a client's gradients (samples, d); rows that are not finite are zero."""
    rows = usable_rows(gradients, dim, "gradients")
    if len(rows) != samples:
        raise InvalidInput(
            f"a client gives exactly {samples} per-sample gradients, got {len(rows)}; take a "
            f"batch of that size, chosen without looking at the gradients"
        )
    return rows


def bounded(vectors: Vectors) -> Vectors:
    """Replace overflowed values by the largest finite number; clipping follows in any case."""
    return np.nan_to_num(vectors)


def bundle_of(bundle: Iterable[bytes], reports: int) -> list[bytes]:
    """Return the reports of a bundle; raise if their number is wrong."""
    received = list(bundle)
    if len(received) != reports:
        raise InvalidReport(f"a bundle has {reports} reports, got {len(received)}")
    return received


def client_groups(public: Any, samples: int) -> Vectors:
    """Cut public gradients (n, d) into clients of ``samples`` rows: (groups, samples, d).

    Rows that do not fill a group are dropped.
    """
    rows, _ = as_batch(public, None, "public")
    groups = len(rows) // samples if isinstance(samples, int) and samples > 0 else 0
    if groups < 2:
        raise InvalidInput(
            f"public gradients must fill at least two groups of samples={samples!r}, got "
            f"{len(rows)} rows"
        )
    return rows[: groups * samples].reshape(groups, samples, -1)
