"""What a release of pairs knows about the public: moments or shares to learn from reports with.

Such a report is for learning (:func:`offaxis.learn`). It decodes to no vector, because it is about
the vector and the answer together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import Encoder
from offaxis.encoding.encoders import frozen_matrix, frozen_shift
from offaxis.encoding.pairs import CellsEncoder, MomentsEncoder, RightEncoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.randomizers import PrivUnit2, Randomizer
from offaxis.randomizers.memoised import MemoisedPrivUnit2
from offaxis.randomizers.symbols import SymbolForm
from offaxis.vectors import Vectors

LEARN_INSTEAD: Final = (
    "a report of this release is about a vector and a private answer together, so it decodes to no "
    "vector and averages to none: learn from many reports with offaxis.learn(release, reports)"
)


class PairDecoder:
    """A decoder of pairs: it holds public facts, and decodes nothing."""

    instead: ClassVar[str] = LEARN_INSTEAD
    """What to do with reports instead of decoding them."""

    @property
    def unbiased(self) -> bool:
        """False: no vector is decoded."""
        return False

    def fits(self, encoder: Encoder, randomizer: Randomizer) -> bool:
        """Whether reports of these parts are what is learnt from."""
        return isinstance(randomizer, SymbolForm)

    @property
    def output_dim(self) -> int:
        """One: a decoded report would have no dimension."""
        return 1

    def decode(self, observations: NDArray[Any]) -> NoReturn:
        """Raise: learn from the reports instead."""
        raise BiasedDecoder(self.instead)


def check_pairs(encoder: Encoder, randomizer: Randomizer, decoder: Any) -> None:
    """Raise if nothing could be learnt from reports of these parts."""
    if not isinstance(decoder, PairDecoder) or not decoder.fits(encoder, randomizer):
        raise InvalidInput(
            f"nothing can be learnt from a release of pairs with the encoder {encoder.kind!r}, the "
            f"randomizer {randomizer.kind!r} and these public facts: they do not belong together"
        )


@dataclass(frozen=True, eq=False, repr=False)
class MomentsDecoder(PairDecoder):
    """Public second moments and means of the features x of :class:`MomentsEncoder`.

    Attributes
    ----------
    second : (d, d) array
        E[x xᵀ] over the public vectors.
    mean : (d,) array
        E[x].
    width : (1,) array
        Numbers of the codes of all answers together.

    Examples
    --------
    >>> from offaxis.decoding.pairs import MomentsDecoder
    >>> MomentsDecoder(np.eye(2) / 2, np.zeros(2), np.array([9.0])).input_dim
    18
    """

    kind: ClassVar[str] = "pair-moments"

    second: Vectors
    mean: Vectors
    width: Vectors

    def __post_init__(self) -> None:
        """Check shapes, symmetry and signs, and freeze the arrays."""
        second, mean = frozen_matrix(self.second), frozen_shift(self.mean)
        width = frozen_shift(self.width)
        if second.shape != (mean.size, mean.size) or not np.allclose(second, second.T, atol=1e-9):
            raise InvalidInput("second moments are a symmetric matrix of the features")
        if (np.diag(second) < 0).any() or np.trace(second) > 1 + 1e-6:
            raise InvalidInput("features have length one at most, so their second moments sum to 1")
        if width.shape != (1,) or not 1 <= width[0] <= 1 << 20 or width[0] != int(width[0]):
            raise InvalidInput("the codes of answers have a whole number of entries")
        object.__setattr__(self, "second", second)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "width", width)

    def fits(self, encoder: Encoder, randomizer: Randomizer) -> bool:
        """Whether reports are moments of these features: by PrivUnit2 with the target "vector"."""
        if not isinstance(encoder, MomentsEncoder):
            return False
        same = (encoder.features, sum(encoder.widths)) == (self.mean.size, self.width[0])
        if isinstance(randomizer, MemoisedPrivUnit2):
            return same
        if not isinstance(randomizer, PrivUnit2) or randomizer.target != "vector":
            return False
        return same and randomizer.radius >= 1

    @property
    def input_dim(self) -> int:
        """Dimension of an observation."""
        return int(self.mean.size * self.width[0])


@dataclass(frozen=True, eq=False, repr=False)
class CellsDecoder(PairDecoder):
    """The public shares of the cells of :class:`CellsEncoder`.

    Attributes
    ----------
    shares : (cells,) array
        Of the public vectors; positive.
    values : (1,) array
        Number of values of all answers together.

    Examples
    --------
    >>> from offaxis.decoding.pairs import CellsDecoder
    >>> CellsDecoder(np.array([0.5, 0.5]), np.array([10.0])).input_dim
    20
    """

    kind: ClassVar[str] = "pair-cells"

    shares: Vectors
    values: Vectors

    def __post_init__(self) -> None:
        """Check signs and sizes, and freeze the arrays."""
        shares, values = frozen_shift(self.shares), frozen_shift(self.values)
        if (shares <= 0).any() or not np.isclose(shares.sum(), 1):
            raise InvalidInput("the public shares of cells are positive and sum to one")
        if values.shape != (1,) or not 1 <= values[0] <= 1 << 16 or values[0] != int(values[0]):
            raise InvalidInput("answers have a whole number of values")
        object.__setattr__(self, "shares", shares)
        object.__setattr__(self, "values", values)

    def fits(self, encoder: Encoder, randomizer: Randomizer) -> bool:
        """Whether reports name symbols of these cells."""
        if not isinstance(encoder, CellsEncoder):
            return False
        same = (encoder.features, math.prod(encoder.values)) == (self.shares.size, self.values[0])
        return same and isinstance(randomizer, SymbolForm)

    @property
    def input_dim(self) -> int:
        """Number of symbols."""
        return int(self.shares.size * self.values[0])


@dataclass(frozen=True, eq=False, repr=False)
class RightDecoder(PairDecoder):
    """For :class:`RightEncoder`, whose reports are shares of two symbols.

    Attributes
    ----------
    symbols : (1,) array
        Two.

    Examples
    --------
    >>> from offaxis.decoding import RightDecoder
    >>> RightDecoder(np.array([2.0])).input_dim
    2
    """

    kind: ClassVar[str] = "pair-right"

    symbols: Vectors

    def __post_init__(self) -> None:
        """Check the number of symbols."""
        symbols = frozen_shift(self.symbols)
        if symbols.tolist() != [2.0]:
            raise InvalidInput("a check of a model has two symbols")
        object.__setattr__(self, "symbols", symbols)

    def fits(self, encoder: Encoder, randomizer: Randomizer) -> bool:
        """Whether reports are bits of a check."""
        return isinstance(encoder, RightEncoder) and isinstance(randomizer, SymbolForm)

    @property
    def input_dim(self) -> int:
        """Two symbols."""
        return 2


@dataclass(frozen=True, eq=False, repr=False)
class AnswersDecoder(PairDecoder):
    """For :class:`~offaxis.encoding.AnswersEncoder`, whose reports are shares of its symbols.

    Attributes
    ----------
    symbols : (1,) array
        Number of symbols.

    Examples
    --------
    >>> from offaxis.decoding import AnswersDecoder
    >>> AnswersDecoder(np.array([33.0])).input_dim
    33
    """

    kind: ClassVar[str] = "answers"
    instead: ClassVar[str] = (
        "a report of this release is about private answers alone, so it decodes to no vector and "
        "averages to none: estimate shares with release.shares(reports)"
    )

    symbols: Vectors

    def __post_init__(self) -> None:
        """Check the number of symbols."""
        symbols = frozen_shift(self.symbols)
        if symbols.shape != (1,) or not 2 <= symbols[0] <= 1 << 16 or symbols[0] != int(symbols[0]):
            raise InvalidInput("answers have 2 to 65536 joint values")
        object.__setattr__(self, "symbols", symbols)

    @property
    def input_dim(self) -> int:
        """Number of symbols."""
        return int(self.symbols[0])
