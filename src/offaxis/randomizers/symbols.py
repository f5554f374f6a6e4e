"""Pure reports of one symbol out of k: randomized response and subset selection.

Contract: for every two symbols and every payload, ``Pr[payload | x] <= exp(ε) Pr[payload | x']``.

A payload names a set of d symbols. Sets that contain the input symbol have weight e^ε, all others
1, and the number of each does not depend on the input symbol: the normaliser is a constant, and the
probabilities of a payload under any two symbols differ by at most the factor e^ε. Randomized
response is the case d = 1.

With q = e^{−ε} and Z = d + (k − d) q the input symbol is named with probability a = d / Z, and any
other one with b = d (d − 1 + (k − d) q) / ((k − 1) Z). The observation (1[j named] − b) / (a − b)
has the one-hot vector of the input symbol as its mean, so means of observations are histograms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.privacy.guarantee import Guarantee, exact_epsilon
from offaxis.privacy.shuffling import Blanket
from offaxis.randomizers import base
from offaxis.randomizers.base import CHOOSE, FiniteSet
from offaxis.sampling.choices import choose_subsets, place, response_of
from offaxis.sampling.entropy import RealEntropy
from offaxis.sampling.probability import Probability, preferred
from offaxis.vectors import Array, Vectors, as_integer, device_of, namespace

LARGEST_EPSILON: Final = 100
"""Beyond it a coin shows its unlikely side less than once in 2**144 flips."""

_COUNTED: Final = 1 << 22
"""Entries of masks in memory at a time while names are counted."""

Symbols = NDArray[np.int64]

Sets = NDArray[np.bool_]
"""One row per report, true where a symbol is named."""


@dataclass(frozen=True)
class SymbolForm(ABC):
    """A pure randomizer on the symbols 0 … size − 1.

    Parameters
    ----------
    size : int
        k, at least 2.
    epsilon : number
        The guaranteed ε, read exactly.
    """

    size: int
    epsilon: Fraction

    kind: ClassVar[str]
    wire_id: ClassVar[int]
    largest_size: ClassVar[int]

    def __post_init__(self) -> None:
        """Read the parameters exactly."""
        object.__setattr__(self, "size", as_integer(self.size, "size", 2, self.largest_size))
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        base.check_budget(self.epsilon, LARGEST_EPSILON, self.kind)

    @property
    @abstractmethod
    def payload_size(self) -> int:
        """Bytes of one payload."""

    @property
    @abstractmethod
    def own_chance(self) -> float:
        """a: the probability that a report names the input symbol; reports use its exact value."""

    @property
    @abstractmethod
    def other_chance(self) -> float:
        """b: the probability that a report names another given symbol."""

    @property
    @abstractmethod
    def together(self) -> tuple[float, float]:
        """Probabilities that a report names two given symbols: with the input symbol, without."""

    @property
    @abstractmethod
    def levels(self) -> tuple[float, float]:
        """The entries of an observation: −b / (a − b) if not named, (1 − b) / (a − b) if named."""

    @property
    @abstractmethod
    def blanket(self) -> Blanket | None:
        """How well a report hides among others."""

    @abstractmethod
    def expected_squared_error(self) -> float:
        """Return E‖observation − e_x‖², the same for every input symbol x."""

    @abstractmethod
    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per symbol of W."""

    @abstractmethod
    def names_of(self, payloads: list[bytes]) -> Sets:
        """Return the symbols that each payload names: a mask (n, k), read strictly."""

    @abstractmethod
    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> NDArray[np.float64]:
        """Return ε where the payload names the input symbol and 0 elsewhere."""

    @property
    def domain(self) -> FiniteSet:
        """The symbols 0 … size − 1."""
        return FiniteSet(self.size)

    @property
    def guarantee(self) -> Guarantee:
        """Pure ε."""
        return Guarantee(self.epsilon)

    @property
    def unbiased(self) -> bool:
        """True: the mean of the observation is the one-hot vector of the input symbol."""
        return True

    @property
    def strength(self) -> float:
        """The ε of the law of one report, as a float; q = e^{−strength} in the formulas above."""
        return float(self.epsilon)

    @property
    def _far_weight(self) -> float:
        """q = e^{−ε}."""
        return math.exp(-self.strength)

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return unbiased estimates of one-hot vectors, one row of k numbers per payload."""
        observed: Vectors = self.levels_at(self.names_of(payloads))
        return observed

    def count_names(self, payloads: list[bytes]) -> NDArray[np.int64]:
        """Return how many payloads name each symbol, (k,), in memory for few of them at a time."""
        counts = np.zeros(self.size, dtype=np.int64)
        rows = max(1, _COUNTED // self.size)
        for start in range(0, len(payloads), rows):
            counts += np.count_nonzero(self.names_of(payloads[start : start + rows]), axis=0)
        return counts

    def worst_pair(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return two symbols, int64 of shape (): any two are equally distinguishable."""
        return np.array(0, dtype=np.int64), np.array(1, dtype=np.int64)

    def log_density(self, V: Vectors, W: NDArray[Any]) -> Vectors:
        """Return ε where the observation names the input symbol and 0 elsewhere."""
        own = self.symbols(W)
        entries = np.take_along_axis(np.asarray(V), own[:, None], axis=1)[:, 0]
        return np.where(entries > 0, self.strength, 0.0)

    def symbols(self, W: Any) -> Symbols:
        """Return a copy of the input as symbols, or raise: nothing is clipped or rounded."""
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
            first = int(np.flatnonzero((own < 0) | (own > self.size - 1))[0])
            raise InvalidInput(
                f"symbols must be in 0..{self.size - 1}, got {own[first]} at index {first}"
            )
        return own.astype(np.int64, copy=False)

    def levels_at(self, named: Array, dtype: Any = np.float64) -> Array:
        """Return the observations of a mask of named symbols."""
        xp = namespace(named)
        low, high = (xp.asarray(x, dtype=dtype, device=device_of(named)) for x in self.levels)
        return xp.where(named, high, low)

    def _checked(self, W: Any, entropy: RealEntropy) -> Symbols:
        """Check the entropy source without drawing from it; return a checked copy of the input.

        The checked copy is what is released: the caller cannot change it afterwards.
        """
        base.require_entropy(entropy)
        return self.symbols(W)

    def _octets(self, payloads: list[bytes]) -> NDArray[np.uint8]:
        """Return the bytes of payloads, one row per payload; any other length is an error."""
        size = self.payload_size
        if any(len(payload) != size for payload in payloads):
            raise InvalidReport(f"a {self.kind} payload of {self.size} symbols has {size} bytes")
        return np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(-1, size)


