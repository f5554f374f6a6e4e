"""The settings of the studies: a public task, public vectors, and vectors with known answers.

This module is the only interface between the studies and their data. Data are loaded on first use
and kept, because many rows of many studies share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.models.weights import network_of, reference_heads
from experiments.reference_protocol import JACOBIANS
from experiments.scores import Metric, Score, score_for
from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, Layers, PublicVectors, TaskModel, measure
from offaxis.geometry.spectrum import spectrum
from offaxis.privacy.guarantee import Unit
from offaxis.vectors import Vectors


class Sample(NamedTuple):
    """Vectors (n, m) and their answers: labels or numbers (n,), or outputs (n, k)."""

    vectors: Vectors
    answers: NDArray[Any]


class Source(Protocol):
    """One setting of a study."""

    @property
    def name(self) -> str:
        """The name in results."""
        ...

    @property
    def metric(self) -> Metric:
        """What is measured."""
        ...

    @property
    def scoring(self) -> TaskModel:
        """The model whose outputs are scored: the public task, or its metric."""
        ...

    @property
    def score(self) -> Score:
        """How outputs are scored."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether every seed has the same sample."""
        ...

    @property
    def unit(self) -> Unit:
        """The unit of protection of one report."""
        ...

    @property
    def task(self) -> TaskModel:
        """The public task."""
        ...

    @property
    def public(self) -> PublicVectors:
        """The public vectors that releases are fitted to."""
        ...

    @property
    def geometry(self) -> Geometry:
        """The geometry of the task on the public vectors, measured once."""
        ...

    @property
    def directions(self) -> tuple[Vectors, Vectors] | None:
        """Singular values and directions of the Jacobians, if few vectors were chosen for them."""
        ...

    @property
    def fitted(self) -> dict[tuple[str, float], Any]:
        """A cache of everything fitted to the public side, by method and budget."""
        ...

    def chosen_again(self, choice: int) -> Source:
        """Return the setting with Jacobians on other public vectors."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of everything above and of the sample."""
        ...

    def sample(self, seed: int) -> Sample:
        """Return the vectors and answers of a seed."""
        ...


@dataclass(frozen=True, eq=False)
class PublicTask:
    """A task and its public vectors; shared by settings that differ in their samples only."""

    task: TaskModel
    vectors: NDArray[Any]
    fitted: dict[tuple[str, float], Any] = field(default_factory=dict)
    jacobians: int | None = None
    """Measure the Gram on so many random public vectors instead of all."""
    choice: int = 0
    """The seed that chooses them."""

    @cached_property
    def public(self) -> PublicVectors:
        """The public vectors."""
        return PublicVectors(np.asarray(self.vectors, dtype=np.float64))

    @cached_property
    def _whole(self) -> Geometry:
        return measure(self.task, self.public)

    @cached_property
    def stacked(self) -> Vectors | None:
        """The Jacobians on the chosen public vectors, below each other; None if all are used."""
        if self.jacobians is None or self.jacobians >= len(self.vectors):
            return None
        order = np.random.default_rng(self.choice).permutation(len(self.vectors))
        chosen = np.asarray(self.vectors[order[: self.jacobians]], dtype=np.float64)
        stacked: Vectors = np.concatenate(list(self.task.jacobians(chosen)))
        return stacked

    @cached_property
    def geometry(self) -> Geometry:
        """The geometry of the task on the public vectors, measured once."""
        if self.stacked is None or self.jacobians is None:
            return self._whole
        return replace(self._whole, gram=self.stacked.T @ self.stacked / self.jacobians)

    @cached_property
    def directions(self) -> tuple[Vectors, Vectors] | None:
        """The singular values of the stacked Jacobians and their directions, as rows."""
        if self.stacked is None:
            return None
        _, values, directions = np.linalg.svd(self.stacked, full_matrices=False)
        return values, directions

    @cached_property
    def _others(self) -> dict[int, PublicTask]:
        return {}

    def chosen_again(self, choice: int) -> PublicTask:
        """Return the same task with Jacobians on other public vectors."""
        if choice not in self._others:
            other = replace(self, choice=choice, fitted={})
            # What does not depend on the choice is not measured again.
            other.__dict__.update(public=self.public, _whole=self._whole)
            self._others[choice] = other
        return self._others[choice]


