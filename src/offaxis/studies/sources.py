"""What a study is run on: a public task, public vectors, and vectors with known answers.

The one seam between the studies and their data. Everything behind it is loaded when first asked
for, and kept: many rows of many studies share one set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, PublicVectors, TaskModel, measure
from offaxis.vectors import Vectors

Metric = Literal["accuracy", "rmse"]


class Sample(NamedTuple):
    """Vectors (n, m) and their answers (n,), labels or numbers."""

    vectors: Vectors
    answers: NDArray[Any]


class Source(Protocol):
    """One setting of a study."""

    @property
    def name(self) -> str:
        """How results call it."""
        ...

    @property
    def metric(self) -> Metric:
        """What is measured."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether every seed has the same sample."""
        ...

    @property
    def task(self) -> TaskModel:
        """The public task."""
        ...

    @property
    def public(self) -> PublicVectors:
        """Public vectors, to fit on."""
        ...

    @property
    def geometry(self) -> Geometry:
        """The task measured on the public vectors, once."""
        ...

    @property
    def fitted(self) -> dict[tuple[str, float], Any]:
        """What was fitted to the public side before, by mechanism and budget."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of everything above and of the sample: other inputs, other fingerprint."""
        ...

    def sample(self, seed: int) -> Sample:
        """Return the vectors and answers of a seed."""
        ...


@dataclass(frozen=True, eq=False)
class PublicSide:
    """A task and the public vectors it is measured on; shared by settings that test elsewhere."""

    task: TaskModel
    vectors: NDArray[Any]
    fitted: dict[tuple[str, float], Any] = field(default_factory=dict)

    @cached_property
    def public(self) -> PublicVectors:
        """The public vectors."""
        return PublicVectors(np.asarray(self.vectors, dtype=np.float64))

    @cached_property
    def geometry(self) -> Geometry:
        """Measured once."""
        return measure(self.task, self.public)


@dataclass(frozen=True, eq=False)
class Setting:
    """A source made of a public side and a way to get samples."""

    name: str
    side: PublicSide
    draw: Callable[[int], tuple[Any, Any]]
    metric: Metric = "accuracy"
    fixed: bool = True

    @property
    def task(self) -> TaskModel:
        """The public task."""
        return self.side.task

    @property
    def public(self) -> PublicVectors:
        """Public vectors, to fit on."""
        return self.side.public

    @property
    def geometry(self) -> Geometry:
        """The task measured on the public vectors, once."""
        return self.side.geometry

    @property
    def fitted(self) -> dict[tuple[str, float], Any]:
        """What was fitted to the public side before."""
        return self.side.fitted

    def sample(self, seed: int) -> Sample:
        """Return the vectors and answers of a seed."""
        vectors, answers = self.draw(0 if self.fixed else seed)
        return Sample(np.asarray(vectors, dtype=np.float64), np.asarray(answers))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the task, the public vectors and the first sample."""
        digest = hashlib.sha256(f"{self.metric} {self.fixed}".encode())
        digest.update(self.geometry.model.sha256.encode())
        digest.update(self.geometry.public.sha256.encode())
        for array in self.sample(0):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


CORRUPTIONS: Final = ("brightness", "fog", "defocus-blur", "gaussian-noise")
"""The shifts of CIFAR-10-C that the paper tests."""

CIFAR10_HEADS: Final = ("linear", "relu", "gelu", "tanh")


def _features(name: str, **which: Any) -> Any:
    # Looked up when asked for: other settings do without.
    return import_module("offaxis.studies.features").load_features(name, **which)


def _labelled(found: Any) -> Callable[[int], tuple[Any, Any]]:
    return lambda seed: (found.vectors, found.labels)


@cache
def _side(data: str, head: str) -> PublicSide:
    from offaxis.studies.models import load_model

    return PublicSide(load_model(f"{data}-{head}"), _features(data, part="train").vectors)


def _households() -> Setting:
    from offaxis.data import load
    from offaxis.studies.households import prepare

    readings: Any = load("lhsm")
    study = prepare(readings.energy, readings.first_day)

    def draw(seed: int) -> tuple[Any, Any]:
        drawn = study.draw(seed)
        return drawn.vectors, drawn.targets

    return Setting("lhsm", PublicSide(study.model, study.public), draw, "rmse", fixed=False)


@lru_cache(maxsize=64)
def open_source(name: str) -> Source:
    """Return a source by name.

    "lhsm", "mnist HEAD", "cifar10 HEAD" or "cifar10-c CORRUPTION SEVERITY HEAD".
    """
    match name.split():
        case ["lhsm"]:
            return _households()
        case [("mnist" | "cifar10") as data, head] if head in CIFAR10_HEADS:
            test = _features(data, part="test")
            return Setting(name, _side(data, head), _labelled(test))
        case ["cifar10-c", corruption, severity, head] if (
            head in CIFAR10_HEADS and corruption in CORRUPTIONS and severity in "12345"
        ):
            found = _features("cifar10-c", corruption=corruption, severity=int(severity))
            return Setting(name, _side("cifar10", head), _labelled(found))
    raise InvalidInput(f"there is no setting called {name!r}")
