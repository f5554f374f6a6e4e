"""Permuted per-sample gradients, as sketched in the paper's federated section. For studies only.

For each of the d coordinates, the vector of its N per-sample values is released, with the noise
moved away from the one direction that the server reads, W = 1/N · 1ᵀ. Each column gets ε/d, because
the losses of a client's d reports add up. W has rank one, so the server learns one number from a
column, and the direct release of the mean (:class:`offaxis.federated.DirectGradient`) is at least
as good; figures are in docs/federated.md. As in the paper, the columns are permuted in a secret
order. This adds nothing to the guarantee, which is that of the randomizer for every order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.federated.local import bounded, bundle_of, checked_rows, client_groups, total
from offaxis.fitting import fit
from offaxis.privacy.guarantee import Guarantee, exact, exact_epsilon
from offaxis.release import Release
from offaxis.sampling.choices import choose_columns
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch

__all__ = ["PermutedGradients"]


def coordinate_scales(public: Any) -> Vectors:
    """Return the root mean square of every coordinate; always-zero ones get the largest."""
    rows, _ = as_batch(public, None, "public")
    scales: Vectors = np.sqrt(np.mean(rows * rows, axis=0))
    if not scales.max() > 0:
        raise InvalidInput("public gradients are all zero; nothing can be fitted to them")
    return np.where(scales > 0, scales, scales.max())


def columns(public: Any, samples: int, scales: Vectors) -> Vectors:
    """Return public vectors of per-sample values, one per group and coordinate: (groups·d, N)."""
    rows: Vectors = (
        (client_groups(public, samples) / scales).transpose(0, 2, 1).reshape(-1, samples)
    )
    return rows


@dataclass(frozen=True, eq=False)
class PermutedGradients:
    """Releases the per-sample values of each coordinate as one vector, at ε/d each.

    Parameters
    ----------
    release : Release
        For vectors with one number per sample, at ε/d.
    scales : array (d,)
        Public scale of each coordinate; columns are divided by it.

    Examples
    --------
    >>> from experiments.permuted_gradients import PermutedGradients
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))
    >>> permuted = PermutedGradients.fit(public, samples=20, epsilon=4)
    >>> bundle = permuted.report(rng.normal(0.3, 1, (20, 5)))
    >>> len(bundle), permuted.decode(bundle).shape
    (5, (5,))
    >>> permuted.release.guarantee.epsilon, permuted.guarantee.epsilon
    (Fraction(4, 5), Fraction(4, 1))
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
        mechanism: str = "laplace",
        reshaping: Literal["jacobian", "optimal", "centre", "none"] = "jacobian",
    ) -> PermutedGradients:
        """Fit to public per-sample gradients (n, d): groups of ``samples`` give public columns."""
        scales = coordinate_scales(public)
        release = fit(
            np.full((1, samples), 1 / samples),
            columns(public, samples, scales),
            epsilon=exact_epsilon(epsilon) / len(scales),
            delta=None if delta is None else exact(delta, "delta") / len(scales),
            mechanism=mechanism,
            reshaping=reshaping,
        )
        _ = release.unbiased_decoder
        return cls(release, scales)

    @property
    def samples(self) -> int:
        """The number of per-sample gradients of a client."""
        return self.release.input_dim

    @property
    def dim(self) -> int:
        """The dimension of a gradient."""
        return len(self.scales)

    @property
    def reports(self) -> int:
        """The number of reports in a client's bundle: one per coordinate."""
        return self.dim

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a client's bundle: d times ε/d, exactly."""
        return total(self.release, self.reports)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle."""
        rows = checked_rows(gradients, self.samples, self.dim)
        order = choose_columns(self.samples, self.samples, self.dim, Entropy())
        with np.errstate(all="ignore"):
            permuted = np.take_along_axis(rows.T / self.scales[:, None], order, axis=1)
        reports = self.release.privatize(bounded(permuted))
        assert isinstance(reports, list)
        return tuple(reports)

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,): decode each column and apply W."""
        reports = bundle_of(bundle, self.reports)
        decoded = self.release.unbiased_decoder.decode(self.release.observe(reports))
        mean: Vectors = decoded.mean(axis=1) * self.scales
        return mean