@dataclass(frozen=True, eq=False)
class Setting:
    """A source made of a public side and a function that draws samples."""

    name: str
    side: PublicTask
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
        """The model whose outputs are scored: ``scored_by``, or else the public task."""
        return self.scored_by or self.task

    @cached_property
    def score(self) -> Score:
        """How outputs are scored."""
        return score_for(self.metric, self.scoring.outputs(self.geometry.mean[None])[0])

    @property
    def public(self) -> PublicVectors:
        """The public vectors that releases are fitted to."""
        return self.side.public

    @property
    def geometry(self) -> Geometry:
        """The geometry of the task on the public vectors, measured once."""
        return self.side.geometry

    @property
    def directions(self) -> tuple[Vectors, Vectors] | None:
        """Singular values and directions of the Jacobians, if few vectors were chosen for them."""
        return self.side.directions

    @property
    def fitted(self) -> dict[tuple[str, float], Any]:
        """A cache of everything fitted to the public side."""
        return self.side.fitted

    def chosen_again(self, choice: int) -> Setting:
        """Return the setting with Jacobians on other public vectors."""
        return replace(self, side=self.side.chosen_again(choice))

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
        if self.side.jacobians is not None:
            digest.update(f"{self.side.jacobians} Jacobians".encode())
        if self.scored_by is not None:
            digest.update(self.scored_by.identity().sha256.encode())
        for array in self.sample(0):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


CORRUPTIONS: Final = ("brightness", "fog", "defocus-blur", "gaussian-noise")
"""The shifts of CIFAR-10-C that the paper tests."""

HEADS: Final = {"cifar10": ("linear", "relu", "gelu", "tanh"), "mnist": ("relu",)}
"""Our heads by data set."""

REFERENCE_HEADS: Final = reference_heads()
"""The heads trained by the recipe of the paper's public code, by data set: KIND-ENCODER-START."""


@cache
def _public(data: str, network: str | None) -> Vectors:
    """Return the public vectors of an encoder, shared by all its heads."""
    from experiments.features import load_features

    vectors = load_features(data, part="train", network=network).vectors
    return vectors.astype(np.float64)


@cache
def _side(data: str, head: str) -> PublicTask:
    """Return a head and the public vectors of its encoder.

    Ours lose their silent units; those of the reference recipe stay as they are, and their Gram is
    measured on 500 vectors.
    """
    from experiments.models import load_model

    if head in HEADS[data]:
        public = _public(data, None)
        return PublicTask(load_model(f"{data}-{head}").without_silent_units(public), public)
    public, task = _public(data, network_of(data, head)), load_model(f"published/{data}-{head}")
    return PublicTask(task, public, jacobians=JACOBIANS)


def _images(name: str, data: str, head: str, **which: Any) -> Setting:
    from experiments.features import load_features

    base = data.removesuffix("-c")
    network = None if head in HEADS[base] else network_of(base, head)
    features = load_features(data, network=network, **which)
    side = _side(base, head)
    return Setting(name, side, lambda seed: (features.vectors, features.labels))


def _households() -> Setting:
    from experiments.data import load
    from experiments.households import prepare

    readings: Any = load("lhsm")
    study = prepare(readings.energy, readings.first_day)

    def draw(seed: int) -> tuple[Any, Any]:
        drawn = study.draw(seed)
        return drawn.vectors, drawn.targets

    side = PublicTask(study.model, study.public)
    return Setting("lhsm", side, draw, "rmse", fixed=False, unit="user")


def _plane() -> Setting:
    """Return two classes of points in the plane, on either side of a slanted line."""
    rng = np.random.default_rng(1)
    normal = np.array([0.8, 0.6])
    labels = rng.integers(0, 2, 6000)
    along, across = rng.standard_normal((2, 6000)) * [[1.6], [0.45]]
    points = np.outer(along, [-0.6, 0.8]) + np.outer(across + 2.0 * labels - 1.0, normal)
    task = Layers([np.stack([-normal, normal])], [np.zeros(2)], name="a line in the plane")
    public, test = points[:3000], (points[3000:], labels[3000:])
    return Setting("plane", PublicTask(task, public), lambda seed: test)


PUBLISHED: Final = "published "
"""The first word of a setting that stands for all heads of the reference recipe."""

FIRST_ENCODER: Final = "published-first "
"""The same for the heads on the first encoder only."""


def members(setting: str) -> tuple[str, ...]:
    """Return the settings that a name stands for: one, or one per head of the reference recipe.

    Examples
    --------
    >>> from experiments.sources import members
    >>> members("published mnist relu")
    ('mnist relu-0', 'mnist relu-1', 'mnist relu-2', 'mnist relu-3', 'mnist relu-4')
    >>> members("lhsm")
    ('lhsm',)
    """
    if not setting.startswith((PUBLISHED, FIRST_ENCODER)):
        return (setting,)
    base, kind = setting.split(" ", 1)[1].rsplit(" ", 1)
    start = f"{kind}-0-" if setting.startswith(FIRST_ENCODER) else f"{kind}-"
    heads = REFERENCE_HEADS[base.split()[0].removesuffix("-c")]
    return tuple(f"{base} {head}" for head in heads if head.startswith(start))


_registered: Final[dict[str, Setting]] = {}


def register_source(setting: Setting) -> None:
    """Make a setting of a plugin known by its name."""
    if setting.name in ("plane", "lhsm"):
        raise InvalidInput(f"{setting.name!r} is a data set of the paper: use another name")
    _registered[setting.name] = setting
    open_source.cache_clear()


