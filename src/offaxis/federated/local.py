"""What a client learnt, as rows of numbers that never make it refuse."""

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


def usable_rows(value: Any, dim: int, name: str) -> Vectors:
    """Return (n, dim) rows; one that holds a NaN or an infinity counts as zero.

    A server chooses the model, and with it for which data an update overflows: a client that
    refused to answer then would answer exactly, without noise.
    """
    rows = as_rows(as_array(value, name), dim, name)
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)


# ----------------------------------------------------------------------------
# Public per-sample gradients, as the local releases look at them.


def client_groups(public: Any, samples: int) -> Vectors:
    """Cut public gradients (n, d) into clients' worth: (groups, samples, d); the rest is left."""
    rows, _ = as_batch(public, None, "public")
    groups = len(rows) // samples if isinstance(samples, int) and samples > 0 else 0
    if groups < 2:
        raise InvalidInput(
            f"public gradients must fill at least two groups of samples={samples!r}, got "
            f"{len(rows)} rows"
        )
    return rows[: groups * samples].reshape(groups, samples, -1)


def group_means(public: Any, samples: int) -> Vectors:
    """Return what clients would average: (groups, d)."""
    means: Vectors = client_groups(public, samples).mean(axis=1)
    return means


# ----------------------------------------------------------------------------
# Gradients of one client under *local* differential privacy: the clipped mean of its per-sample
# gradients, in one report at the full budget.

_WHOLE_CLIENT = "all samples of a client are protected together: its whole bundle is one promise"


def total(release: Release, reports: int) -> Guarantee:
    """Return what so many reports of one client promise together, exactly."""
    one = release.guarantee
    epsilon, delta = basic([Cost(one.epsilon, one.delta, reports)])
    return Guarantee(epsilon, delta, "user", (*ALWAYS, _WHOLE_CLIENT))


@dataclass(frozen=True, eq=False)
class DirectGradient:
    """The mean of a client's gradients, clipped and randomized once.

    Parameters
    ----------
    release : Release
        Of vectors with one number a coordinate; must give means.
    samples : int
        How many per-sample gradients a client averages.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))  # per-sample gradients of public data
    >>> recipe = DirectGradient.fit(public, samples=20, epsilon=4)
    >>> recipe.guarantee.epsilon, recipe.guarantee.unit, recipe.reports
    (Fraction(4, 1), 'user', 1)
    >>> bundle = recipe.report(rng.normal(0.3, 1, (20, 5)))  # on the client
    >>> recipe.decode(bundle).shape
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
        """Fit to public per-sample gradients (n, d): groups of ``samples`` give public means."""
        means = group_means(public, samples)
        release = fit(
            None,
            means,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            reshaping=reshaping,
            unit="user",
        )
        _ = release.unbiased_decoder  # refuses a biased one before any client reports
        return cls(release, samples)

    @property
    def dim(self) -> int:
        """Numbers in a gradient."""
        return self.release.input_dim

    @property
    def reports(self) -> int:
        """Reports in a client's bundle."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """What a client's bundle promises."""
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
        """Estimate the client's mean gradient, (d,), without bias but for clipping."""
        reports = bundle_of(bundle, self.reports)
        decoded: Vectors = self.release.unbiased_decoder.decode(self.release.observe(reports))[0]
        return decoded


class GradientRelease(Protocol):
    """How a client's gradients become a bundle of reports: ``DirectGradient``, or another way."""

    @property
    def release(self) -> Release:
        """What every report of a bundle is made with."""
        ...

    @property
    def samples(self) -> int:
        """How many per-sample gradients a client gives."""
        ...

    @property
    def dim(self) -> int:
        """Numbers in a gradient."""
        ...

    @property
    def reports(self) -> int:
        """Reports in one client's bundle."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What a client's bundle promises."""
        ...

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle."""
        ...

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,)."""
        ...


def checked_rows(gradients: Any, samples: int, dim: int) -> Vectors:
    """Return a client's gradients (samples, d); those that are not finite are zero."""
    rows = usable_rows(gradients, dim, "gradients")
    if len(rows) != samples:
        raise InvalidInput(
            f"a client gives exactly {samples} per-sample gradients, got {len(rows)}; take a "
            f"batch of that size, chosen without looking at the gradients"
        )
    return rows


def bounded(vectors: Vectors) -> Vectors:
    """Return the largest number where a computation has overflowed: it is clipped all the same."""
    return np.nan_to_num(vectors)


def bundle_of(bundle: Iterable[bytes], reports: int) -> list[bytes]:
    """Return the reports of a bundle, or reject it."""
    found = list(bundle)
    if len(found) != reports:
        raise InvalidReport(f"a bundle has {reports} reports here, got {len(found)}")
    return found


# ----------------------------------------------------------------------------
# Two sides of local gradient releases: a client counts its rounds, a server averages.


@dataclass(eq=False)
class LocalClient:
    """A client that sends a bundle a round and stops when its budget is spent.

    It forgets what it has sent when the program ends; a :class:`~offaxis.privacy.Ledger` does not.

    Parameters
    ----------
    recipe : DirectGradient or PermutedGradients
    rounds : int
        How many bundles it may send, ever.
    sent : int
        How many it has sent; keep it when the client restarts.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalClient
    >>> public = np.random.default_rng(0).normal(0.3, 1, (400, 5))
    >>> client = LocalClient(DirectGradient.fit(public, samples=20, epsilon=2), rounds=3)
    >>> print(client.guarantee)  # of all rounds together
    ε = 6, pure
    >>> bundle = client.report(public[:20])
    >>> client.sent
    1
    """

    recipe: GradientRelease
    rounds: int = 1
    sent: int = 0
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
        as_integer(self.rounds, "rounds", 1)
        as_integer(self.sent, "sent", 0)

    @property
    def guarantee(self) -> Guarantee:
        """What all bundles of this client promise together."""
        return total(self.recipe.release, self.recipe.reports * self.rounds)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Make the bundle of a round.

        Raises
        ------
        BudgetExceeded
            If all rounds are spent.
        """
        rows = checked_rows(gradients, self.recipe.samples, self.recipe.dim)
        with self._lock:
            if self.sent >= self.rounds:
                raise BudgetExceeded(
                    f"{self.sent} of {self.rounds} bundles were sent; nothing is left"
                )
            self.sent += 1  # before anything is drawn: what is lost on the way is spent, too
        return self.recipe.report(rows)


@dataclass(frozen=True, eq=False)
class LocalServer:
    """Averages the bundles of many clients.

    Examples
    --------
    >>> from offaxis.federated import DirectGradient, LocalServer
    >>> public = np.random.default_rng(0).normal(0.3, 1, (400, 5))
    >>> recipe = DirectGradient.fit(public, samples=20, epsilon=8)
    >>> server = LocalServer(recipe)
    >>> bundles = [recipe.report(public[:20]) for _ in range(30)]
    >>> server.average(bundles).estimate.shape, server.decode(bundles[0]).shape
    ((5,), (5,))
    """

    recipe: GradientRelease

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate one client's mean gradient."""
        return self.recipe.decode(bundle)

    def average(
        self, bundles: Iterable[Iterable[bytes]], weights: Iterable[float] | None = None
    ) -> Aggregate:
        """Estimate the mean over clients, with standard errors; weights are public."""
        return aggregate((self.decode(bundle)[None] for bundle in bundles), weights)
