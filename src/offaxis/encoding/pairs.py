"""Pairs of a vector and a private answer: what is asked, and the encoders of both under one ε.

A pair is one row: the vector, then one number per answer (:func:`rows_of`). An encoder is a public
map of that row, so the guarantee of the randomizer after it covers the vector and the answers
together: any two pairs (docs/proofs.md §24). With x the features of the vector, given by a public
network, a device reports one of

* *moments*: the vector a(y) ⊗ x, where a(y) is the corner of a simplex that stands for class y, or
  the number y scaled to [−1, 1]. The mean of reports is the cross moment of answers and features.
* *cells*: the symbol (largest feature, y). The shares of symbols are the table of cells by answers.
* *right*: the symbol "is the public model right for this pair?", which tells a model's accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.answers import Answers
from offaxis.encoding.encoders import NetworkMap, form_of_kind, frozen_matrix, network_form
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, as_integer, as_number, has_device, namespace

NO_ANSWER: Final = 1e30
"""In a row, the number that stands for a missing answer."""

NOT_PASSED: Final[Any] = object()
"""The default of arguments for answers, where None is the answer of somebody without one."""

MISSING_FROM: Final = 1e29
LARGEST_RANGE: Final = 1e20

MOST_SYMBOLS: Final = 1 << 16
"""The most symbols of a release of cells."""

MOST_CLASSES: Final = 512
"""The most classes of an answer that is reported together with a vector."""


# ---- What is asked


@dataclass(frozen=True)
class Classes:
    """A private answer that is one of several classes.

    Parameters
    ----------
    names : int or sequence of str
        The number of classes, or their names.
    name : str
        What is asked.
    optional : bool
        Whether a person may have no answer (None). It is hidden like any other answer.

    Examples
    --------
    >>> from offaxis.encoding import Classes
    >>> Classes(["cat", "dog"]).codes_of(["dog", "cat"])
    array([1., 0.])
    """

    names: Any
    name: str = "answer"
    optional: bool = False

    def __post_init__(self) -> None:
        """Check the names."""
        names = self.names
        if isinstance(names, int | np.integer) and not isinstance(names, bool):
            names = [str(i) for i in range(as_integer(names, "classes", 2, MOST_SYMBOLS))]
        if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
            raise InvalidInput("classes are given by their number or a list of their names")
        names = tuple(str(name) for name in names)
        if not all(map(_is_text, names)):
            raise InvalidInput("names of classes are texts that can be written as UTF-8")
        if len(names) > MOST_SYMBOLS:
            raise InvalidInput(f"there are at most {MOST_SYMBOLS} classes, got {len(names)}")
        everyone = tuple(range(len(names)))
        _check_asked(self)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_answers", Answers(names, everyone, everyone))

    def __repr__(self) -> str:
        """Return for example ``answer: one of 10 classes``."""
        return f"{self.name}: one of {len(self.names)} classes"

    def codes_of(self, answers: Any) -> Vectors:
        """Return the numbers that stand for answers in rows, checked.

        Raises
        ------
        InvalidInput
            If an answer is none of the classes. The message does not contain it.
        """
        known: Answers = self._answers  # type: ignore[attr-defined]
        given = listed(answers)
        return np.array(
            [
                NO_ANSWER if answer is None else float(known.symbol_of(_as_index(answer, known)))
                for answer in _optional_checked(given, self)
            ]
        )

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.names)

    @property
    def table(self) -> tuple[float, ...]:
        """The row of this answer in the array ``asked`` of an encoder."""
        return float(self.classes), 0.0, 0.0, float(self.optional)


@dataclass(frozen=True)
class Number:
    """A private answer that is a number in a stated range; numbers outside count as its ends.

    Parameters
    ----------
    low, high : float
    name, optional
        As in :class:`Classes`.
    bins : int
        How many equal bins the range is cut into, for :func:`offaxis.learning.fit_answers`.

    Examples
    --------
    >>> from offaxis.encoding import Number
    >>> Number(0, 100, name="age")
    age: a number from 0 to 100
    """

    low: float
    high: float
    name: str = "answer"
    optional: bool = False
    bins: int = 0

    def __post_init__(self) -> None:
        """Check the range."""
        low, high = as_number(self.low, "low"), as_number(self.high, "high")
        if not -LARGEST_RANGE <= low < high <= LARGEST_RANGE:
            raise InvalidInput(
                f"a number needs a range low < high within ±{LARGEST_RANGE:g}, got {low:g} and "
                f"{high:g}"
            )
        _check_asked(self)
        if self.bins != 0:
            object.__setattr__(self, "bins", as_integer(self.bins, "bins", 2, MOST_SYMBOLS))
        object.__setattr__(self, "low", float(low))
        object.__setattr__(self, "high", float(high))

    def __repr__(self) -> str:
        """Return for example ``age: a number from 0 to 100``."""
        bins = f" in {self.bins} bins" if self.bins else ""
        return f"{self.name}: a number from {self.low:g} to {self.high:g}{bins}"

    def codes_of(self, answers: Any) -> Vectors:
        """Return the numbers that stand for answers in rows, clipped to the range.

        Raises
        ------
        InvalidInput
            If an answer is not a finite number. The message does not contain it.
        """
        given = listed(answers)
        codes = []
        for answer in _optional_checked(given, self):
            if answer is None:
                codes.append(NO_ANSWER)
                continue
            real = isinstance(answer, int | float | np.integer | np.floating)
            number = real and not isinstance(answer, bool)
            if not number or not -math.inf < answer < math.inf:
                raise InvalidInput(f"the answer {self.name!r} must be a finite number")
            codes.append(float(min(max(answer, self.low), self.high)))
        return np.array(codes)

    def scaled(self, numbers: Vectors) -> Vectors:
        """Return numbers as −1 … 1, clipped to the range."""
        clipped = np.clip(numbers, self.low, self.high)
        share: Vectors = (clipped - self.low) / (self.high - self.low)
        return 2 * share - 1

    @property
    def classes(self) -> int:
        """0: a number is no class."""
        return 0

    @property
    def table(self) -> tuple[float, ...]:
        """The row of this answer in the array ``asked`` of an encoder."""
        return float(self.bins), self.low, self.high, float(self.optional)


Asked = Classes | Number


def _is_text(name: str) -> bool:
    return "\0" not in name and name == name.encode(errors="replace").decode()


def _check_asked(asked: Asked) -> None:
    known = isinstance(asked.name, str) and _is_text(asked.name)
    if not known or not 1 <= len(asked.name) <= 200:
        raise InvalidInput("the name of an answer has 1 to 200 characters")
    if not isinstance(asked.optional, bool):
        raise InvalidInput("optional must be True or False")


def listed(answers: Any) -> list[Any]:
    """Return answers as a list of Python objects; NaN and the missing values of tables are None."""
    convert = getattr(answers, "tolist", None) or getattr(answers, "to_pylist", None)
    given = convert() if convert else answers
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        given = [given]
    return [None if _is_missing(answer) else answer for answer in given]


def _is_missing(answer: Any) -> bool:
    if type(answer).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(answer != answer)  # NaN of any type
    except (TypeError, ValueError, ArithmeticError):
        return False


def _as_index(answer: Any, known: Answers) -> Any:
    """Return a whole float as an integer: a column of indices with missing entries has floats."""
    if not isinstance(answer, float | np.floating) or str(answer) in known.names:
        return answer
    return int(answer) if float(answer).is_integer() else answer


def _optional_checked(answers: list[Any], asked: Asked) -> list[Any]:
    if not asked.optional and any(answer is None for answer in answers):
        raise InvalidInput(
            f"the answer {asked.name!r} is missing: this release needs one from everybody; fit it "
            f"with optional=True where people may have none"
        )
    return answers


def as_asked(answers: Any) -> tuple[Asked, ...]:
    """Return what is asked as a tuple, from one answer, several, or None for no answer.

    Examples
    --------
    >>> from offaxis.encoding.pairs import as_asked
    >>> as_asked(10)
    (answer: one of 10 classes,)
    """
    if answers is None:
        return ()
    if isinstance(answers, Classes | Number):
        return (answers,)
    if isinstance(answers, int | np.integer) and not isinstance(answers, bool):
        return (Classes(int(answers)),)
    listed = list(answers) if isinstance(answers, Sequence) and not isinstance(answers, str) else []
    if listed and all(isinstance(part, str) for part in listed):
        return (Classes(listed),)
    if not listed or not all(isinstance(part, Classes | Number) for part in listed):
        raise InvalidInput(
            "answers are Classes(...), Number(low, high), a number of classes, a list of their "
            "names, or a list of Classes and Number"
        )
    if len({part.name for part in listed}) != len(listed):
        raise InvalidInput("several answers need different names")
    return tuple(listed)


def rows_of(Z: Vectors, asked: Sequence[Asked], answers: Any) -> Vectors:
    """Return vectors (n, m) and their answers as rows (n, m + number of answers), checked.

    ``answers`` has one entry per vector; for several answers it maps each name to such a list, or
    is a table with such columns. None is the missing answer of one person.
    """
    if not asked:
        if answers is not None and answers is not NOT_PASSED:
            raise InvalidInput("this release asks for no answer: leave out answers")
        return Z
    alone = len(Z) == len(asked) == 1
    if answers is NOT_PASSED or (answers is None and not alone):
        raise InvalidInput("this release asks for answers: pass answers=..., one per vector")
    answers = _columns_of(answers)
    if len(asked) == 1 and not isinstance(answers, Mapping):
        answers = {asked[0].name: answers}
    names = [part.name for part in asked]
    if not isinstance(answers, Mapping) or set(answers) != set(names):
        raise InvalidInput(
            f"answers must be a mapping with the names {', '.join(map(repr, names))}"
        )
    columns = []
    for part in asked:
        given = listed(answers[part.name])
        if len(given) != len(Z):
            raise InvalidInput(f"there are {len(Z)} vectors and {len(given)} of {part.name!r}")
        columns.append(part.codes_of(given))
    return np.column_stack([Z, *columns])


def _columns_of(answers: Any) -> Any:
    """Return the columns of a pandas or Arrow table by name; all else unchanged."""
    names = getattr(answers, "column_names", None)
    if names is None and np.ndim(getattr(answers, "columns", 0)) == 1:
        names = list(answers.columns)
    return answers if names is None else {name: answers[name] for name in names}


def table_of(asked: Sequence[Asked]) -> Vectors:
    """Return the array ``asked`` of an encoder."""
    return np.array([part.table for part in asked] or [(1.0, 0.0, 0.0, 0.0)])


# ---- Encoders


@lru_cache(maxsize=64)
def simplex(classes: int) -> Vectors:
    """Return the corners of a regular simplex, (k, k − 1), rows of length one that sum to zero.

    √(k/(k − 1)) times Helmert's orthonormal contrasts, so any two corners have the inner product
    −1/(k − 1).

    Examples
    --------
    >>> from offaxis.encoding.pairs import simplex
    >>> (simplex(3) @ simplex(3).T).round(9)
    array([[ 1. , -0.5, -0.5],
           [-0.5,  1. , -0.5],
           [-0.5, -0.5,  1. ]])
    """
    corners = np.zeros((classes, classes - 1))
    for i in range(1, classes):
        scale = math.sqrt(classes / ((classes - 1) * i * (i + 1)))
        corners[:i, i - 1] = scale
        corners[i, i - 1] = -i * scale
    corners.setflags(write=False)
    return corners


@dataclass(frozen=True, eq=False, repr=False)
class PairEncoder(NetworkMap):
    """Features of a vector by a public network, joined with the person's answers.

    Attributes
    ----------
    weights, biases
        The network, as in :class:`NetworkEncoder`.
    asked : (a, 4) array
        Per answer: its number of classes, or 0 and the range of a number; and whether it is
        optional. A single row (1, 0, 0, 0) asks nothing.
    """

    form: ClassVar[str]

    asked: Vectors

    def __post_init__(self) -> None:
        """Check the network and the answers, and freeze the arrays."""
        super().__post_init__()
        asked = frozen_matrix(self.asked)
        if asked.shape[1] != 4 or not all(map(_is_asked, asked.tolist())):
            raise InvalidInput(
                f"the answers that an encoder asks are not in a known form; with a vector they are "
                f"up to {MOST_CLASSES} classes, or numbers without bins"
            )
        if (asked[:, 0] == 1).any() and len(asked) > 1:
            raise InvalidInput("an encoder that asks nothing asks nothing else")
        object.__setattr__(self, "asked", asked)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the activations: the class has no name in this module."""
        return _rebuild, (self.form, self.activation, self.weights, self.biases, self.asked)

    @property
    def vector_dim(self) -> int:
        """Dimension m of the vector alone."""
        return int(self.weights[0].shape[1])

    @property
    def answer_count(self) -> int:
        """Number of answers in a row."""
        return 0 if self.asked[0, 0] == 1 else len(self.asked)

    @property
    def input_dim(self) -> int:
        """Dimension of a row: the vector and the answers."""
        return self.vector_dim + self.answer_count

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.weights[-1].shape[0])

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map rows (n, m + a) to (n, d) numbers or (n,) symbols."""
        raise NotImplementedError

    def split(self, rows: Any) -> tuple[Any, list[Any]]:
        """Return the features of rows, (n, d), and the columns of their answers."""
        m = self.vector_dim
        return self.apply(rows[:, :m]), [rows[:, m + i] for i in range(self.answer_count)]


def _is_asked(row: list[float]) -> bool:
    classes, low, high, optional = row
    if optional not in (0.0, 1.0) or classes != int(classes) or not 0 <= classes <= MOST_CLASSES:
        return False
    if classes == 0:
        return -LARGEST_RANGE <= low < high <= LARGEST_RANGE
    return low == high == 0 and (classes > 1 or optional == 0)


def class_of(column: Any, classes: int) -> tuple[Any, Any]:
    """Return the class of each entry, and whether it is one; anything else counts as missing."""
    xp = namespace(column)
    known = (column > -0.5) & (column < classes - 0.5)
    nearest = xp.floor(xp.where(known, column, 0.0) + 0.5)
    return xp.astype(nearest, xp.int64) if hasattr(xp, "astype") else nearest.astype(int), known


class MomentsEncoder(PairEncoder):
    """u = (a(y_1) ⊗ x, …, a(y_q) ⊗ x)/√q: the cross moments of one person.

    With a(y) the corner of a simplex for a class (:func:`simplex`), 2(y − low)/(high − low) − 1 for
    a number, zero for a missing answer, and 1 where nothing is asked. Its length is at most that of
    the features.

    Examples
    --------
    >>> from offaxis.encoding.pairs import pair_encoder
    >>> encoder = pair_encoder("moments", "relu")([np.eye(2)], [np.zeros(2)], [[2, 0, 0, 0]])
    >>> encoder.encode(np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 1.0]]))  # two classes: ±x
    array([[ 0.5,  0.5],
           [-0.5, -0.5]])
    """

    form = "moments"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers of the code of each answer."""
        return tuple(max(1, int(row[0]) - 1) for row in self.asked)

    @property
    def output_dim(self) -> int:
        """Dimension of an encoding: features times numbers of the codes."""
        return self.features * sum(self.widths)

    def encode(self, Z: Vectors) -> Vectors:
        """Map rows (n, m + a) to (n, d)."""
        x, columns = self.split(Z)
        xp = namespace(x)
        if not columns:
            alone: Vectors = x
            return alone
        codes = [self._code(column, row) for column, row in zip(columns, self.asked, strict=True)]
        joined = xp.concat(codes, axis=1) if len(codes) > 1 else codes[0]
        joined = joined / math.sqrt(len(codes))
        moments: Vectors = xp.reshape(joined[:, :, None] * x[:, None, :], (len(Z), self.output_dim))
        return moments

    def _code(self, column: Any, row: Vectors) -> Any:
        xp, classes, (low, high) = namespace(column), int(row[0]), row[1:3]
        if classes:
            own, known = class_of(column, classes)
            place = {"device": column.device} if has_device(column) else {}
            corners = xp.asarray(np.array(simplex(classes)), dtype=column.dtype, **place)
            return xp.where(known[:, None], xp.take(corners, own, axis=0), 0.0)
        scaled = xp.clip(2 * ((column - low) / (high - low)) - 1, -1.0, 1.0)
        return xp.where(xp.abs(column) < MISSING_FROM, scaled, 0.0)[:, None]


