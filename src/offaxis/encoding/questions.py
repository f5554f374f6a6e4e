"""Private answers alone: the public map from a person's answers to one symbol.

A row has one number per answer, as in :mod:`offaxis.encoding.pairs`, and no vector. An encoder is
a public map of that row, so the guarantee of the randomizer after it covers all answers together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.encoders import frozen_matrix
from offaxis.encoding.pairs import (
    LARGEST_RANGE,
    MISSING_FROM,
    MOST_SYMBOLS,
    NO_ANSWER,
    NOT_PASSED,
    Asked,
    CellsEncoder,
    Classes,
    PairEncoder,
    RightEncoder,
    class_of,
    listed,
    rows_of,
    table_of,
)
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, namespace

_ROUNDED: Final = 1e-6
"""How far a number of 32 bits may be outside its range, relative to the range's ends."""

LONGEST_NAMES: Final = 1 << 19
"""The most characters of all names of classes together, as a release file writes them."""


@dataclass(frozen=True, eq=False, repr=False)
class AnswersEncoder:
    """The symbol (y_1, …, y_q) as one number, for answers without a vector.

    A number y counts as its bin ⌊(y − low)/(high − low) · bins⌋; the upper end belongs to the last
    bin. An optional answer has one value more, the last one: none. A mandatory answer that is
    missing or unknown counts as the first value, so that the encoder is total.

    Attributes
    ----------
    asked : (q, 4) array
        Per answer: its number of classes, 0, 0, or the bins and the range of a number; and whether
        it is optional.

    Examples
    --------
    >>> from offaxis.encoding import AnswersEncoder
    >>> encoder = AnswersEncoder(np.array([[3, 0, 0, 0], [10, 0, 100, 1]]))
    >>> encoder.output_dim  # three classes times ten bins and "none"
    33
    >>> encoder.encode(np.array([[0, 55.0], [2, 100.0], [1, 1e30]]))
    array([ 5, 31, 21])
    """

    kind: ClassVar[str] = "answers"

    asked: Vectors

    def __post_init__(self) -> None:
        """Check the answers and the number of symbols, and freeze the array."""
        asked = frozen_matrix(self.asked)
        if asked.shape[1] != 4 or not all(map(_is_asked, asked.tolist())):
            raise InvalidInput(
                "answers are classes, or numbers with bins: Classes(names) or Number(low, high, "
                "bins=…)"
            )
        object.__setattr__(self, "asked", asked)
        if not 2 <= self.output_dim <= MOST_SYMBOLS:
            raise InvalidInput(
                f"these answers have {self.output_dim} joint values; there must be 2 to "
                f"{MOST_SYMBOLS}: use fewer classes or bins, or several releases"
            )

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Number of values of each answer, "none" included."""
        return tuple(int(row[0] + row[3]) for row in self.asked)

    @property
    def input_dim(self) -> int:
        """Number of answers."""
        return len(self.asked)

    @property
    def output_dim(self) -> int:
        """Number of symbols."""
        return math.prod(self.values)

    @property
    def blank_row(self) -> Vectors:
        """The row of somebody without an answer."""
        return np.full(self.input_dim, NO_ANSWER)

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map rows (n, q) to (n,) symbols."""
        xp = namespace(Z)
        symbols: Any = 0
        for i, (row, values) in enumerate(zip(self.asked.tolist(), self.values, strict=True)):
            own, known = _value_of(Z[:, i], row)
            symbols = symbols * values + xp.where(known, own, values - 1 if row[3] else 0)
        encoded: NDArray[Any] = symbols
        return encoded

    def rows(self, vectors: Any, asked: Sequence[Asked], answers: Any) -> Vectors:
        """Return answers as checked rows (n, q), or one row (q,) if they are of one person."""
        if vectors is not None:
            raise InvalidInput("this release asks for answers alone: leave out the vectors")
        if answers is NOT_PASSED:
            raise InvalidInput("this release asks for answers: pass answers=…, one per person")
        named = answers if isinstance(answers, Mapping) else {asked[0].name: answers}
        columns = {name: listed(given) for name, given in named.items()}
        if not all(columns.values()):
            raise InvalidInput("there are no answers to report")
        count = max(map(len, columns.values()), default=0)
        if len(named) < len(asked) or any(len(part) != count for part in columns.values()):
            counts = ", ".join(f"{len(part)} of {name!r}" for name, part in columns.items())
            raise InvalidInput(
                f"this release asks for {', '.join(repr(part.name) for part in asked)}, one answer "
                f"to each per person; got {counts}"
            )
        rows = rows_of(np.zeros((count, 0)), asked, columns)
        return rows[0] if all(map(_is_one, named.values())) else rows