@dataclass(frozen=True)
class SetForm(SymbolForm):
    """A randomizer whose payloads name sets of one size d; its law is in the module's text."""

    @property
    @abstractmethod
    def named(self) -> int:
        """d: the number of symbols that a payload names."""

    @property
    def blanket(self) -> Blanket | None:
        """Near reports: d/k of all sets name a symbol, d (d − 1)/(k (k − 1)) name two."""
        k, d = self.size, self.named
        overlap = Fraction(d * (d - 1), k * (k - 1))
        return Blanket(self.epsilon, Fraction(d, k), overlap, one_bit=k == 2)

    @property
    def own_chance(self) -> float:
        """a: the probability that the input symbol is named; reports use its exact value."""
        return self.named / (self.named + (self.size - self.named) * self._far_weight)

    @property
    def other_chance(self) -> float:
        """b = (d − a) / (k − 1)."""
        return (self.named - self.own_chance) / (self.size - 1)

    @property
    def together(self) -> tuple[float, float]:
        """Probabilities that a report names two given symbols: with the input symbol, without."""
        k, d, a = self.size, self.named, self.own_chance
        neither = (a * (d - 1) * (d - 2) + (1 - a) * d * (d - 1)) / max((k - 1) * (k - 2), 1)
        return a * (d - 1) / (k - 1), neither

    @property
    def levels(self) -> tuple[float, float]:
        """The entries of an observation: −b / (a − b) if not named, (1 − b) / (a − b) if named.

        The formulas avoid cancellation: the first is never positive, the second always is.
        """
        k, d, q = self.size, self.named, self._far_weight
        gap = -math.expm1(-self.strength)
        return -(d - 1 + (k - d) * q) / ((k - d) * gap), (d + (k - 1 - d) * q) / (d * gap)

    def expected_squared_error(self) -> float:
        """Return E‖observation − e_x‖², the same for every input symbol x.

        a (1 − a) / (a − b)² for the entry of x and b (1 − b) / (a − b)² for each other, together
        (k − 1) ((Z − 1)(Z − q) + (k − 1) q) / (d (k − d) (1 − q)²).
        """
        k, d, q = self.size, self.named, self._far_weight
        gap = -math.expm1(-self.strength)
        spread = (d - 1 + (k - d) * q) * (d + (k - 1 - d) * q) + (k - 1) * q
        return (k - 1) * spread / (d * (k - d) * gap * gap)


