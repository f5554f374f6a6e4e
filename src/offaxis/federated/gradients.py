"""Gradients of one client under *local* differential privacy, in two forms that serve alike.

``DirectGradient`` releases the clipped mean of a client's per-sample gradients, one report at the
full budget. ``PermutedGradients`` releases, for each of the d coordinates, the vector of its N
per-sample values, with the noise off the one direction the server looks at, W = 1/N · 1ᵀ; a column
gets ε/d, because the d reports of a client add up. W has rank one, so all that a column tells the
server is one number, and the direct form is at least as good (docs/federated.md has figures). The
columns are permuted by a secret order, as the method's authors do. That adds nothing to the
guarantee: the promise is that of the randomizer, for every order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.federated.public_gradients import columns, coordinate_scales, group_means
from offaxis.federated.updates import usable_rows
from offaxis.fitting import fit
from offaxis.privacy.assumptions import ALWAYS
from offaxis.privacy.composition import Cost, basic
from offaxis.privacy.guarantee import Guarantee, exact, exact_epsilon
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.uniform import choose_columns
from offaxis.vectors import Vectors

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
        randomizer: str = "privunit2-mean",
        reshaping: Literal["centre", "none"] = "none",
    ) -> DirectGradient:
        """Fit to public per-sample gradients (n, d): groups of ``samples`` give public means."""
        means = group_means(public, samples)
        release = fit(
            None,
            means,
            epsilon=epsilon,
            delta=delta,
            randomizer=randomizer,
            reshaping=reshaping,
            unit="user",
        )
        _ = release.decoder_of_means  # refuses a biased one before any client reports
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
        report = self.release.privatize(_bounded(mean))
        assert isinstance(report, bytes)
        return (report,)

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,), without bias but for clipping."""
        reports = _bundle(bundle, self.reports)
        decoded: Vectors = self.release.decoder_of_means.decode(self.release.observe(reports))[0]
        return decoded


@dataclass(frozen=True, eq=False)
class PermutedGradients:
    """Every coordinate's per-sample values as a vector of its own, at ε/d each.

    Parameters
    ----------
    release : Release
        Of vectors with one number a sample, at ε/d.
    scales : array (d,)
        Public size of each coordinate; columns are divided by it.

    Examples
    --------
    >>> from offaxis.federated import PermutedGradients
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))
    >>> recipe = PermutedGradients.fit(public, samples=20, epsilon=4)
    >>> recipe.release.guarantee.epsilon, recipe.guarantee.epsilon, recipe.reports, recipe.samples
    (Fraction(4, 5), Fraction(4, 1), 5, 20)
    >>> bundle = recipe.report(rng.normal(0.3, 1, (20, 5)))
    >>> len(bundle), recipe.decode(bundle).shape == (recipe.dim,)
    (5, True)
    """

    release: Release
    scales: Vectors = field(repr=False)

    @classmethod
    def fit(
        cls,
        public: Any,
        *,
        samples: int,
        epsilon: Any,
        delta: Any = None,
        randomizer: str = "laplace",
        reshaping: Literal["jacobian", "optimal", "centre", "none"] = "jacobian",
    ) -> PermutedGradients:
        """Fit to public per-sample gradients (n, d): groups of ``samples`` give public columns."""
        scales = coordinate_scales(public)
        release = fit(
            np.full((1, samples), 1 / samples),
            columns(public, samples, scales),
            epsilon=exact_epsilon(epsilon) / len(scales),
            delta=None if delta is None else exact(delta, "delta") / len(scales),
            randomizer=randomizer,
            reshaping=reshaping,
        )
        _ = release.decoder_of_means
        return cls(release, scales)

    @property
    def samples(self) -> int:
        """How many per-sample gradients a client gives."""
        return self.release.input_dim

    @property
    def dim(self) -> int:
        """Numbers in a gradient."""
        return len(self.scales)

    @property
    def reports(self) -> int:
        """Reports in a client's bundle: one a coordinate."""
        return self.dim

    @property
    def guarantee(self) -> Guarantee:
        """What a client's bundle promises: d times ε/d, exactly."""
        return total(self.release, self.reports)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle."""
        rows = checked_rows(gradients, self.samples, self.dim)
        order = choose_columns(self.samples, self.samples, self.dim, Entropy())
        with np.errstate(all="ignore"):
            permuted = np.take_along_axis(rows.T / self.scales[:, None], order, axis=1)
        reports = self.release.privatize(_bounded(permuted))
        assert isinstance(reports, list)
        return tuple(reports)

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,): decode each column and apply W."""
        reports = _bundle(bundle, self.reports)
        decoded = self.release.decoder_of_means.decode(self.release.observe(reports))
        mean: Vectors = decoded.mean(axis=1) * self.scales
        return mean


LocalGradients = DirectGradient | PermutedGradients
"""Either form: ``guarantee``, ``report`` on the client, ``decode`` on the server."""


def checked_rows(gradients: Any, samples: int, dim: int) -> Vectors:
    """Return a client's gradients (samples, d); those that are not finite are zero."""
    rows = usable_rows(gradients, dim, "gradients")
    if len(rows) != samples:
        raise InvalidInput(
            f"a client gives exactly {samples} per-sample gradients, got {len(rows)}; take a "
            f"batch of that size, chosen without looking at the gradients"
        )
    return rows


def _bounded(vectors: Vectors) -> Vectors:
    """Return the largest number where a computation has overflowed: it is clipped all the same."""
    return np.nan_to_num(vectors)


def _bundle(bundle: Iterable[bytes], reports: int) -> list[bytes]:
    found = list(bundle)
    if len(found) != reports:
        raise InvalidReport(f"a bundle has {reports} reports here, got {len(found)}")
    return found