def _is_asked(row: list[float]) -> bool:
    values, low, high, optional = row
    whole = values == int(values) and 2 <= values <= MOST_SYMBOLS and optional in (0.0, 1.0)
    return whole and (low == high == 0 or -LARGEST_RANGE <= low < high <= LARGEST_RANGE)


def _is_one(given: Any) -> bool:
    return isinstance(given, str | bytes) or not isinstance(given, Iterable)


def _value_of(column: Any, row: list[float]) -> tuple[Any, Any]:
    """Return the value that each number of a row stands for, and whether it is one."""
    values, low, high, _ = row
    if low == high:
        return class_of(column, int(values))
    xp = namespace(column)
    known = xp.abs(column) < MISSING_FROM
    scaled = (xp.clip(xp.where(known, column, low), low, high) - low) / (high - low) * values
    place = xp.clip(xp.floor(scaled), 0, values - 1)
    return xp.astype(place, xp.int64) if hasattr(xp, "astype") else place.astype(int), known


def check_rows(encoder: Any, rows: Vectors) -> None:
    """Raise if an encoder of answers alone is given rows that :meth:`AnswersEncoder.rows` never is.

    A class is its index, and a number is in its range. A missing answer may also be one that is
    mandatory: devices report it for somebody without a usable answer. The message shows no answer.
    """
    if not isinstance(encoder, AnswersEncoder):
        return
    for column, row in zip(rows.T, encoder.asked.tolist(), strict=True):
        values, low, high, _ = row
        # Numbers of 32 bits may be rounded out of a range, and NO_ANSWER to another number.
        reach = _ROUNDED * max(abs(low), abs(high))
        known = (low - reach <= column) & (column <= high + reach)
        if low == high:
            known = (column >= 0) & (column < values) & (column == np.floor(column))
        if not (known | (column >= MISSING_FROM)).all():
            raise InvalidInput(
                "people answer alone: pass answers=…, one per person, and no vectors; rows of "
                "pairs() have the index of each class, and each number in its range"
            )


def lacks_answers(encoder: Any, vectors: Any) -> bool:
    """Return whether an encoder of pairs is given vectors without the answers that it asks for."""
    if vectors is None or not isinstance(encoder, PairEncoder) or not encoder.answer_count:
        return vectors is None
    return bool(np.shape(vectors)[-1:] == (encoder.vector_dim,))


def check_asked(encoder: Any, asked: Sequence[Asked]) -> None:
    """Raise unless the answers that people are asked for are those that the encoder reads."""
    if len({part.name for part in asked}) != len(asked):
        raise InvalidInput("several answers need different names")
    if not isinstance(encoder, PairEncoder | AnswersEncoder):
        if asked:
            raise InvalidInput("only a release of pairs asks people for answers")
    elif not np.array_equal(encoder.asked, table_of(asked)):
        raise InvalidInput("the encoder reads other answers than the release asks for")


def value_names(asked: Asked) -> tuple[str, ...]:
    """Return what each value of an answer stands for, such as "cat" or "[0, 10)"."""
    if isinstance(asked, Classes):
        named = list(asked.names)
    else:
        edges = edges_of(asked)
        ends = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        named = [f"[{low:.12g}, {high:.12g})" for low, high in ends]
        named[-1] = named[-1][:-1] + "]"
    return (*named, "none") if asked.optional else tuple(named)


def edges_of(asked: Any) -> Vectors:
    """Return the edges of the bins of a number, (bins + 1,)."""
    return np.linspace(asked.low, asked.high, asked.bins + 1)


def pair_names(encoder: PairEncoder, asked: Sequence[Asked]) -> tuple[str, ...] | None:
    """Return what each symbol of cells stands for, such as "cell 3, cat"; None for moments."""
    if isinstance(encoder, RightEncoder):
        return "wrong", "right"
    if not isinstance(encoder, CellsEncoder):
        return None
    cells = [f"cell {cell}" for cell in range(encoder.features)]
    return tuple(", ".join(values) for values in product(cells, *map(value_names, asked)))


def joint_names(asked: Sequence[Asked]) -> tuple[str, ...]:
    """Return what each symbol stands for, such as "cat, [0, 10)"."""
    return tuple(", ".join(values) for values in product(*map(value_names, asked)))
