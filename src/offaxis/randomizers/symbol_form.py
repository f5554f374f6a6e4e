"""Pure reports of one symbol out of k: what randomized response and subset selection share.

A payload names a set of d symbols. Sets that hold the own symbol weigh e^ε, all others 1, and there
are as many of each whatever the own symbol is: the normaliser is a constant, and no two symbols
differ by more than e^ε at any payload. Randomized response is the case d = 1.

With q = e^{−ε} and Z = d + (k − d) q the own symbol is named with probability a = d / Z, and any
other one with b = d (d − 1 + (k − d) q) / ((k − 1) Z). The observation (1[j named] − b) / (a − b)
has the one-hot vector of the own symbol as its mean, so means of observations are histograms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import device_of, has_device, namespace
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee, exact_epsilon
from offaxis.randomizers import base
from offaxis.randomizers.domain import FiniteSet
from offaxis.sampling.draws import Array
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.vectors import Vectors, as_integer

LARGEST_EPSILON: Final = 100
"""Beyond it a coin shows its other side less often than once in 2**144 throws."""

Symbols = NDArray[np.int64]


@dataclass(frozen=True)
class SymbolForm(ABC):
    """A pure randomizer on the symbols 0 … size − 1.

    Parameters
    ----------
    size : int
        k, at least 2.
    epsilon : number
        Promised ε, read exactly.
    """

    size: int
    epsilon: Fraction

    kind: ClassVar[str]
    largest_size: ClassVar[int]

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "size", as_integer(self.size, "size", 2, self.largest_size))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        base.check_budget(self.epsilon, LARGEST_EPSILON, self.kind)

    @property
    @abstractmethod
    def named(self) -> int:
        """d: how many symbols a payload names."""

    @property
    @abstractmethod
    def payload_size(self) -> int:
        """Bytes of one payload."""

    @property
    def domain(self) -> FiniteSet:
        """The symbols."""
        return FiniteSet(self.size)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def unbiased(self) -> bool:
        """True: the mean of the observation is the one-hot vector of the own symbol."""
        return True

    @property
    def _far_weight(self) -> float:
        """q = e^{−ε}."""
        return math.exp(-float(self.epsilon))

    @property
    def own_chance(self) -> float:
        """a: how likely the own symbol is named; reports use its exact value, not this one."""
        return self.named / (self.named + (self.size - self.named) * self._far_weight)

    @property
    def levels(self) -> tuple[float, float]:
        """The entries of an observation: −b / (a − b) if not named, (1 − b) / (a − b) if named.

        Written so that nothing cancels: the first is never positive, the second always is.
        """
        k, d, q = self.size, self.named, self._far_weight
        gap = -math.expm1(-float(self.epsilon))
        return -(d - 1 + (k - d) * q) / ((k - d) * gap), (d + (k - 1 - d) * q) / (d * gap)

    def expected_squared_error(self) -> float:
        """Return E‖observation − e_x‖², the same for every own symbol x.

        a (1 − a) / (a − b)² for the own entry and b (1 − b) / (a − b)² for each other, together
        (k − 1) ((Z − 1)(Z − q) + (k − 1) q) / (d (k − d) (1 − q)²).
        """
        k, d, q = self.size, self.named, self._far_weight
        gap = -math.expm1(-float(self.epsilon))
        spread = (d - 1 + (k - d) * q) * (d + (k - 1 - d) * q) + (k - 1) * q
        return (k - 1) * spread / (d * (k - d) * gap * gap)

    def worst_pair(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return two symbols, int64 of shape (): any two are told apart equally well."""
        return np.array(0, dtype=np.int64), np.array(1, dtype=np.int64)

    def log_density(self, V: Vectors, W: NDArray[Any]) -> Vectors:
        """Return ε where the observation names the own symbol and 0 elsewhere."""
        own = self.symbols(W)
        entries = np.take_along_axis(np.asarray(V), own[:, None], axis=1)[:, 0]
        return np.where(entries > 0, float(self.epsilon), 0.0)

    def symbols(self, W: Any) -> Symbols:
        """Return a copy of the input as symbols, or refuse it: nothing is clipped or rounded."""
        if isinstance(W, np.ma.MaskedArray):
            raise InvalidInput("symbols must not be masked: fill or drop masked entries first")
        try:
            own = np.array(W, order="C")
        except ValueError:
            raise InvalidInput("symbols must be one array of integers") from None
        if own.dtype.kind not in "iu" or own.ndim != 1 or not own.size:
            raise InvalidInput(
                f"symbols must be a non-empty array (n,) of integers, got shape {own.shape} "
                f"of dtype {own.dtype}"
            )
        if int(own.min()) < 0 or int(own.max()) >= self.size:
            place = int(np.flatnonzero((own < 0) | (own > self.size - 1))[0])
            raise InvalidInput(
                f"symbols must lie in 0..{self.size - 1}, got {own[place]} at index {place}"
            )
        return own.astype(np.int64, copy=False)

    def _simulated(self, W: Array) -> Array:
        """Return the symbols that a simulation randomizes, where they lie."""
        if not has_device(W):
            return self.symbols(W)
        if W.ndim != 1 or not namespace(W).isdtype(W.dtype, "integral"):
            raise InvalidInput(f"symbols must be (n,) integers, got {W.dtype} {tuple(W.shape)}")
        return W

    def _levels_at(self, named: Array, dtype: Any = np.float64) -> Array:
        """Return the observation of a mask of named symbols."""
        xp = namespace(named)
        low, high = (xp.asarray(x, dtype=dtype, device=device_of(named)) for x in self.levels)
        return xp.where(named, high, low)

    def _checked(self, W: Any, entropy: RealEntropy) -> Symbols:
        """Return a copy of the input after looking at the entropy, of which nothing is used yet.

        What is checked is what is released: nobody can change the copy afterwards.
        """
        base.require_entropy(entropy)
        return self.symbols(W)

    def _octets(self, payloads: list[bytes]) -> NDArray[np.uint8]:
        """Return the bytes of payloads in rows; a payload of another length is an error."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {self.kind} payload of {self.size} symbols has {size} bytes")
        return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, size)
