"""PrivUnit2 and PrivUnitG: pure ε on directions, near the best possible error for large ε.

The density of the ideal report given direction u is e^ε on ``{v : ⟨v, u⟩ >= γ}`` and 1 outside, up
to one normaliser that does not depend on u. What is released is its rank form (rank_form.py), with
the same guarantee and, by default, 99.5 % of its correlation with the input; ``simulate`` draws
from the law of that form. The length of the input is forgotten: every vector is reported as ρ times
its direction, which makes a mean over people biased (``unbiased`` is False) unless ``target`` is
"vector" (sign_flip.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri, stdtr

from offaxis.arrays import namespace
from offaxis.errors import InvalidInput
from offaxis.randomizers.directions import Nonces, spread
from offaxis.randomizers.privunit_calibration import (
    Cap,
    angle_moment,
    chi_nodes,
    gaussian_cap,
    normalised_mean,
    normalising_factor,
    sphere_cap,
)
from offaxis.randomizers.rank_form import RankForm
from offaxis.randomizers.ranks import Ranks
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.quantiles import cosine, deviate
from offaxis.sampling.simulation import gaussian_towards, towards
from offaxis.vectors import Vectors, row_dots, row_norms

_DENSITY_NUMBERS: Final = 1 << 16
_ALONG: Final = np.array(True)


@dataclass(frozen=True)
class PrivUnit2(RankForm):
    """PrivUnit2 on S^{dim−1} (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018).

    In one dimension it is the sign, told truly with probability e^ε / (e^ε + 1).

    Examples
    --------
    >>> from offaxis.randomizers import PrivUnit2
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = PrivUnit2(dim=64, radius=1.0, epsilon=5)
    >>> randomizer.directions, randomizer.near, randomizer.payload_size  # 16 bytes
    (572, 19, 16)
    >>> round(randomizer.mean / randomizer.ideal_mean, 3)  # of the correlation of the ideal law
    0.995
    >>> observed = randomizer.read(randomizer.report(np.eye(64)[:1], Entropy()))
    >>> round(float(np.linalg.norm(observed)) * randomizer.mean, 6)  # length ρ/A, so unbiased
    1.0
    """

    kind: ClassVar[str] = "privunit2"
    wire_id: ClassVar[int] = 3
    ranked_by_angle: ClassVar[bool] = True

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε and dimension."""
        return sphere_cap(float(self.epsilon), self.dim)

    @property
    def ideal_mean(self) -> float:
        """A of the optimal cap."""
        return self.cap.mean

    def _mean(self, ranks: Ranks) -> float:
        if self.dim == 1:  # both directions have |t| = 1, so every pair has one near vector to give
            return (
                ranks.near / ranks.pairs * ranks.expectation(lambda tail: np.full_like(tail, 0.5))
            )
        return ranks.expectation(lambda tail: angle_moment(self._quantile(tail), self.dim))

    def _quantile(self, tail: Vectors) -> Vectors:
        """Return (1 − t)/2 at the t >= 0 with Pr[|t| >= t] = tail."""
        shape = (self.dim - 1) / 2
        quantile: Vectors = betaincinv(shape, shape, tail / 2)
        return quantile

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return g / row_norms(g, 2)[:, None]

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw reports in floating point, already scaled to be unbiased for the target."""
        draws, xp = draws_from(rng, W), namespace(W)
        u = self._simulated_directions(W, draws)
        tail, forward = self.ranks.draw(len(u), draws)
        length = self.radius / self.mean
        if self.dim == 1:
            return xp.where(forward[:, None], length * u, -length * u)
        t = cosine(tail, self.dim)
        return towards(u, xp.where(forward, t, -t), length, draws)

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        cosine = row_dots(V, U) / row_norms(V, 2)
        return self.ranks.log_density(self._tail(np.abs(cosine)), cosine > 0)

    def _tail(self, cosine: Vectors) -> Vectors:
        """Return Pr[|t| >= cosine], by Student's law of t √(dim−1) / √(1 − t²)."""
        if self.dim == 1:
            return np.ones_like(cosine)
        sine = np.sqrt(np.maximum((1 - cosine) * (1 + cosine), 1e-300))
        tail: Vectors = 2 * stdtr(self.dim - 1, -cosine / sine * math.sqrt(self.dim - 1))
        return tail

    def expected_squared_error(self) -> float:
        """Return ρ² (1/A² − 1); a vector inside the ball, as target, has ρ² − ‖w‖² more."""
        return float(self.radius**2 * (1 / self.mean**2 - 1))