class CellsEncoder(PairEncoder):
    """The symbol (argmax_j x_j, y_1, …, y_q) as one number; the first feature of a tie.

    An optional answer has one value more: none. A mandatory answer that is missing or unknown
    counts as its first class, so that the encoder is total.

    Examples
    --------
    >>> from offaxis.encoding.pairs import pair_encoder
    >>> encoder = pair_encoder("cells", "relu")([np.eye(2)], [np.zeros(2)], [[3, 0, 0, 0]])
    >>> encoder.encode(np.array([[0.1, 0.9, 2.0]]))  # the second cell, the third class
    array([5])
    """

    form = "cells"

    def __post_init__(self) -> None:
        """Check the number of symbols."""
        super().__post_init__()
        if (self.asked[:, 0] == 0).any():
            raise InvalidInput(
                "cells take classes, not numbers: use moments, or ask for a few ranges as classes"
            )
        if not 2 <= self.output_dim <= MOST_SYMBOLS:
            raise InvalidInput(
                f"cells and answers give {self.output_dim} symbols; there must be 2 to "
                f"{MOST_SYMBOLS}"
            )

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Number of values of each answer, "none" included."""
        return tuple(int(row[0] + row[3]) for row in self.asked)

    @property
    def output_dim(self) -> int:
        """Number of symbols."""
        return self.features * math.prod(self.values)

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map rows (n, m + a) to (n,) symbols."""
        x, columns = self.split(Z)
        xp = namespace(x)
        symbols: NDArray[Any] = xp.argmax(x, axis=1)
        if not columns:
            return symbols
        for column, row, values in zip(columns, self.asked, self.values, strict=True):
            own, known = class_of(column, int(row[0]))
            symbols = symbols * values + xp.where(known, own, values - 1 if row[3] else 0)
        return symbols