@lru_cache(maxsize=512)
def open_source(name: str) -> Setting:
    """Return a source by name.

    "plane", "lhsm", "mnist HEAD", "cifar10 HEAD" or "cifar10-c CORRUPTION SEVERITY HEAD", where
    HEAD is one of ours or, with numbers, of the reference recipe; before any of them "agreement",
    "fidelity", "pooled" or "means PEOPLE", which derive another setting.
    """
    match name.split():
        case ["agreement", *base]:
            return agreement(open_source(" ".join(base)))
        case ["fidelity", *base]:
            return fidelity(open_source(" ".join(base)))
        case ["pooled", *base]:
            return pooled(open_source(" ".join(base)))
        case ["means", people, *base] if people.isdecimal():
            return means(open_source(" ".join(base)), int(people))
        case [own] if own in _registered:
            return _registered[own]
        case ["plane"]:
            return _plane()
        case ["lhsm"]:
            return _households()
        case [("mnist" | "cifar10") as data, head] if head in (
            *HEADS[data],
            *REFERENCE_HEADS[data],
        ):
            return _images(name, data, head, part="test")
        case ["cifar10-c", corruption, severity, head] if (
            head in (*HEADS["cifar10"], *REFERENCE_HEADS["cifar10"])
            and corruption in CORRUPTIONS
            and severity in "12345"
        ):
            which = {"corruption": corruption.replace("-", "_"), "severity": int(severity)}
            return _images(name, "cifar10-c", head, **which)
    raise InvalidInput(f"no setting is called {name!r}")


# ---- Derived settings
#
# They score something else on the vectors of a setting and protect the same unit. All but pooled()
# keep the public side, so releases are fitted once for both.

Draw = Callable[[int], tuple[Any, Any]]

_POOL: Final = 80_000
"""The largest number of vectors in a pool."""


def agreement(base: Setting) -> Setting:
    """Score the task's answers: how often they are kept, or what share of their variance.

    This is what :func:`offaxis.recommend` predicts for the goal "answers".
    """
    scalar = base.geometry.outputs == 1

    def draw(seed: int) -> tuple[Any, Any]:
        vectors = base.sample(seed).vectors
        outputs = base.task.outputs(vectors)
        return vectors, outputs if scalar else outputs.argmax(axis=1)

    metric: Metric = "explained" if scalar else "accuracy"
    return replace(base, name=f"agreement {base.name}", draw=draw, metric=metric)


def fidelity(base: Setting) -> Setting:
    """Score the vectors themselves, in the metric of the task."""
    root = metric_root(base)
    return replace(
        base,
        name=f"fidelity {base.name}",
        draw=_scored(root, base.sample),
        metric="explained",
        scored_by=root,
    )


def pooled(base: Setting) -> Setting:
    """Draw public and private vectors at random from one pool, so that no shift exists.

    The pool are the private vectors, or the public ones if private vectors are drawn for each seed.
    This excludes two shifts: a network behaves differently on the vectors it was trained on, and
    people of another year differ.
    """
    vectors = base.sample(0).vectors if base.fixed else base.side.vectors
    order = np.random.default_rng(0).permutation(len(vectors))[:_POOL]
    public, private = np.split(vectors[order], [len(order) // 2])
    side = PublicTask(base.task, public)
    answers = base.task.outputs(private)
    sample = (private, answers[:, 0] if answers.shape[1] == 1 else answers.argmax(axis=1))
    return replace(
        base, name=f"pooled {base.name}", side=side, draw=lambda seed: sample, fixed=True
    )


def means(base: Setting, people: int) -> Setting:
    """Score the mean over people, drawn for each seed, in the metric of the task."""
    root = metric_root(base)

    def drawn(seed: int) -> tuple[Vectors, Any]:
        vectors, answers = base.sample(seed)
        if not 1 <= people <= len(vectors):
            raise InvalidInput(
                f"people must be from 1 to {len(vectors)}, the vectors of {base.name!r}, "
                f"got people={people}"
            )
        chosen = np.random.default_rng([seed, people]).permutation(len(vectors))[:people]
        return vectors[chosen], answers[chosen]

    return replace(
        base,
        name=f"means {people} {base.name}",
        draw=_scored(root, drawn),
        metric="mean error",
        fixed=False,
        scored_by=root,
    )


def metric_root(base: Setting) -> Layers:
    """Return a linear task R with RᵀR = Ω, the task's Gram on the public vectors."""
    eigen = spectrum(base.geometry.gram)
    read = eigen.values > 0
    return Layers.linear(np.sqrt(eigen.values[read])[:, None] * eigen.basis.T[read])


def _scored(task: TaskModel, sample: Callable[[int], tuple[Any, Any]]) -> Draw:
    """Return a draw function whose answers are the task's outputs on the vectors."""

    def draw(seed: int) -> tuple[Any, Any]:
        vectors, _ = sample(seed)
        return vectors, task.outputs(vectors)

    return draw
