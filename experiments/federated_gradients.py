"""Ways to release per-sample gradients, from the paper's federated appendix. For studies only.

The paper names two conventional methods and its own. docs/federated.md has figures. The package has
one form only, :class:`offaxis.federated.DirectGradient`: noise on the mean, which is clipped
itself. It is the most accurate local form at the same guarantee for a client.

- :class:`PerSampleGradients`, the first conventional one: every per-sample gradient is randomized
  before the mean is taken.
- :class:`NoisyMeanGradient`, the second one as the paper states it: every per-sample gradient is
  bounded, and noise for the sensitivity of the mean is added to their mean. A simulation.
- :class:`PermutedGradients`: for each of the d coordinates, the vector of its N per-sample values
  is released, with the noise moved away from the one direction that the server reads,
  W = 1/N · 1ᵀ. As in the paper, the columns are permuted in a secret order. This adds nothing to
  the guarantee, which is that of the randomizer for every order.
- :class:`CentralPermutedGradients`: the same under central differential privacy, with a trusted
  aggregator that holds all gradients and adds the noise. It can only be simulated.

What a guarantee protects differs, and so figures at the same ε do not compare directly:

==========================  =====================  =========================================
form                        reports of a client    whole client protected at ε / one sample at ε
==========================  =====================  =========================================
per sample                  N                      ε/N per report / ε per report
noisy mean                  1                      noise for Δ = 2ρ / for Δ = 2ρ/N
permuted                    d                      ε/d per report / the same
direct (package)            1                      ε / the same
central (no local report)   0                      noise for k = N rows / for k = 1 row
==========================  =====================  =========================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal, get_args

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.federated.local import bounded, bundle_of, checked_rows, client_groups, total
from offaxis.fitting import fit
from offaxis.privacy.guarantee import (
    ALWAYS,
    Guarantee,
    decimal,
    exact,
    exact_delta,
    exact_epsilon,
)
from offaxis.randomizers.gaussian import noise_scale
from offaxis.release import Release
from offaxis.sampling.choices import choose_columns
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch, as_integer, row_norms

__all__ = [
    "CentralPermutedGradients",
    "NoisyMeanGradient",
    "PerSampleGradients",
    "PermutedGradients",
    "Protects",
]

Protects = Literal["client", "sample"]

_ONE_SAMPLE: Final = (
    "one sample of a client is protected at a time, and appears in one report only: all N samples "
    "of the client together are protected at N times ε"
)


def _checked(protects: Protects) -> Protects:
    if protects not in get_args(Protects):
        raise InvalidInput(f"protects must be 'client' or 'sample', got protects={protects!r}")
    return protects


# ---- Every sample by itself


@dataclass(frozen=True, eq=False)
class PerSampleGradients:
    """Randomizes each of a client's N per-sample gradients; the server averages N reports.

    Accounting. Every gradient is one report of the whole d-dimensional vector, so there is no
    composition over coordinates. What the N reports cost depends on what is protected:

    - ``protects="client"``: replacing all data of a client changes all N reports. Their losses add
      up, so each report gets ε/N, and N · (ε/N) = ε exactly.
    - ``protects="sample"``: replacing one sample changes one report and no other (parallel
      composition), so each report gets the full ε. The client as a whole is protected at N·ε only,
      and a person with several samples pays for each.

    Error: N reports of variance V average to V/N. With Laplace noise and a client protected, V
    grows like (N/ε)², so the mean has N times the error of one report of the same radius at ε;
    single gradients are also longer than their mean, so their radius is larger.

    Parameters
    ----------
    release : Release
        For d-dimensional gradients, with the ε of one report.
    samples : int
        N, the number of per-sample gradients of a client.
    protects : {"client", "sample"}

    Examples
    --------
    >>> from experiments.federated_gradients import PerSampleGradients
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))
    >>> client = PerSampleGradients.fit(public, samples=20, epsilon=4, protects="client")
    >>> client.release.guarantee.epsilon, client.guarantee.epsilon
    (Fraction(1, 5), Fraction(4, 1))
    >>> sample = PerSampleGradients.fit(public, samples=20, epsilon=4, protects="sample")
    >>> sample.release.guarantee.epsilon, sample.guarantee.epsilon, sample.guarantee.unit
    (Fraction(4, 1), Fraction(4, 1), 'item')
    >>> bundle = sample.report(rng.normal(0.3, 1, (20, 5)))
    >>> len(bundle), sample.decode(bundle).shape
    (20, (5,))
    """

    release: Release
    samples: int
    protects: Protects

    @classmethod
    def fit(
        cls,
        public: Any,
        *,
        samples: int,
        epsilon: Any,
        protects: Protects,
        delta: Any = None,
        mechanism: str = "laplace",
        reshaping: Literal["centre", "none"] = "none",
    ) -> PerSampleGradients:
        """Fit to public per-sample gradients (n, d); ε and δ are those of the whole bundle."""
        samples = as_integer(samples, "samples", 1)
        share = samples if _checked(protects) == "client" else 1
        release = fit(
            None,
            public,
            epsilon=exact_epsilon(epsilon) / share,
            delta=None if delta is None else exact(delta, "delta") / share,
            mechanism=mechanism,
            reshaping=reshaping,
        )
        _ = release.unbiased_decoder
        return cls(release, samples, protects)

    @property
    def dim(self) -> int:
        """The dimension of a gradient."""
        return self.release.input_dim

    @property
    def reports(self) -> int:
        """The number of reports in a client's bundle: one per sample."""
        return self.samples

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a bundle, for the unit that ``protects`` names."""
        if self.protects == "client":
            return total(self.release, self.reports)
        single = self.release.guarantee
        return Guarantee(single.epsilon, single.delta, "item", (*ALWAYS, _ONE_SAMPLE))

    @property
    def client_guarantee(self) -> Guarantee:
        """The guarantee of a bundle for the whole client, whatever ``protects`` is."""
        return total(self.release, self.reports)

    def report(self, gradients: Any) -> tuple[bytes, ...]:
        """Turn a client's gradients (samples, d) into its bundle, in the order of the samples."""
        rows = checked_rows(gradients, self.samples, self.dim)
        reports = self.release.privatize(bounded(rows))
        assert isinstance(reports, list)
        return tuple(reports)

    def decode(self, bundle: Iterable[bytes]) -> Vectors:
        """Estimate the client's mean gradient, (d,): the mean of the decoded reports."""
        reports = bundle_of(bundle, self.reports)
        decoded = self.release.unbiased_decoder.decode(self.release.observe(reports))
        mean: Vectors = decoded.mean(axis=0)
        return mean


