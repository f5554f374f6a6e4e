"""What a study is run on: a public task, public vectors, and vectors with known answers.

The one seam between the studies and their data. Everything behind it is loaded when first asked
for, and kept: many rows of many studies share one set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, Layers, PublicVectors, TaskModel, measure
from offaxis.privacy.guarantee import Unit
from offaxis.studies.scores import Metric, Score, score_for
from offaxis.vectors import Vectors


class Sample(NamedTuple):
    """Vectors (n, m) and their answers: labels or numbers (n,), or outputs (n, k)."""

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
    def scoring(self) -> TaskModel:
        """Whose outputs are scored: the public task, or its metric."""
        ...

    @property
    def score(self) -> Score:
        """How they are scored."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether every seed has the same sample."""
        ...

    @property
    def unit(self) -> Unit:
        """What one report stands for."""
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
    unit: Unit = "item"
    scored_by: TaskModel | None = None

    @property
    def task(self) -> TaskModel:
        """The public task."""
        return self.side.task

    @property
    def scoring(self) -> TaskModel:
        """Whose outputs are scored: the public task, unless another one was given."""
        return self.scored_by or self.task

    @cached_property
    def score(self) -> Score:
        """How they are scored."""
        return score_for(self.metric, self.scoring.outputs(self.geometry.mean[None])[0])

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
        if self.scored_by is not None:
            digest.update(self.scored_by.identity().sha256.encode())
        for array in self.sample(0):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


CORRUPTIONS: Final = ("brightness", "fog", "defocus-blur", "gaussian-noise")
"""The shifts of CIFAR-10-C that the paper tests."""

HEADS: Final = {"cifar10": ("linear", "relu", "gelu", "tanh"), "mnist": ("relu",)}


@cache
def _side(data: str, head: str) -> PublicSide:
    from offaxis.studies.features import load_features
    from offaxis.studies.models import load_model

    public = load_features(data, part="train").vectors
    return PublicSide(load_model(f"{data}-{head}").without_silent_units(public), public)


def _images(name: str, data: str, head: str, **which: Any) -> Setting:
    from offaxis.studies.features import load_features

    found = load_features(data, **which)
    side = _side(data.removesuffix("-c"), head)
    return Setting(name, side, lambda seed: (found.vectors, found.labels))


def _households() -> Setting:
    from offaxis.data import load
    from offaxis.studies.households import prepare

    readings: Any = load("lhsm")
    study = prepare(readings.energy, readings.first_day)

    def draw(seed: int) -> tuple[Any, Any]:
        drawn = study.draw(seed)
        return drawn.vectors, drawn.targets

    side = PublicSide(study.model, study.public)
    return Setting("lhsm", side, draw, "rmse", fixed=False, unit="user")


def _plane() -> Setting:
    """Return two classes of points in the plane, one behind the other along a slanted line."""
    rng = np.random.default_rng(1)
    normal = np.array([0.8, 0.6])
    labels = rng.integers(0, 2, 6000)
    along, across = rng.standard_normal((2, 6000)) * [[1.6], [0.45]]
    points = np.outer(along, [-0.6, 0.8]) + np.outer(across + 2.0 * labels - 1.0, normal)
    task = Layers([np.stack([-normal, normal])], [np.zeros(2)], name="a line in the plane")
    public, test = points[:3000], (points[3000:], labels[3000:])
    return Setting("plane", PublicSide(task, public), lambda seed: test)


@lru_cache(maxsize=64)
def open_source(name: str) -> Setting:
    """Return a source by name.

    "plane", "lhsm", "mnist HEAD", "cifar10 HEAD" or "cifar10-c CORRUPTION SEVERITY HEAD"; before
    any of them "agreement", "fidelity" or "means PEOPLE", which ask for something else.
    """
    from offaxis.studies import derived

    match name.split():
        case ["agreement", *base]:
            return derived.agreement(open_source(" ".join(base)))
        case ["fidelity", *base]:
            return derived.fidelity(open_source(" ".join(base)))
        case ["pooled", *base]:
            return derived.pooled(open_source(" ".join(base)))
        case ["means", people, *base] if people.isdecimal():
            return derived.means(open_source(" ".join(base)), int(people))
        case ["plane"]:
            return _plane()
        case ["lhsm"]:
            return _households()
        case [("mnist" | "cifar10") as data, head] if head in HEADS[data]:
            return _images(name, data, head, part="test")
        case ["cifar10-c", corruption, severity, head] if (
            head in HEADS["cifar10"] and corruption in CORRUPTIONS and severity in "12345"
        ):
            which = {"corruption": corruption.replace("-", "_"), "severity": int(severity)}
            return _images(name, "cifar10-c", head, **which)
    raise InvalidInput(f"there is no setting called {name!r}")