@dataclass(frozen=True)
class PrivUnitG(RankForm):
    """PrivUnitG (Asi, Feldman, Talwar 2022): a Gaussian in place of the uniform direction.

    Parameters
    ----------
    output : {"gaussian", "sphere"}
        Report the Gaussian vector itself (the original), or its direction (what the published
        tables of the reshaping paper use).

    Examples
    --------
    >>> from offaxis.randomizers import PrivUnitG
    >>> randomizer = PrivUnitG(dim=64, radius=1.0, epsilon=5, output="sphere")
    >>> round(randomizer.cap.mass, 4), round(randomizer.ideal_mean, 2)
    (0.0321, 0.23)
    """

    kind: ClassVar[str] = "privunitg"
    wire_id: ClassVar[int] = 4
    ranked_by_angle: ClassVar[bool] = False

    output: Literal["gaussian", "sphere"] = "gaussian"

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        if self.output not in ("gaussian", "sphere"):
            raise InvalidInput(f"output must be 'gaussian' or 'sphere', got {self.output!r}")
        super().__post_init__()

    @cached_property
    def cap(self) -> Cap:
        """The optimal cap for this ε; the dimension does not enter."""
        return gaussian_cap(float(self.epsilon))

    @property
    def ideal_mean(self) -> float:
        """The component of the ideal report: of the Gaussian vector, or of its direction."""
        if self.output == "gaussian":
            return self.cap.mean
        return normalised_mean(float(self.epsilon), self.dim)

    def _mean(self, ranks: Ranks) -> float:
        if self.output == "gaussian":
            return gaussian_mean(ranks)
        return ranks.expectation(self._direction_moment)

    def _direction_moment(self, tail: Vectors) -> Vectors:
        """Return E[t/‖v‖; t >= γ] at the γ of each tail, v Gaussian with component t."""
        threshold = -ndtri(tail / 2)
        if self.dim == 1:
            return tail / 2
        return _normal_density(threshold) * normalising_factor(threshold, self.dim)

    def _observed(self, g: Vectors, nonces: Nonces) -> Vectors:
        return g / (spread() if self.output == "gaussian" else row_norms(g, 2)[:, None])

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw reports in floating point, already scaled to be unbiased for the target."""
        draws = draws_from(rng, W)
        u = self._simulated_directions(W, draws)
        tail, forward = self.ranks.draw(len(u), draws)
        v = gaussian_towards(u, gaussian_component(tail, forward), draws)
        if self.output == "sphere":
            v /= row_norms(v, 2)[:, None]
        v *= self.radius / self.mean
        return v

    def _log_density(self, V: Vectors, U: Vectors) -> NDArray[np.float64]:
        component = row_dots(V, U)
        if self.output == "gaussian":
            return gaussian_log_density(self.ranks, component * (self.mean / self.radius))
        # The direction is what is left of the vector when its length, r ~ χ_dim, is forgotten.
        cosine = component / row_norms(V, 2)
        lengths, weights = chi_nodes(self.dim)
        # The ratio lies between 1 and e^ε: what is rarer than its rounding is left out.
        counts = weights > 1e-18 * math.exp(-float(self.epsilon))
        lengths, weights = lengths[counts], weights[counts]
        density = np.zeros(len(V))
        forward = np.flatnonzero(cosine > 0)  # away from w it is flat
        step = max(1, _DENSITY_NUMBERS // lengths.size)
        for start in range(0, forward.size, step):
            row = forward[start : start + step]
            ratio = np.exp(self.ranks.log_density(2 * ndtr(-cosine[row, None] * lengths), _ALONG))
            density[row] = np.log(ratio @ weights)
        return density

    def expected_squared_error(self) -> float:
        """Return ρ² ((dim − 1 + E t²)/A² − 1) for the Gaussian form, ρ² (1/B² − 1) otherwise.

        A vector inside the ball, as target, has ρ² − ‖w‖² more.
        """
        energy = 1.0
        if self.output == "gaussian":
            energy = self.dim - 1 + gaussian_square(self.ranks)
        return float(self.radius**2 * (energy / self.mean**2 - 1))


def gaussian_mean(ranks: Ranks) -> float:
    """Return E t, t the component along the input of a Gaussian vector reported by rank."""
    return ranks.expectation(lambda tail: _normal_density(-ndtri(tail / 2)))


def gaussian_square(ranks: Ranks) -> float:
    """Return E t² of that component."""
    return ranks.background + ranks.expectation(_square_moment)


def gaussian_component(tail: Array, forward: Array) -> Array:
    """Return the component with Pr[|t| >= …] = tail on the given side, as the ranks draw them."""
    t = deviate(tail)
    return namespace(tail).where(forward, t, -t)


def gaussian_log_density(ranks: Ranks, component: Vectors) -> Vectors:
    """Return the log density of reports with these components, against the public law."""
    return ranks.log_density(2 * ndtr(-np.abs(component)), component > 0)


def _normal_density(x: Vectors) -> Vectors:
    """Return φ(x), which is also E[t; t >= x]."""
    density: Vectors = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _square_moment(tail: Vectors) -> Vectors:
    """Return E[t²; t >= γ] = γ φ(γ) + Q(γ) at the γ of each tail."""
    threshold = -ndtri(tail / 2)
    moment: Vectors = threshold * _normal_density(threshold) + tail / 2
    return moment