# ---- Noise on the mean of bounded gradients


@dataclass(frozen=True)
class NoisyMeanGradient:
    """Bounds every per-sample gradient, and adds Laplace noise to their mean: a simulation.

    Contract: simulates an ε release of one client's mean gradient. It makes no reports, its noise
    is floating point, and the guarantee is that of the formula below, with continuous noise.

    Accounting. Each gradient is clipped to ‖g‖₁ ≤ ρ. The mean of N is one vector, so nothing is
    composed over coordinates: Laplace noise of scale Δ/ε on every coordinate is ε for the ℓ1
    sensitivity Δ of the whole vector, by replacement:

    - ``protects="client"``: all N gradients are replaced. The mean moves by at most Δ = 2ρ: the
      diameter of the ball, for every N.
    - ``protects="sample"``: one gradient is replaced. The mean moves by at most Δ = 2ρ/N. The whole
      client is then protected at N·ε only (attained: all gradients at opposite corners).

    Error: 2(Δ/ε)² per coordinate, and the bias of the clipping. :class:`DirectGradient` protects
    the client with a smaller radius, because the mean is shorter than its terms.

    Attributes
    ----------
    samples, dim : int
        N and d.
    clip : float
        ρ, public.
    epsilon : Fraction
    protects : {"client", "sample"}

    Examples
    --------
    >>> from experiments.federated_gradients import NoisyMeanGradient
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))
    >>> client = NoisyMeanGradient.fit(public, samples=20, epsilon=4, protects="client")
    >>> sample = NoisyMeanGradient.fit(public, samples=20, epsilon=4, protects="sample")
    >>> client.sensitivity == 2 * client.clip == 20 * sample.sensitivity
    True
    >>> sample.client_epsilon
    Fraction(80, 1)
    >>> client.simulate(rng.normal(0.3, 1, (20, 5)), rng).shape
    (5,)
    """

    samples: int
    dim: int
    clip: float
    epsilon: Fraction
    protects: Protects

    @classmethod
    def fit(
        cls,
        public: Any,
        *,
        samples: int,
        epsilon: Any,
        protects: Protects,
        percentile: float = 90.0,
    ) -> NoisyMeanGradient:
        """Take the clipping norm from public per-sample gradients (n, d), at a percentile."""
        gradients, _ = as_batch(public, None, "public")
        return cls(
            samples=as_integer(samples, "samples", 1),
            dim=gradients.shape[1],
            clip=_public_clip(gradients, 1, percentile),
            epsilon=exact_epsilon(epsilon),
            protects=_checked(protects),
        )

    @property
    def sensitivity(self) -> float:
        """Δ, how far the mean moves in ℓ1 if the protected unit is replaced."""
        return 2 * self.clip / (self.samples if self.protects == "sample" else 1)

    @property
    def scale(self) -> float:
        """The scale of the Laplace noise, Δ/ε."""
        return self.sensitivity / float(self.epsilon)

    @property
    def client_epsilon(self) -> Fraction:
        """The ε of the whole client, whatever ``protects`` is."""
        return self.epsilon * (self.samples if self.protects == "sample" else 1)

    def bounded_mean(self, gradients: Any) -> Vectors:
        """Return the mean of the clipped gradients, (d,), before the noise."""
        rows = checked_rows(gradients, self.samples, self.dim)
        mean: Vectors = _clipped(rows, 1, self.clip).mean(axis=0)
        return mean

    def simulate(self, gradients: Any, rng: np.random.Generator) -> Vectors:
        """Return the noisy mean gradient, (d,)."""
        return self.bounded_mean(gradients) + rng.laplace(0, self.scale, self.dim)


