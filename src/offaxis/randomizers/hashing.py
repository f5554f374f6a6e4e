"""Local hashing: a pure report of one symbol out of very many, in 14 bytes.

Contract: for every two symbols and every payload, ``Pr[payload | x] <= exp(ε) Pr[payload | x']``,
whatever the hash is (docs/proofs.md §19).

A payload is a public nonce ν, drawn before the symbol is used, and one of G = 2¹⁶ points y. The
nonce places every symbol j at a point h_ν(j), and the points h_ν(x), …, h_ν(x) + d − 1 (mod G) are
near. Each near point has weight e^ε, any other 1, and there are d near ones for every symbol and
nonce: the normaliser is a constant. So the payload is h_ν(x) + z mod G with a z that does not
depend on x. It *names* the symbols j with y − h_ν(j) mod G < d.

With q = e^{−ε} and Z = d + (G − d) q the input symbol is named with probability a = d / Z. The
points of other symbols are independent and uniform, so each is named with probability b = d / G
(the key stream of AES under a public key is assumed to look random; the guarantee does not need
it). With d = G/(e^ε + 1) the error is that of the best subset selection for many symbols. Hashing
to g values and reporting one of them by g-ary response (Bassily, Smith 2015; optimal local hashing:
Wang, Blocki, Li, Jha 2017) is the case d = G/g, in which g must be a whole number; that costs up to
3 % of error. Reports of a nonce and a member of a dense set are those of Feldman, Talwar (2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.privacy.shuffling import Blanket
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.directions import NONCE_BYTES, Nonces, key_stream
from offaxis.randomizers.symbols import Sets, SymbolForm, Symbols
from offaxis.sampling.choices import response_of
from offaxis.sampling.entropy import RealEntropy
from offaxis.vectors import Vectors, as_integer

POINTS: Final = 1 << 16
"""G: the points are the 16-bit words of the key stream, so that each is equally likely."""

HASH_KEY: Final = b"offaxis hash v1."
_POINT_BYTES: Final = 2
_PER_BLOCK: Final = 8


@dataclass(frozen=True)
class LocalHashing(SymbolForm):
    """Local hashing on the symbols 0 … size − 1: a nonce and a point, 14 bytes for any size.

    Parameters
    ----------
    size, epsilon
        As in :class:`~offaxis.randomizers.KaryResponse`.
    near : int, optional
        d, the number of near points, from 1 to 2¹⁶ − 1; by default that of least squared error.

    Examples
    --------
    >>> from offaxis.randomizers import LocalHashing, SubsetSelection
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer = LocalHashing(size=10_000, epsilon=1)
    >>> payloads = randomizer.report(np.array([7, 7, 9_999]), Entropy())
    >>> randomizer.payload_size, randomizer.count_names(payloads).shape
    (14, (10000,))
    >>> subset = SubsetSelection(size=10_000, epsilon=1)  # 1,250 bytes
    >>> round(randomizer.expected_squared_error() / subset.expected_squared_error(), 4)
    1.0003
    """

    near: int = CHOOSE

    kind: ClassVar[str] = "hashing"
    wire_id: ClassVar[int] = 14
    largest_size: ClassVar[int] = 1 << 20

    def __post_init__(self) -> None:
        """Read the parameters exactly and fix the number of near points."""
        super().__post_init__()
        near = self.near
        if type(near) is int and near == CHOOSE:
            near = best_near(self.size, self.epsilon)
        object.__setattr__(self, "near", as_integer(near, "near", 1, POINTS - 1))

    @property
    def payload_size(self) -> int:
        """A nonce and a point."""
        return NONCE_BYTES + _POINT_BYTES

    @property
    def blanket(self) -> Blanket:
        """Near reports: d of the G points of any nonce. Nothing is assumed about overlaps."""
        return Blanket(self.epsilon, Fraction(self.near, POINTS))

    @property
    def own_chance(self) -> float:
        """a: the probability that the input symbol is named; reports use its exact value."""
        return self.near / (self.near + (POINTS - self.near) * self._far_weight)

    @property
    def other_chance(self) -> float:
        """b = d / G."""
        return self.near / POINTS

    @property
    def together(self) -> tuple[float, float]:
        """a b if one of two symbols is the input symbol, otherwise b²: points are independent."""
        b = self.other_chance
        return self.own_chance * b, b * b

    @property
    def levels(self) -> tuple[float, float]:
        """The entries of an observation: −b / (a − b) if not named, (1 − b) / (a − b) if named.

        Without cancellation: −Z / ((G − d)(1 − q)) and Z / (d (1 − q)).
        """
        d, far = self.near, POINTS - self.near
        weight = (d + far * self._far_weight) / -math.expm1(-self.strength)
        return -weight / far, weight / d

    def expected_squared_error(self) -> float:
        """Return E‖observation − e_x‖², the same for every input symbol x.

        (a (1 − a) + (k − 1) b (1 − b)) / (a − b)² = (G² q + (k − 1) Z²) / (d (G − d)(1 − q)²).
        """
        return float(_errors(np.array(self.near), self.size, self.strength))

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Return one exact payload per symbol of W."""
        own = self._checked(W, entropy)
        # All randomness is drawn before the input is used.
        nonces = entropy.words(own.size * NONCE_BYTES // 2).view(np.uint8).reshape(-1, NONCE_BYTES)
        is_near, offset = response_of(POINTS, self.near, self.epsilon).draw(own.size, entropy)
        steps = (offset + np.where(is_near, 0, self.near)).astype(np.uint16)
        octets = np.empty((own.size, self.payload_size), dtype=np.uint8)
        octets[:, :NONCE_BYTES] = nonces
        point = (place_of(nonces, own) + steps).astype("<u2")
        octets[:, NONCE_BYTES:] = point.view(np.uint8).reshape(-1, _POINT_BYTES)
        return [row.tobytes() for row in octets]

    def _parse(self, payloads: list[bytes]) -> tuple[Nonces, NDArray[np.uint16]]:
        """Split payloads into nonces and points; every value of the right length is valid."""
        octets = self._octets(payloads)
        points = octets[:, NONCE_BYTES:].copy().view("<u2")[:, 0]
        return octets[:, :NONCE_BYTES].copy(), points.astype(np.uint16)

    def names_of(self, payloads: list[bytes]) -> Sets:
        """Return the symbols that each payload names, as a mask (n, k)."""
        nonces, points = self._parse(payloads)
        named: Sets = points[:, None] - places(nonces, self.size) < np.uint16(self.near)
        return named

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> Vectors:
        """Return ε where the payload names the input symbol and 0 elsewhere."""
        nonces, points = self._parse(payloads)
        named = points - place_of(nonces, self.symbols(W)) < np.uint16(self.near)
        return np.where(named, self.strength, 0.0)


def places(nonces: Nonces, size: int) -> NDArray[np.uint16]:
    """Return the points h_ν(0), …, h_ν(size − 1) of each nonce, (n, size).

    Word i of the key stream that begins at block 0 is the point of symbol i.
    """
    blocks = np.broadcast_to(
        np.arange(-(-size // _PER_BLOCK)), (len(nonces), -(-size // _PER_BLOCK))
    )
    return key_stream(nonces, blocks, HASH_KEY).reshape(len(nonces), -1)[:, :size]


def place_of(nonces: Nonces, own: Symbols) -> NDArray[np.uint16]:
    """Return the point h_ν(x) of one symbol per nonce, (n,)."""
    words = key_stream(nonces, own // _PER_BLOCK, HASH_KEY)
    return np.take_along_axis(words, (own % _PER_BLOCK)[:, None], axis=1)[:, 0]


@lru_cache(maxsize=256)
def best_near(size: int, epsilon: Fraction) -> int:
    """Return the d of least squared error: near G/(e^ε + 1) for many symbols."""
    near = np.arange(1, POINTS)
    return int(near[np.argmin(_errors(near, size, float(epsilon)))])


def _errors(near: NDArray[Any], size: int, strength: float) -> Vectors:
    q, gap = math.exp(-strength), -math.expm1(-strength)
    d = near.astype(np.float64)
    far = POINTS - d
    errors: Vectors = (POINTS**2 * q + (size - 1) * (d + far * q) ** 2) / (d * far * gap * gap)
    return errors
