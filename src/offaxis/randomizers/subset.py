"""Subset selection: pure ε, a set of d out of k symbols a report.

Contract: for every two symbols and every payload, ``Pr[payload | x] <= exp(ε) Pr[payload | x']``.

A set that holds the own symbol weighs e^ε, any other 1 (Wang et al. 2016; Ye, Barg 2018). Of the
sets of d, C(k−1, d−1) hold the own symbol and C(k−1, d) do not, whichever it is, and the two
numbers are in the ratio d : k − d. So the own symbol is in the set with probability
d e^ε / (d e^ε + k − d), and given that, the others in it are uniform.

The draw is exact and made before the own symbol is looked at: a coin with certified digits, a
uniform set of d of the k − 1 others, and a uniform member of it, whose place the own symbol takes
if the coin says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import device_of, namespace
from offaxis.errors import InvalidReport
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.sampling.bernoulli import Probability
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.enclosure import preferred
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.subsets import choose_subsets
from offaxis.vectors import Vectors, as_integer

_PART: Final = 1 << 20
"""Keys in memory at a time, so that many reports over many symbols fit into it."""

Sets = NDArray[np.bool_]
"""One row a report, true where a symbol is in the set."""


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
    """Return d e^ε / (d e^ε + k − d) to any digit."""
    return Probability(partial(preferred, chosen, size - chosen, epsilon))


def with_own(member: Array, last: Array, near: Array, own: Array) -> Array:
    """Return sets of symbols, from sets among the k − 1 others.

    Where ``near``, the own symbol takes the place of the member ``last``. The other symbols are
    numbered as they are, except that the last symbol stands where the own one would.
    """
    xp = namespace(member)
    symbols = xp.arange(member.shape[1] + 1, device=device_of(member))
    is_own = symbols == own[:, None]
    kept = member & ~((symbols[:-1] == last[:, None]) & near[:, None])
    moved = xp.any(kept & is_own[:, :-1], axis=1)
    sets = xp.concat([kept, moved[:, None]], axis=1)
    return xp.where(is_own, near[:, None], sets)


@dataclass(frozen=True)
class SubsetSelection(SymbolForm):
    """Randomizer on the symbols 0 … size − 1 that reports a set of them.

    Parameters
    ----------
    size, epsilon
        As in :class:`SymbolForm`.
    chosen : int, optional
        d, from 1 to size − 1; the one of least squared error when not given.

    Examples
    --------
    >>> from offaxis.randomizers import SubsetSelection
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = SubsetSelection(size=20, epsilon=1)
    >>> sets = randomizer.sets(randomizer.report(np.array([7]), Entropy()))
    >>> int(sets.sum()) == randomizer.chosen, randomizer.payload_size  # one bit a symbol
    (True, 3)
    """

    chosen: int = CHOOSE

    kind: ClassVar[str] = "subset"
    wire_id: ClassVar[int] = 10
    largest_size: ClassVar[int] = 1 << 16

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the size of the sets."""
        super().__post_init__()
        given = self.chosen
        if type(given) is int and given == CHOOSE:
            given = best_size(self.size, self.epsilon)
        object.__setattr__(self, "chosen", as_integer(given, "chosen", 1, self.size - 1))

    @property
    def named(self) -> int:
        """The size of the sets."""
        return self.chosen

    @property
    def payload_size(self) -> int:
        """One bit a symbol."""
        return -(-self.size // 8)

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw observations in fast floating point; never a report."""
        own = self._simulated(W)
        draws = draws_from(rng, own)
        near = draws.uniform(len(own)) < self.own_chance
        member, last = draws.subsets(self.size - 1, self.chosen, len(own))
        return self._levels_at(with_own(member, last, near, own), draws.dtype)

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a symbol of W."""
        own = self._checked(W, entropy)
        payloads: list[bytes] = []
        for part in np.split(own, range(self._rows, own.size, self._rows)):
            # Everything random is drawn before the input is looked at.
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

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the unbiased estimate of the one-hot vector, a row of k numbers a payload."""
        observed: Vectors = self._levels_at(self.sets(payloads))
        return observed

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> Vectors:
        """Return ε where the own symbol is in the set and 0 elsewhere."""
        own = self.symbols(W)
        held = np.take_along_axis(self.sets(payloads), own[:, None], axis=1)[:, 0]
        return np.where(held, float(self.epsilon), 0.0)