def _public_clip(gradients: Vectors, order: Literal[1, 2], percentile: float) -> float:
    clip = float(np.percentile(row_norms(gradients, order), percentile))
    if not clip > 0:
        raise InvalidInput("public gradients are all zero; nothing can be fitted to them")
    return clip


def _clipped(rows: Vectors, order: Literal[1, 2], clip: float) -> Vectors:
    factor = clip / np.maximum(row_norms(rows, order), clip)
    clipped: Vectors = rows * factor[:, None]
    return clipped


# ---- The columns of a client's gradients


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
    >>> from experiments.federated_gradients import PermutedGradients
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


# ---- The same for a trusted aggregator


@dataclass(frozen=True)
class CentralPermutedGradients:
    """The permuted form under *central* differential privacy: a trusted aggregator adds the noise.

    Contract: simulates the (ε, δ) central release of M per-sample gradients as d permuted columns,
    with the noise moved off W = 1/M · 1ᵀ. It makes no reports, its noise is floating point, and the
    guarantee is that of the formula below, with continuous noise. For use, the package has secure
    aggregation (:class:`offaxis.federated.SecureAggregationPlan`), which needs no trusted party.

    Accounting. Each gradient is clipped to ‖g‖₂ ≤ C. Neighbouring inputs differ in k of the M rows,
    replaced by any others: k = 1 protects a sample, k = N the whole client. A matrix L with scale
    λ₁ = 1 along 1/√M · 1 and λ = s in all other directions gives the d columns *together* the ℓ2
    sensitivity

        Δ² = 4C² [k²/M + (k − k²/M) / s],

    because ‖L⁻¹Δ_j‖² = (Σ_i Δ_ij)²/M + (‖Δ_j‖² − (Σ_i Δ_ij)²/M)/s is the same for every order of
    column j, ‖Σ_i Δ_i‖ ≤ 2Ck, and Σ_i ‖Δ_i‖² ≤ 4C²k. The Gaussian noise σ is calibrated once to Δ
    (Balle and Wang 2018), so nothing is composed over coordinates: d columns of ε/d each would
    need more noise. The order of the columns protects nothing.

    Error: the mean of the released columns has the variance σ²/M per coordinate. For s = 1 (no
    reshaping) and k = 1 that is M times the variance of noise on the mean itself; as s → ∞ it falls
    to that variance, (2Ck/M)² in place of Δ²/M, and never below. (Paper: federated appendix, "can
    also be extended to central differential privacy".)

    Attributes
    ----------
    rows : int
        M, the number of gradients the aggregator holds.
    dim : int
        d, the dimension of a gradient.
    clip : float
        C, public.
    replaced : int
        k, the number of rows that one protected unit holds.
    stretch : float
        s, λ_max/λ₁.
    epsilon, delta : Fraction

    Examples
    --------
    >>> from experiments.federated_gradients import CentralPermutedGradients
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(0.3, 1, (400, 5))
    >>> sample = CentralPermutedGradients.fit(public, rows=1000, replaced=1, epsilon=1, delta=1e-5)
    >>> print(sample.guarantee)
    ε = 1, δ = 1e-05, central: any 1 of 1000 rows replaced; the aggregator is trusted
    >>> released = sample.simulate(rng.normal(0.3, 1, (1000, 5)), rng)
    >>> released.shape, sample.decode(released).shape
    ((1000, 5), (5,))
    """

    rows: int
    dim: int
    clip: float
    replaced: int
    stretch: float
    epsilon: Fraction
    delta: Fraction

    @classmethod
    def fit(
        cls,
        public: Any,
        *,
        rows: int,
        replaced: int,
        epsilon: Any,
        delta: Any,
        stretch: float = 1000.0,
        percentile: float = 99.0,
    ) -> CentralPermutedGradients:
        """Take the clipping norm from public per-sample gradients (n, d), at a percentile."""
        gradients, _ = as_batch(public, None, "public")
        clip = _public_clip(gradients, 2, percentile)
        if as_integer(replaced, "replaced", 1) > as_integer(rows, "rows", 1):
            raise InvalidInput(f"replaced must be at most rows={rows}, got replaced={replaced}")
        if not 1 <= stretch < np.inf:
            raise InvalidInput(f"stretch must be finite and at least 1, got stretch={stretch}")
        return cls(
            rows=rows,
            dim=gradients.shape[1],
            clip=clip,
            replaced=replaced,
            stretch=float(stretch),
            epsilon=exact_epsilon(epsilon),
            delta=exact_delta(delta),
        )

    @property
    def guarantee(self) -> str:
        """The guarantee in words; it is not local, so it is no ``Guarantee``."""
        return (
            f"ε = {decimal(self.epsilon)}, δ = {decimal(self.delta)}, central: any "
            f"{self.replaced} of {self.rows} rows replaced; the aggregator is trusted"
        )

    @property
    def sensitivity(self) -> float:
        """Δ, the ℓ2 sensitivity of all encoded columns together."""
        along = self.replaced**2 / self.rows
        return float(2 * self.clip * np.sqrt(along + (self.replaced - along) / self.stretch))

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on every encoded number."""
        return noise_scale(self.sensitivity, float(self.epsilon), float(self.delta))

    @property
    def mean_variance(self) -> float:
        """The variance of each coordinate of the decoded mean: σ²/M."""
        return self.sigma**2 / self.rows

    @property
    def direct_variance(self) -> float:
        """The variance if the noise were added to the mean itself, of sensitivity 2Ck/M."""
        sensitivity = 2 * self.clip * self.replaced / self.rows
        return noise_scale(sensitivity, float(self.epsilon), float(self.delta)) ** 2

    def encode(self, columns: Vectors) -> Vectors:
        """Apply L⁻¹ to every column of (M, d): 1 along the mean, 1/√s in all other directions."""
        return self._scaled(columns, 1 / np.sqrt(self.stretch))

    def simulate(self, gradients: Any, rng: np.random.Generator) -> Vectors:
        """Return the columns as released, (M, d): clipped, permuted, and with noise."""
        rows = checked_rows(gradients, self.rows, self.dim)
        permuted = rng.permuted(_clipped(rows, 2, self.clip), axis=0)
        encoded = self.encode(permuted) + rng.normal(0, self.sigma, permuted.shape)
        return self._scaled(encoded, np.sqrt(self.stretch))

    def decode(self, released: Vectors) -> Vectors:
        """Estimate the mean gradient, (d,): apply W to every column."""
        mean: Vectors = released.mean(axis=0)
        return mean

    def _scaled(self, columns: Vectors, across: float) -> Vectors:
        """Scale all directions but that of the mean: the symmetric root of L Lᵀ, in O(M)."""
        mean: Vectors = columns.mean(axis=0)
        scaled: Vectors = mean + across * (columns - mean)
        return scaled