# ---- Randomized response


@dataclass(frozen=True)
class KaryResponse(SetForm):
    """k-ary randomized response on the symbols 0 … size − 1: one symbol per report.

    The input symbol is reported with probability e^ε / (e^ε + k − 1) and each other one with
    1 / (e^ε + k − 1), exactly: a coin with certified digits decides whether to report the input
    symbol, and a uniform draw selects the other symbol (Warner 1965; Kairouz, Oh, Viswanath 2014).
    Both are drawn before the input symbol is used.

    Examples
    --------
    >>> from offaxis.randomizers import KaryResponse
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = KaryResponse(size=4, epsilon=2)
    >>> payloads = randomizer.report(np.array([1, 1, 3]), Entropy())
    >>> randomizer.read(payloads).shape  # unbiased estimates of one-hot vectors
    (3, 4)
    >>> round(randomizer.own_chance, 3)  # e²/(e² + 3), the probability of the input symbol
    0.711
    """

    kind: ClassVar[str] = "response"
    wire_id: ClassVar[int] = 9
    largest_size: ClassVar[int] = 1 << 20

    @property
    def named(self) -> int:
        """One symbol."""
        return 1

    @property
    def payload_size(self) -> int:
        """1, 2 or 4 bytes: the first that holds every symbol."""
        return 1 if self.size <= 1 << 8 else 2 if self.size <= 1 << 16 else 4

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per symbol of W."""
        own = self._checked(W, entropy)
        # All randomness is drawn before the input is used.
        near, offset = response_of(self.size, 1, self.epsilon).draw(own.size, entropy)
        reported = place(near, offset, own[:, None]).astype(f"<u{self.payload_size}")
        blob, size = reported.tobytes(), self.payload_size
        return [blob[i : i + size] for i in range(0, len(blob), size)]

    def reported_symbols(self, payloads: list[bytes]) -> Symbols:
        """Read payloads strictly: the right length, and a symbol that exists."""
        octets = self._octets(payloads)
        reported = octets.view(f"<u{self.payload_size}")[:, 0].astype(np.int64)
        if (reported >= self.size).any():
            raise InvalidReport("a response payload names a symbol that no client names")
        return reported

    def names_of(self, payloads: list[bytes]) -> Sets:
        """Return the symbol that each payload names, as a mask (n, k)."""
        named: Sets = self.one_hot(self.reported_symbols(payloads))
        return named

    def count_names(self, payloads: list[bytes]) -> NDArray[np.int64]:
        """Return how many payloads name each symbol, (k,)."""
        return np.bincount(self.reported_symbols(payloads), minlength=self.size)

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> Vectors:
        """Return ε where the payload is the input symbol and 0 elsewhere."""
        return np.where(self.reported_symbols(payloads) == self.symbols(W), self.strength, 0.0)

    def one_hot(self, reported: Array) -> Array:
        """Return the mask of the symbol that each report names."""
        symbols = namespace(reported).arange(self.size, device=device_of(reported))
        return reported[:, None] == symbols


# ---- Subset selection

_PART: Final = 1 << 20
"""Random keys in memory at a time, so that many reports over many symbols fit."""


@dataclass(frozen=True)
class SubsetSelection(SetForm):
    """Subset selection on the symbols 0 … size − 1: a set of d of them per report.

    A set that contains the input symbol has weight e^ε, any other 1 (Wang et al. 2016; Ye, Barg
    2018). Of the sets of size d, C(k−1, d−1) contain the input symbol and C(k−1, d) do not,
    whichever it is, and the two numbers are in the ratio d : k − d. So the input symbol is in the
    set with probability d e^ε / (d e^ε + k − d), and given that, the others in it are uniform.

    The draw is exact and made before the input symbol is used: a coin with certified digits, a
    uniform set of d of the k − 1 others, and a uniform member of it, which the input symbol
    replaces if the coin shows heads.

    Parameters
    ----------
    size, epsilon
        As in :class:`SymbolForm`.
    chosen : int, optional
        d, from 1 to size − 1; by default the one of least squared error.

    Examples
    --------
    >>> from offaxis.randomizers import SubsetSelection
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = SubsetSelection(size=20, epsilon=1)
    >>> sets = randomizer.sets(randomizer.report(np.array([7]), Entropy()))
    >>> int(sets.sum()) == randomizer.chosen, randomizer.payload_size  # one bit per symbol
    (True, 3)
    """

    chosen: int = CHOOSE

    kind: ClassVar[str] = "subset"
    wire_id: ClassVar[int] = 10
    largest_size: ClassVar[int] = 1 << 16

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the size of the sets."""
        super().__post_init__()
        chosen = self.chosen
        if type(chosen) is int and chosen == CHOOSE:
            chosen = best_size(self.size, self.epsilon)
        object.__setattr__(self, "chosen", as_integer(chosen, "chosen", 1, self.size - 1))

    @property
    def named(self) -> int:
        """The size of the sets."""
        return self.chosen

    @property
    def payload_size(self) -> int:
        """One bit per symbol."""
        return -(-self.size // 8)

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per symbol of W."""
        own = self._checked(W, entropy)
        payloads: list[bytes] = []
        for part in np.split(own, range(self._rows, own.size, self._rows)):
            # All randomness is drawn before the input is used.
            near = own_coin(self.size, self.chosen, self.epsilon).draw(part.size, entropy)
            member, last = choose_subsets(self.size - 1, self.chosen, part.size, entropy)
            sets = with_own(member, last, near, part)
            octets = np.packbits(sets, axis=1, bitorder="little")
            payloads += [row.tobytes() for row in octets]
        return payloads

    @property
    def _rows(self) -> int:
        return max(1, _PART // self.size)

    def sets(self, payloads: list[bytes]) -> Sets:
        """Read payloads strictly: the right length, d symbols, and no bit beyond the last one."""
        bits = np.unpackbits(self._octets(payloads), axis=1, bitorder="little")
        if bits[:, self.size :].any() or (bits.sum(axis=1, dtype=np.int64) != self.chosen).any():
            raise InvalidReport(
                f"a subset payload names {self.chosen} of {self.size} symbols, and nothing else"
            )
        return bits[:, : self.size].astype(bool)

    def names_of(self, payloads: list[bytes]) -> Sets:
        """Return the set of each payload, as a mask (n, k)."""
        return self.sets(payloads)

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> Vectors:
        """Return ε where the input symbol is in the set and 0 elsewhere."""
        own = self.symbols(W)
        held = np.take_along_axis(self.sets(payloads), own[:, None], axis=1)[:, 0]
        return np.where(held, float(self.epsilon), 0.0)


def best_size(size: int, epsilon: Fraction) -> int:
    """Return the d of least squared error: one of the two neighbours of k / (e^ε + 1).

    The error grows with (d + (k − d) q)² / (d (k − d)), q = e^{−ε} (Ye, Barg 2018), which has one
    minimum; d is better than d + 1 exactly if d (d + 1) > q² (k − d)(k − d − 1).
    """
    q = math.exp(-float(epsilon))
    low = min(max(1, math.floor(size * q / (1 + q))), size - 1)
    rest = size - low
    return low if low * (low + 1) >= q * q * rest * (rest - 1) else low + 1


@lru_cache(maxsize=32)
def own_coin(size: int, chosen: int, epsilon: Fraction) -> Probability:
    """Return a coin of probability d e^ε / (d e^ε + k − d), exact to any digit."""
    return Probability(partial(preferred, chosen, size - chosen, epsilon))


def with_own(member: Array, last: Array, near: Array, own: Array) -> Array:
    """Return sets of symbols, given sets among the k − 1 symbols other than the input symbol.

    Where ``near``, the input symbol replaces the member ``last``. The other symbols keep their
    numbers, except that the last symbol takes the number of the input symbol.
    """
    xp = namespace(member)
    symbols = xp.arange(member.shape[1] + 1, device=device_of(member))
    is_own = symbols == own[:, None]
    kept = member & ~((symbols[:-1] == last[:, None]) & near[:, None])
    moved = xp.any(kept & is_own[:, :-1], axis=1)
    sets = xp.concat([kept, moved[:, None]], axis=1)
    return xp.where(is_own, near[:, None], sets)
