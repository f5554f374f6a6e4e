"""Calls of a function that is audited, and what an observer sees of its outputs.

An observer sees everything: the exact bits of a number, a type, a length, and whether a call raised
an exception. Of every output this keeps a key of all of its bits (equal for equal outputs only, up
to collisions of 64 bits), the key of its form (type, length, special numbers), and some numbers for
statistics: at most 4,096, of a text the length and 96 letters at the front and 32 at the end.
"""

from __future__ import annotations

import functools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.auditing.domains import Input, shown
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors

Keys = NDArray[np.int64]

_COLUMNS: Final = 4096
"""Largest number of numbers of an output that statistics use; its key is of all of them."""

_FRONT, _END = 96, 32
"""Number of bytes at the front and at the end of a text that are numbers."""

_CACHED: Final = 10_000
"""Largest number of different labels that are read once only."""

_PLAIN: Final = (str, bytes, int, bool)


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of one input.

    Attributes
    ----------
    keys, forms : array of int64, (n,)
    numbers : array of float64, (n, m)
        NaN in the rows of outputs of another form than the usual one, such as exceptions.
    """

    keys: Keys
    forms: Keys
    numbers: Vectors

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self.keys)

    def __getitem__(self, rows: Any) -> Outputs:
        """Return some of the outputs."""
        return Outputs(self.keys[rows], self.forms[rows], self.numbers[rows])


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Return several outputs as one."""
    return Outputs(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.forms for part in parts]),
        np.concatenate([part.numbers for part in parts]),
    )


# ---- Reading outputs


@dataclass(frozen=True)
class Raised:
    """A call that raised an exception instead of returning an output."""

    error: Exception

    @property
    def name(self) -> str:
        """The type of the exception. Its text is no part of the output."""
        return type(self.error).__name__


@dataclass(frozen=True)
class _Seen:
    """What is seen of one output: exact key, form, and numbers under the key of their columns."""

    key: int
    form: int
    columns: int
    numbers: tuple[float, ...]


def kind_of(output: Any) -> str:
    """Name the kind of an output."""
    if isinstance(output, Raised):
        return f"raises {output.name}"
    if isinstance(output, np.ndarray):
        return f"an array of shape {output.shape}"
    if isinstance(output, str | bytes | tuple | list):
        return f"{type(output).__name__} of length {len(output)}"
    if isinstance(output, float | np.floating) and not math.isfinite(output):
        return repr(float(output))
    return f"{type(output).__name__}"


class Reader:
    """Reads outputs of any kind; the usual one decides which columns of numbers there are."""

    def __init__(self) -> None:
        self._columns: int | None = None
        self.width = 0
        self.measures = True
        """Whether the columns are numbers, whose size and digits mean something, not letters."""
        self._cache: dict[tuple[type, Any], _Seen] = {}

    def settle(self, outputs: Sequence[Any]) -> None:
        """Fix the columns from some outputs: those of the commonest kind that has numbers."""
        if self._columns is not None:
            return
        answers = [output for output in outputs if not isinstance(output, Raised)]
        seen = [self._see(answer) for answer in answers]
        kinds = [s.columns for s in seen if s.numbers]
        if kinds:
            self._columns = max(set(kinds), key=kinds.count)
            place = next(i for i, s in enumerate(seen) if s.columns == self._columns)
            self.width = len(seen[place].numbers)
            self.measures = not isinstance(answers[place], str | bytes | bytearray)

    def read(self, outputs: Sequence[Any] | NDArray[Any]) -> Outputs:
        """Return what is seen of outputs."""
        stacked = _stacked(outputs)
        if stacked is not None:
            kind, rows, exact = stacked
            columns = hash((kind, min(rows.shape[1], _COLUMNS)))
            if self._columns == columns:
                numbers = rows[:, :_COLUMNS].astype(np.float64)
                keys = row_keys(words_of(exact)) ^ columns
                return Outputs(keys, _special(numbers) ^ columns, numbers)
        seen = [self._see(output) for output in outputs]
        numbers = np.full((len(seen), self.width), math.nan)
        for place, one in enumerate(seen):
            if one.columns == self._columns:
                numbers[place] = one.numbers
        return Outputs(
            np.array([s.key for s in seen], dtype=np.int64),
            np.array([s.form for s in seen], dtype=np.int64),
            numbers,
        )

    def _see(self, output: Any) -> _Seen:
        if type(output) in _PLAIN:
            place = (type(output), output)
            if place not in self._cache:
                if len(self._cache) >= _CACHED:
                    return _see(output)
                self._cache[place] = _see(output)
            return self._cache[place]
        return _see(output)


