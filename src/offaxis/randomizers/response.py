"""k-ary randomized response: pure ε, one symbol a report.

Contract: for every two symbols and every payload, ``Pr[payload | x] <= exp(ε) Pr[payload | x']``.

The own symbol is reported with probability e^ε / (e^ε + k − 1) and each other one with
1 / (e^ε + k − 1), exactly: a coin with certified digits says whether to tell the truth, and a
uniform draw says which other symbol it would be (Warner 1965; Kairouz, Oh, Viswanath 2014). Both
are drawn before the own symbol is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from offaxis.arrays import device_of, namespace
from offaxis.errors import InvalidReport
from offaxis.randomizers.symbol_form import SymbolForm, Symbols
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.sampling.record_entropy import RealEntropy
from offaxis.sampling.response import place, response_of
from offaxis.vectors import Vectors


@dataclass(frozen=True)
class KaryResponse(SymbolForm):
    """Randomizer on the symbols 0 … size − 1 that reports one of them.

    Examples
    --------
    >>> from offaxis.randomizers import KaryResponse
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = KaryResponse(size=4, epsilon=2)
    >>> payloads = randomizer.report(np.array([1, 1, 3]), Entropy())
    >>> randomizer.told(payloads).shape, randomizer.read(payloads).shape  # one-hot, unbiased
    ((3,), (3, 4))
    >>> round(randomizer.own_chance, 3), randomizer.named  # e²/(e² + 3): how often it is the truth
    (0.711, 1)
    >>> likely = randomizer.log_likelihood(payloads, np.array([1, 1, 3]))
    >>> bool(set(likely) <= {0.0, 2.0})
    True
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

    def simulate(self, W: Array, rng: Rng) -> Array:
        """Draw observations in fast floating point; never a report."""
        own = self._simulated(W)
        draws, xp = draws_from(rng, own), namespace(own)
        near = draws.uniform(len(own)) < self.own_chance
        other = draws.integers(self.size - 1, len(own))
        told = xp.where(near, own, other + xp.astype(other >= own, other.dtype))
        return self._levels_at(self._named(told), draws.dtype)

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload a symbol of W."""
        own = self._checked(W, entropy)
        # Everything random is drawn before the input is looked at.
        near, offset = response_of(self.size, 1, self.epsilon).draw(own.size, entropy)
        told = place(near, offset, own[:, None]).astype(f"<u{self.payload_size}")
        blob, size = told.tobytes(), self.payload_size
        return [blob[i : i + size] for i in range(0, len(blob), size)]

    def told(self, payloads: list[bytes]) -> Symbols:
        """Read payloads strictly: the right length, and a symbol that exists."""
        octets = self._octets(payloads)
        told = octets.view(f"<u{self.payload_size}")[:, 0].astype(np.int64)
        if (told >= self.size).any():
            raise InvalidReport("a response payload names a symbol that no client names")
        return told

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return the unbiased estimate of the one-hot vector, a row of k numbers a payload."""
        observed: Vectors = self._levels_at(self._named(self.told(payloads)))
        return observed

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> Vectors:
        """Return ε where the payload is the own symbol and 0 elsewhere."""
        return np.where(self.told(payloads) == self.symbols(W), float(self.epsilon), 0.0)

    def _named(self, told: Array) -> Array:
        """Return the mask of what each report names."""
        named = namespace(told).arange(self.size, device=device_of(told))
        return told[:, None] == named