class RightEncoder(PairEncoder):
    """The symbol 1 if a public model is right about the pair, otherwise 0.

    Right is the class with the largest output; for a number, two outputs between which it lies.

    Examples
    --------
    >>> from offaxis.encoding.pairs import pair_encoder
    >>> encoder = pair_encoder("right", "relu")([np.eye(2)], [np.zeros(2)], [[2, 0, 0, 0]])
    >>> encoder.encode(np.array([[0.1, 0.9, 1.0], [0.1, 0.9, 0.0]]))
    array([1, 0])
    """

    form = "right"

    def __post_init__(self) -> None:
        """Check that the model answers what is asked."""
        super().__post_init__()
        if self.answer_count != 1 or self.asked[0, 3]:
            raise InvalidInput("a model is checked on one answer that everybody has")
        classes = int(self.asked[0, 0])
        if self.features != (classes or 2):
            raise InvalidInput(f"a model with {self.features} outputs does not give this answer")

    @property
    def output_dim(self) -> int:
        """Two symbols."""
        return 2

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map rows (n, m + 1) to (n,) symbols."""
        x, (column,) = self.split(Z)
        xp, classes = namespace(x), int(self.asked[0, 0])
        if classes:
            own, known = class_of(column, classes)
            right = (xp.argmax(x, axis=1) == own) & known
        else:
            right = (x[:, 0] <= column) & (column <= x[:, 1])
        symbols: NDArray[Any] = xp.where(right, 1, 0)
        return symbols


FORMS: Final[Mapping[str, type[PairEncoder]]] = {
    cls.form: cls for cls in (MomentsEncoder, CellsEncoder, RightEncoder)
}


@lru_cache(maxsize=256)
def pair_encoder(form: str, activation: str) -> Callable[..., PairEncoder]:
    """Return the class of encoders of a form, over networks with the given activations.

    As in :func:`~offaxis.encoding.encoders.answer_encoder`.
    """
    return network_form(FORMS[form], activation)


def _rebuild(form: str, activation: str, *arrays: Any) -> PairEncoder:
    return pair_encoder(form, activation)(*arrays)


def pair_encoder_of_kind(kind: str) -> Any:
    """Return the class of a kind such as "network-normalise-moments"; None for any other word."""
    activation, form = form_of_kind(kind)
    return pair_encoder(form, activation) if form in FORMS and activation else None