def _stacked(outputs: Any) -> tuple[str, NDArray[Any], NDArray[Any]] | None:
    """Return the name of a numeric kind, rows of numbers, and rows of exact values; else None."""
    if isinstance(outputs, np.ndarray):
        if outputs.dtype.kind not in "fiub" or not len(outputs):
            return None
        rows = outputs.reshape(len(outputs), -1)
        return _kind(outputs.dtype, outputs.shape[1:]), rows, rows
    kinds = set(map(type, outputs))
    if kinds == {float}:
        rows = np.array(outputs)[:, None]
        return _kind(np.dtype(np.float64), ()), rows, rows
    if kinds == {bytes} and len(set(map(len, outputs))) == 1 and _fits(outputs[0]):
        octets = np.frombuffer(b"".join(outputs), dtype=np.uint8).reshape(len(outputs), -1)
        return f"bytes{octets.shape[1]}", _octet_rows(octets), octets
    numeric = len(kinds) == 1 and issubclass(next(iter(kinds)), np.ndarray | np.number)
    if numeric and len({(part.dtype, part.shape) for part in outputs}) == 1:
        return _stacked(np.array(outputs))
    return None


def _kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Name a kind of numbers. A float is a 0-dimensional float64."""
    return f"{dtype.str}{shape}"


_MIXERS: Final = (
    np.random.default_rng(2024).integers(1 << 62, size=_COLUMNS, dtype=np.int64) * 2 + 1
)


def words_of(rows: NDArray[Any]) -> Keys:
    """Return all bytes of every row as 64-bit words, (n, w)."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    if rows.dtype == np.longdouble and rows.dtype.itemsize > _EXTENDED > 8:
        # The other bytes are padding, which nothing sets.
        octets = octets.reshape(len(rows), -1, rows.dtype.itemsize)[:, :, :_EXTENDED]
        octets = octets.reshape(len(rows), -1)
    missing = -octets.shape[1] % 8
    if missing:
        octets = np.concatenate([octets, np.zeros((len(rows), missing), np.uint8)], axis=1)
    return np.ascontiguousarray(octets).view(np.int64)


_EXTENDED: Final = (np.finfo(np.longdouble).nmant + 1 + 15 + 1) // 8
"""Bytes of an extended number that hold bits."""


def row_keys(words: Keys) -> Keys:
    """Return a 64-bit hash of every row of words."""
    keys = np.full(len(words), words.shape[1], dtype=np.int64)
    with np.errstate(over="ignore"):
        for start in range(0, words.shape[1], _COLUMNS):
            bits = words[:, start : start + _COLUMNS]
            mixed = (bits ^ (bits >> 29)) * _MIXERS[: bits.shape[1]]
            mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * _MIXERS[0]
            keys = (keys ^ (keys >> 31)) * _MIXERS[1] + mixed.sum(axis=1)
    return keys


def _special(numbers: Vectors) -> Keys:
    """Return a code for the presence of NaN and of infinity in every row."""
    finite = np.isfinite(numbers)
    if finite.all():
        return np.zeros(len(numbers), dtype=np.int64)
    nan = np.isnan(numbers)
    kinds = np.stack([nan.any(axis=1), (~finite & ~nan).any(axis=1)]).astype(np.int64)
    code: Keys = kinds[0] + 2 * kinds[1]
    return code


def _see(output: Any) -> _Seen:
    """Read one output of any kind."""
    if isinstance(output, Raised):
        key = hash(("raises", output.name))
        return _Seen(key, key, 0, ())
    kind, form, exact, numbers = _parts(output)
    columns = hash((kind, len(numbers)))
    if isinstance(exact, np.ndarray):  # as rows of numbers are read
        row = np.array([numbers], dtype=np.float64)
        key = int(row_keys(exact)[0]) ^ columns
        return _Seen(key, int(_special(row)[0]) ^ columns, columns, numbers)
    return _Seen(hash((kind, exact)), hash((kind, form)), columns, numbers)


