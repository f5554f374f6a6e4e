"""Answers of a public model as symbols: their names, and the encoder of a model kept elsewhere.

A release can hold a small network (:mod:`offaxis.encoding.encoders`). Of any other model it holds
the identity and the names of the answers, and the device supplies the model or the answer. The
guarantee does not depend on the model: the randomizer after it provides it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.encoders import frozen_shift
from offaxis.errors import InvalidInput, ModelNeeded
from offaxis.geometry.models import ModelIdentity, as_task_model
from offaxis.vectors import Vectors, has_device

_LOG: Final = logging.getLogger(__name__)

_WHOLE: Final = re.compile(r"-?\d+(\.0*)?")

LONGEST_NAME: Final = 200
MOST_ANSWERS: Final = 1 << 20


@dataclass(frozen=True)
class Answers:
    """The answers of a public model, and the symbol that reports each of them.

    Attributes
    ----------
    names : tuple of str
        One name per answer.
    symbols : tuple of int
        The symbol that a client with this answer reports. Rare answers may share the symbol of
        another answer.
    kept : tuple of int
        For every symbol, the answer that it stands for.

    Examples
    --------
    >>> from offaxis.encoding import Answers
    >>> answers = Answers(("cat", "dog", "axolotl"), symbols=(0, 1, 0), kept=(0, 1))
    >>> answers.symbol_of("dog"), answers.symbol_names
    (1, ('cat or axolotl', 'dog'))
    """

    names: tuple[str, ...]
    symbols: tuple[int, ...]
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that every answer has a symbol, and every symbol an answer."""
        names, symbols, kept = tuple(self.names), tuple(self.symbols), tuple(self.kept)
        if not 2 <= len(names) <= MOST_ANSWERS or len(set(names)) != len(names):
            raise InvalidInput("a model needs two or more answers with different names")
        if not all(isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME for name in names):
            raise InvalidInput(f"a name of an answer has 1 to {LONGEST_NAME} characters")
        valid = len(symbols) == len(names) and all(0 <= s < len(kept) for s in symbols)
        if not valid or [symbols[a] for a in kept if 0 <= a < len(names)] != list(range(len(kept))):
            raise InvalidInput("every answer needs a symbol, and every symbol an answer")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "symbols", symbols)
        object.__setattr__(self, "kept", kept)

    @property
    def symbol_names(self) -> tuple[str, ...]:
        """What each symbol stands for: one answer, or several that share it."""
        shared: list[list[str]] = [[self.names[answer]] for answer in self.kept]
        for answer, symbol in enumerate(self.symbols):
            if answer != self.kept[symbol]:
                shared[symbol].append(self.names[answer])
        return tuple(_either(names) for names in shared)

    def symbols_of(self, answers: Any) -> tuple[list[int], bool]:
        """Return the symbols of one or several answers, and whether it was one.

        ``answers`` is an index or a name, or a list, a tuple or an array (n,) of these.
        """
        if isinstance(answers, str | int | np.generic):
            return [self.symbol_of(answers)], True
        if isinstance(answers, list | tuple):
            return [self.symbol_of(answer) for answer in answers], False
        if hasattr(answers, "__array__"):
            values = np.asarray(answers)
            if values.ndim <= 1:
                symbols = [self.symbol_of(answer) for answer in values.reshape(-1).tolist()]
                return symbols, values.ndim == 0
        raise InvalidInput(
            f"answers are an index or a name, or a list or array (n,) of these, got "
            f"{type(answers).__name__}"
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        """The index of each name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _named_by_other_integers(self) -> bool:
        """Whether a name is a whole number that is not its index: a label, such as 1, 2, 3."""
        return any(
            _WHOLE.fullmatch(name) is not None and name != str(index)
            for index, name in enumerate(self.names)
        )

    def symbol_of(self, answer: Any) -> int:
        """Return the symbol of an answer, given by its index or its name.

        Raises
        ------
        InvalidInput
            If there is no such answer, or an index could be confused with a name: for answers named
            by other integers, pass the names. The message does not contain the answer, because it
            is private.
        """
        labels = (str, bool, float, np.bool_, np.floating)
        if isinstance(answer, labels) and str(answer) in self._places:
            return self.symbols[self._places[str(answer)]]
        integer = isinstance(answer, int | np.integer) and not isinstance(answer, bool)
        if integer and self._named_by_other_integers:
            raise InvalidInput(
                f"the answers are named by integers that are not their indices: pass names, such "
                f"as {self.names[0]!r}, instead of an integer"
            )
        if integer and 0 <= answer < len(self.names):
            return self.symbols[int(answer)]
        raise InvalidInput(
            f"an answer is a whole number from 0 to {len(self.names) - 1} or one of the names "
            f"{', '.join(map(repr, self.names[:5]))}{', …' if len(self.names) > 5 else ''}, got a "
            f"{type(answer).__name__} that is neither"
        )


def _either(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return " or ".join(names)
    return f"{names[0]} or {len(names) - 1} others"


@dataclass(frozen=True, eq=False, repr=False)
class ModelEncoder:
    """x = symbol of the answer of a public model that is not part of the release.

    Contract: nothing is encoded before a model is attached (:meth:`attach`,
    :meth:`offaxis.Release.with_model`). Private vectors are encoded by :meth:`encode_each`, which
    is total and calls the model with one vector at a time: whatever a model without memory does,
    a report depends on one vector, and there is one. A model that remembers earlier vectors could
    put them into later answers; no call can prevent that.

    Parameters
    ----------
    symbols : (answers,) array
        The symbol of every answer.
    centre : (m,) array
        The public mean.

    Examples
    --------
    >>> from offaxis.encoding import ModelEncoder
    >>> encoder = ModelEncoder(np.array([0.0, 1.0]), centre=np.zeros(3))
    >>> encoder.attach(lambda Z: (Z[:, 0] > 0).astype(int)).encode(np.eye(3))
    array([1, 0, 0])
    """

    kind: ClassVar[str] = "model-answer"

    symbols: Vectors
    centre: Vectors
    answer: Callable[[Vectors], Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check that symbols are 0 … k − 1, all of them used, and freeze the arrays."""
        symbols, centre = frozen_shift(self.symbols), frozen_shift(self.centre)
        used = np.unique(symbols)
        if used.size < 2 or not np.array_equal(used, np.arange(used.size)):
            raise InvalidInput("the symbols of the answers must be 0, 1, … without a gap")
        object.__setattr__(self, "symbols", symbols)
        object.__setattr__(self, "centre", centre)

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.centre.size)

    @property
    def output_dim(self) -> int:
        """Number of symbols."""
        return int(self.symbols.max()) + 1

    def attach(self, answer: Callable[[Vectors], Any]) -> ModelEncoder:
        """Return the encoder with the model: a function from (n, m) vectors to n answers."""
        attached = replace(self)
        object.__setattr__(attached, "answer", answer)
        return attached

    def attach_model(
        self, model: Any, recorded: ModelIdentity | None, codewords: Vectors | None
    ) -> ModelEncoder:
        """Return the encoder with a model that has the recorded identity.

        The model must give the codeword of every symbol an answer of that symbol.

        Raises
        ------
        InvalidInput
            If it is another model.
        """
        task = as_task_model(model)
        identity = task.identity()
        if recorded is None or (identity.kind, identity.sha256) != (recorded.kind, recorded.sha256):
            expected = f"{recorded.name} ({recorded.sha256[:12]}…)" if recorded else "none"
            raise InvalidInput(
                f"this is another model: the release reports the answers of {expected}, got "
                f"{identity.name} ({identity.sha256[:12]}…)"
            )
        attached = self.attach(lambda Z: task.outputs(Z).argmax(axis=1))
        if codewords is not None:
            differ = np.count_nonzero(attached.encode(codewords) != np.arange(len(codewords)))
            if differ:
                raise InvalidInput(
                    f"this is another model: it gives {differ} of {len(codewords)} public "
                    f"codewords another answer"
                )
        return attached

    def require_model(self) -> Callable[[Vectors], Any]:
        """Return the model; raise if none is attached."""
        if self.answer is None:
            raise ModelNeeded(
                "this release reports the answer of a model that its file does not contain: "
                "attach the model with offaxis.load(path, model=…) or release.with_model(model), "
                "or report an answer with release.privatize_answer(answer)"
            )
        return self.answer

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map (n, m) to (n,) symbols."""
        answer = self.require_model()
        if has_device(Z):
            raise InvalidInput("a model outside the release takes NumPy vectors")
        answers = np.asarray(answer(Z))
        known = answers.shape == (len(Z),) and answers.dtype.kind in "iu"
        if not known or not ((answers >= 0) & (answers < self.symbols.size)).all():
            raise InvalidInput(
                f"the model must return one of {self.symbols.size} answers for every vector"
            )
        symbols: NDArray[Any] = self.symbols[answers].astype(np.int64)
        return symbols

    def encode_each(self, Z: Vectors) -> NDArray[Any]:
        """Map private vectors (n, m) to (n,) symbols, one at a time.

        A vector on which the model fails, or returns no answer, has the symbol 0. A device that
        made no report, or another one because of other people's vectors, would reveal something
        about the vector. The number of failures is logged on the device.
        """
        self.require_model()
        symbols, failed = np.zeros(len(Z), dtype=np.int64), 0
        for row in range(len(Z)):
            try:
                symbols[row] = self.encode(Z[row : row + 1].copy())[0]
            except (Exception, SystemExit, GeneratorExit):
                failed += 1
        if failed:
            # Neither a warning, which an application can turn into an error, nor its handler.
            with suppress(Exception):
                _LOG.warning(
                    "the model failed on %d of %d vectors (see encode_each)", failed, len(Z)
                )
        return symbols
