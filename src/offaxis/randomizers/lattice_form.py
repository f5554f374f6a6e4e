"""Noise on a lattice: what the additive randomizers share.

The ball is laid on integers (lattice.py), integer noise that was drawn before the input was clipped
is added, the sum is clamped to what the payload carries (payload.py). What a subclass adds is the
law of the noise and the argument that it keeps the promise for points at most twice the bound
apart.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offaxis.randomizers.base import checked
from offaxis.randomizers.domain import Ball, opposite_poles
from offaxis.randomizers.lattice import onto_lattice
from offaxis.randomizers.payload import Width, pack, unpack
from offaxis.randomizers.vector_parameters import VectorParameters
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.vectors import Vectors


@dataclass(frozen=True)
class LatticeForm(VectorParameters):
    """Additive noise on the lattice of a ball; see the subclasses for the parameters."""

    @property
    @abstractmethod
    def bound(self) -> int:
        """R: the radius of the encoded ball, in lattice steps."""

    @property
    @abstractmethod
    def noise_steps(self) -> int:
        """The scale of the noise, in lattice steps."""

    @property
    @abstractmethod
    def width(self) -> Width:
        """Bytes a coordinate: three, or four where three would make the lattice too coarse."""

    @property
    @abstractmethod
    def domain(self) -> Ball:
        """The ball whose points are encoded."""

    @abstractmethod
    def noise(self, count: int, entropy: RealEntropy) -> NDArray[np.int64]:
        """Draw the noise of ``count`` coordinates, exactly."""

    @property
    def step(self) -> float:
        """g: the length of one lattice step."""
        return self.radius / self.bound

    @property
    def scale(self) -> float:
        """The scale of the noise in the units of the input."""
        return self.step * self.noise_steps

    @property
    def unbiased(self) -> bool:
        """True: the noise has mean zero (truncation to the lattice moves less than one step)."""
        return True

    @property
    def payload_size(self) -> int:
        """``width`` bytes a coordinate."""
        return self.width * self.dim

    def noise_each(self, count: int, sources: Sequence[RealEntropy]) -> NDArray[np.int64]:
        """Draw a row of noise from every source: what ``noise`` would draw from it alone."""
        return np.stack([self.noise(count, entropy) for entropy in sources])

    def report_each(self, W: Vectors, sources: Sequence[RealEntropy]) -> list[bytes]:
        """Return what ``report`` would of every row of W alone, each from its own source."""
        W = checked(W, self.dim, *sources)
        noise = self.noise_each(self.dim, sources)
        if noise.shape != W.shape:
            raise ValueError(f"{len(W)} rows need as many sources, got {len(sources)}")
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def report(self, W: Vectors, entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a row of W."""
        W = checked(W, self.dim, entropy)
        # The noise is drawn from the entropy alone, before the input is clipped.
        noise = self.noise(W.size, entropy).reshape(W.shape)
        with np.errstate(all="ignore"):
            return pack(self.integers(W) + noise, self.width)

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return what the noise is added to: lattice points inside the bound, checked."""
        return onto_lattice(W, self.domain, self.bound)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the noisy lattice points, in the units of the input."""
        return unpack(payloads, self.dim, self.width).astype(np.float64) * self.step

    def gaps(self, payloads: list[bytes], W: Vectors) -> Vectors:
        """Return (y − n) in noise scales: the noise that each payload would stand for, given W."""
        y = unpack(payloads, self.dim, self.width)
        gap: Vectors = (y - self.integers(W)) / float(self.noise_steps)
        return gap

    def worst_pair(self) -> tuple[Vectors, Vectors]:
        """Return two opposite poles of the ball."""
        return opposite_poles(self.dim, self.radius)