def _parts(output: Any) -> tuple[str, Any, Any, tuple[float, ...]]:
    """Return the kind, the form, the exact value (words for numbers alone) and the numbers."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(output, torch.Tensor):
        output = output.detach().cpu()
        output = (output.float() if output.dtype == torch.bfloat16 else output).numpy()
    if isinstance(output, float) and not isinstance(output, np.generic):
        words = words_of(np.array([[output]], dtype=np.float64))
        return _kind(np.dtype(np.float64), ()), None, words, (output,)
    if isinstance(output, np.ndarray | np.number) and output.dtype.kind in "fiub":
        numbers = tuple(np.ravel(output)[:_COLUMNS].astype(np.float64).tolist())
        words = words_of(np.asarray(output).reshape(1, -1))
        return _kind(output.dtype, output.shape), None, words, numbers
    if isinstance(output, bool | np.bool_ | int):
        number = float(max(min(int(output), 1 << 1000), -(1 << 1000)))
        return type(output).__name__, None, (type(output).__name__, int(output)), (number,)
    if isinstance(output, bytes) and _fits(output):
        octet_row = np.frombuffer(output, dtype=np.uint8)[None]
        row = _octet_rows(octet_row)[0, :_COLUMNS]
        return f"bytes{len(output)}", None, words_of(octet_row), tuple(row.tolist())
    if isinstance(output, str | bytes | bytearray):
        octets = output.encode("utf-8", "surrogatepass") if isinstance(output, str) else output
        front = [*octets[:_FRONT], *[-1.0] * (_FRONT - len(octets))]
        end = [*octets[-_END:], *[-1.0] * (_END - len(octets))]
        return type(output).__name__, len(octets), bytes(octets), (len(octets), *front, *end)
    if isinstance(output, np.ndarray):
        output = output.tolist()
    if isinstance(output, dict):
        output = [part for item in output.items() for part in item]
    if isinstance(output, tuple | list):
        every = [_parts(part) for part in output]
        kind = f"{type(output).__name__}({', '.join(part[0] for part in every)})"
        exact = tuple(_exact(part) for part in every)
        form = tuple((part[1], tuple(map(_class, part[3]))) for part in every)
        return kind, form, exact, tuple(n for part in every for n in part[3])[:_COLUMNS]
    if isinstance(output, set | frozenset):
        return type(output).__name__, len(output), tuple(sorted(map(repr, output))), ()
    cls: Any = type(output)
    by_place = cls.__hash__ is object.__hash__ and output is not None
    if by_place or cls.__repr__ is object.__repr__:  # where it is in memory says nothing
        raise InvalidInput(
            f"an output of type {type(output).__name__} cannot be compared: return bytes, a text, "
            f"a number, a label, an array, or a tuple of these"
        )
    return type(output).__name__, None, repr(output), ()


def _exact(parts: tuple[str, Any, Any, tuple[float, ...]]) -> Any:
    kind, _, exact, _ = parts
    return (kind, exact.tobytes() if isinstance(exact, np.ndarray) else exact)


def _class(number: float) -> int:
    """Return whether a number is finite, NaN or infinite."""
    return 1 if math.isnan(number) else 2 if math.isinf(number) else 0


def _octet_rows(octets: NDArray[np.uint8]) -> Vectors:
    """Return all bytes of rows and, of short ones, all of their bits."""
    if 9 * octets.shape[1] > _COLUMNS:
        return octets.astype(np.float64)
    return np.concatenate([octets, np.unpackbits(octets, axis=1)], axis=1).astype(np.float64)


def _fits(octets: bytes) -> bool:
    return 0 < len(octets) <= _COLUMNS


# ---- Calling


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of a function from being shown or, in a test suite, from being raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class BatchRaised(Exception):
    """A batch raised an exception, so its calls have to be made one by one."""


class Caller:
    """Calls a function on inputs, each time on a fresh copy, and reads the outputs.

    Parameters
    ----------
    function : callable
    batched : bool
        Whether it takes a batch of inputs and returns as many outputs.
    rng : numpy.random.Generator
        Decides the order of calls on two inputs.
    """

    def __init__(
        self, function: Callable[[Any], Any], batched: bool, rng: np.random.Generator
    ) -> None:
        self._function, self._batched, self._rng = function, batched, rng
        self.reader = Reader()
        self.one_by_one = not batched
        """Whether every call is of one input, because no batch is taken or one raised."""
        self.calls = 0
        self.error: Exception | None = None
        """The last exception of a call."""
        self.raised = 0
        self.answered = False
        """Whether any call returned an output."""

    def raw(self, x: Input, count: int) -> Any:
        """Return ``count`` fresh outputs of an input."""
        with quiet():
            if self.one_by_one:
                return [self._call(x) for _ in range(count)]
            return self._batch(x, count)

    def outputs(self, x: Input, count: int, rows: int) -> Outputs:
        """Return ``count`` fresh outputs of an input, read; drawn ``rows`` at a time."""
        while True:
            try:
                starts = range(0, count, rows)
                parts = [self.raw(x, min(rows, count - start)) for start in starts]
                return joined([self.reader.read(part) for part in parts])
            except BatchRaised:
                continue

    def both(self, x: Input, other: Input, count: int) -> tuple[Outputs, Outputs]:
        """Return fresh outputs of two inputs, called in random order."""
        sides = (x, other)
        drawn: tuple[Any, Any] = ([], [])
        with quiet():
            if self.one_by_one:
                for side in self._rng.permutation(np.repeat([0, 1], count)).tolist():
                    drawn[side].append(self._call(sides[side]))
            else:
                drawn = self._mixed(x, other, count)
        return self.reader.read(drawn[0]), self.reader.read(drawn[1])

    def _mixed(self, x: Input, other: Input, count: int) -> tuple[Any, Any]:
        """Return outputs of two inputs from one batch, in which they are in random order."""
        first, second, order = x.batch(count), other.batch(count), self._rng.permutation(2 * count)
        back = np.argsort(order)
        if isinstance(first, np.ndarray):
            outputs = self._batch(x, 2 * count, np.concatenate([first, second])[order])
        else:
            both = [*first, *second]
            outputs = self._batch(x, 2 * count, [both[place] for place in order.tolist()])
        if isinstance(outputs, np.ndarray):
            return outputs[back[:count]], outputs[back[count:]]
        ordered = [outputs[place] for place in back.tolist()]
        return ordered[:count], ordered[count:]

    def seconds(self, x: Input) -> float:
        """Return the seconds of one call, and settle the reader on the outputs."""
        started, first = time.perf_counter(), self.raw(x, 1)
        single = time.perf_counter() - started
        most = _TIMED if self.one_by_one else _TIMED_BATCH
        rows = max(1, min(most, int(_TIMED_SECONDS / max(single, 1e-9))))
        started = time.perf_counter()
        outputs = self.raw(x, rows)
        taken = time.perf_counter() - started
        self.reader.settle([*first, *outputs[:_TIMED]])
        started = time.perf_counter()
        self.reader.read(outputs)
        return (taken + time.perf_counter() - started) / rows

    def _call(self, x: Input) -> Any:
        self.calls += 1
        try:
            output = self._function(x.batch(1))[0] if self._batched else self._function(x.fresh())
        except Exception as error:
            self.error = error
            self.raised += 1
            return Raised(error)
        self.answered = True
        return output

    def _batch(self, x: Input, count: int, batch: Any = None) -> Any:
        self.calls += count
        try:
            outputs = self._function(x.batch(count) if batch is None else batch)
        except Exception as error:
            self.error, self.one_by_one = error, True
            raise BatchRaised from error
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(outputs, torch.Tensor):
            outputs = outputs.detach().cpu().numpy()
        try:
            returned = len(outputs)
        except TypeError:
            returned = -1
        if returned != count or isinstance(outputs, str | bytes | dict):
            what = f"{returned} outputs" if returned >= 0 else f"a {type(outputs).__name__}"
            raise InvalidInput(
                f"with batched=True the function must return one output per input, got {what} for "
                f"{count} copies of {shown(x.value)}; without it, it is called with one input"
            )
        self.answered = True
        return outputs


_TIMED, _TIMED_BATCH = 64, 4096
_TIMED_SECONDS: Final = 0.02


def name_of(function: Any) -> str:
    """Return the name of a function, or the type of another callable."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return str(name).rpartition("<locals>.")[2]
