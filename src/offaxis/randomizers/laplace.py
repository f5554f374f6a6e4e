"""Laplace noise on the ℓ1 ball: pure ε.

The exact form works on integers (pure_lattice_form.py): the input is clipped, truncated toward zero
to integers n with Σ|n_i| <= R (checked in integers), and every coordinate gets independent discrete
Laplace noise of scale t, whose law falls by e^{Σ|k_i|/t} over a step k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offaxis.randomizers.pure_lattice_form import PureLatticeForm
from offaxis.sampling.discrete_laplace import DiscreteLaplace
from offaxis.sampling.draws import Array, Rng
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.simulation import add_laplace
from offaxis.vectors import Vectors, row_norms

_TAIL: Final = 44

_sampler = lru_cache(maxsize=32)(DiscreteLaplace)


@dataclass(frozen=True)
class Laplace(PureLatticeForm):
    """Laplace randomizer on the ℓ1 ball of ``radius`` in R^dim.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace
    >>> randomizer = Laplace(dim=64, radius=1.0, epsilon=5)
    >>> randomizer.scale, randomizer.realised_epsilon  # b = 2ρ/ε, and what is really spent
    (0.4, Fraction(5, 1))
    >>> round(randomizer.expected_squared_error(), 2)  # 64 · 2b²
    20.48
    >>> randomizer.noise_steps, randomizer.tail, randomizer.width  # t, free above, bytes
    (131072, 44, 3)
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer.noise(4, Entropy()).dtype, randomizer.noise_each(4, [Entropy()] * 2).shape
    (dtype('int64'), (2, 4))
    >>> here, there = randomizer.worst_pair()
    >>> V = randomizer.simulate(np.array([here]), np.random.default_rng(0))
    >>> here, there = (randomizer.log_density(V, np.array([w]))[0] for w in (here, there))
    >>> bool(abs(here - there) <= 5 + 1e-9)  # no observation tells the worst pair better apart
    True
    """

    kind: ClassVar[str] = "laplace"
    wire_id: ClassVar[int] = 1
    order: ClassVar[Literal[1, 2]] = 1

    @property
    def tail(self) -> int:
        """Noise scales that one coordinate exceeds with probability e**-44."""
        return _TAIL

    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw discrete Laplace noise."""
        return _sampler(self.log2_scale, 8 * self.width).draw(count, entropy)

    def noise_each(self, count: int, sources: Sequence[RealEntropy]) -> NDArray[np.int64]:
        """Draw discrete Laplace noise, a row from every source."""
        return _sampler(self.log2_scale, 8 * self.width).draw_each(count, sources)

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Clip and add continuous Laplace noise, in floating point; never a report."""
        return add_laplace(self.domain.project(W), self.scale, rng)

    def log_density(self, V: Vectors, W: Vectors) -> NDArray[np.float64]:
        """Return −‖v − clip(w)‖₁ / b, the log density up to a constant independent of w."""
        return -row_norms(V - self.domain.project(W), 1) / self.scale

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> NDArray[np.float64]:
        """Return −‖y − n‖₁ / t of the integers y on the wire."""
        return -row_norms(self.gaps(payloads, W), 1)

    def expected_squared_error(self) -> float:
        """Return dim times the variance of the discrete Laplace law, in the input's units."""
        return self.dim * self.step**2 / (2 * math.sinh(0.5 / self.noise_steps) ** 2)
