"""What a mechanism is: public maps around a randomizer, and how they are fitted.

Contract: the guarantee is the randomizer's. The maps are fitted on public vectors and determine
only the utility of the reports. A mechanism takes :class:`PublicInputs` and returns :class:`Parts`;
:func:`offaxis.fit` freezes these into a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from offaxis.decoding import Decoder
from offaxis.encoding import Answers, Encoder, Frame, public_radius
from offaxis.encoding.radius import check_percentile
from offaxis.encoding.reshaping import (
    Centre,
    Jacobian,
    Plain,
    Reshaping,
    Settings,
    as_reshaping,
)
from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, PublicVectors, TaskModel, as_task_model, measure
from offaxis.geometry.jacobian import check_model
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import Progress, PublicIdentity, Survey, survey, taken_evenly, walk
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import check_delta
from offaxis.vectors import Order, Vectors

Goal = Literal["answers", "vectors", "means"]
"""The model's answer for each vector; the vector in the task's metric; or a mean over people."""

PERCENTILE: Final = 90.0
"""Default percentile: the share of the public vectors whose norm the radius covers."""

_SAMPLE_NUMBERS: Final = 1 << 24
"""The most numbers of public vectors held in memory where moments do not suffice."""


@dataclass(frozen=True, eq=False)
class PublicInputs:
    """The public inputs of a mechanism, and its budget. Nothing here is private.

    Attributes
    ----------
    frame : Frame
        The coordinates in which the mechanism works, reshaped to the task or not.
    public, identity
        The public vectors and their identity.
    mean, covariance
        Their moments.
    gram : (m, m) array, optional
        Ω̂ of the task, if one was measured.
    outputs : int
        Number of outputs of the task; 0 without a task.
    model, task : optional
        The identity of the task; and the task itself, if it was given.
    epsilon, delta, percentile, size
        As in :func:`offaxis.fit`.
    every_answer : bool
        Whether an answer of the task that no public vector has is an error.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.encoding import Frame
    >>> from offaxis.geometry import PublicVectors
    >>> from offaxis.geometry.public import survey
    >>> from offaxis.mechanisms import PublicInputs, find_mechanism
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((500, 3)))
    >>> inputs = PublicInputs(Frame(np.zeros(3)), public, *survey(public), epsilon=Fraction(2))
    >>> find_mechanism("laplace").prepare(inputs).randomizer.kind
    'laplace'
    """

    frame: Frame
    public: PublicVectors
    identity: PublicIdentity
    mean: Vectors
    covariance: Vectors
    epsilon: Fraction
    delta: Any = None
    percentile: float = PERCENTILE
    size: int | None = None
    gram: Vectors | None = None
    outputs: int = 0
    model: ModelIdentity | None = None
    task: TaskModel | None = None
    every_answer: bool = False

    @property
    def seed(self) -> int:
        """A public seed, so that the same public vectors give the same release."""
        return int(self.identity.sha256[:16], 16)

    @cached_property
    def sample(self) -> Vectors:
        """The public vectors, (n, m): all of them, or an evenly spaced sample of very many."""
        most = max(1, _SAMPLE_NUMBERS // self.identity.dim)
        return taken_evenly(walk(self.public, self.identity), self.identity.count, most)

    def radius(self, encoder: Encoder, order: Order) -> float:
        """Return the percentile of the norms of the encoded public vectors."""
        return public_radius(
            encoder, self.public, self.identity, order=order, percentile=self.percentile
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a release.

    ``settings`` are added to those of the reshaping in its provenance.

    Examples
    --------
    >>> from offaxis.decoding import ShiftDecoder
    >>> from offaxis.encoding import ShiftEncoder
    >>> from offaxis.mechanisms import Parts
    >>> from offaxis.randomizers import Laplace
    >>> parts = Parts(ShiftEncoder(np.zeros(3)), Laplace(3, 1.0, 2), ShiftDecoder(np.zeros(3)))
    >>> parts.encoder.output_dim == parts.randomizer.dim == parts.decoder.input_dim
    True
    """

    encoder: Encoder
    randomizer: Randomizer
    decoder: Decoder
    answers: Answers | None = None
    settings: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mechanism:
    """A named construction around a randomizer.

    Attributes
    ----------
    name : str
    prepare : callable
        From :class:`PublicInputs` to :class:`Parts`.
    order : {1, 2, "inf"} or None
        The norm of its ball, for which the reshaping is fitted; None if it has no ball.
    needs_delta, needs_task, uses_percentile : bool
    needs_geometry : bool
        Whether a task must be differentiated; otherwise any model will do.
    reshaping : {"coordinates", "metric", "none"}
        What a reshaping chooses: the coordinates; the metric of a codebook, with or without the
        task; or nothing, so that none may be given.
    size : str
        What ``size`` counts; empty if the mechanism takes none.

    Examples
    --------
    >>> from offaxis.mechanisms import find_mechanism
    >>> find_mechanism("gaussian").needs_delta
    True
    """

    name: str
    prepare: Callable[[PublicInputs], Parts]
    order: Order | None
    needs_delta: bool = False
    needs_task: bool = False
    needs_geometry: bool = True
    uses_percentile: bool = True
    reshaping: Literal["coordinates", "metric", "none"] = "coordinates"
    size: str = ""

    def check_delta(self, delta: Any) -> None:
        """Raise for a missing δ, and for one that would have no effect."""
        check_delta(delta, self.name, needed=self.needs_delta)

    def check_size(self, size: Any) -> None:
        """Raise for a size that would have no effect."""
        if size is not None and not self.size:
            raise InvalidInput(f"{self.name!r} takes no size, got size={size!r}")

    def read_percentile(self, percentile: Any) -> float:
        """Return the percentile or its default; raise for one without effect."""
        if percentile is None:
            return PERCENTILE
        if not self.uses_percentile:
            raise InvalidInput(
                f"a percentile changes nothing for {self.name!r}: leave out "
                f"percentile={percentile!r}"
            )
        return check_percentile(percentile)

    def read_reshaping(self, reshaping: Any) -> Reshaping:
        """Return the reshaping or its default; raise for one without effect."""
        if reshaping is None:
            return Plain() if self.reshaping == "none" else Jacobian()
        chosen = as_reshaping(reshaping)
        if self.reshaping == "none":
            raise InvalidInput(
                f"a reshaping changes nothing for {self.name!r}: leave out reshaping={reshaping!r}"
            )
        if self.reshaping == "metric" and chosen.uses_task and chosen != Jacobian():
            raise InvalidInput(
                f"{self.name!r} works in the task's metric, where reshaping={reshaping!r} changes "
                f"nothing: use 'jacobian', or 'none' for the Euclidean metric"
            )
        return chosen


def gather(
    model: Any,
    public: Any,
    mechanism: Mechanism,
    *,
    epsilon: Any,
    delta: Any = None,
    reshaping: Any = None,
    percentile: float | None = None,
    size: int | None = None,
    progress: Progress | None = None,
    every_answer: bool = False,
) -> tuple[PublicInputs, Settings]:
    """Return the public inputs of a mechanism, and the settings to record.

    Arguments are those of :func:`offaxis.fit`.
    """
    mechanism.check_delta(delta)
    mechanism.check_size(size)
    percentile = mechanism.read_percentile(percentile)
    shape = mechanism.read_reshaping(reshaping)
    budget, vectors = exact_epsilon(epsilon), PublicVectors(public)
    geometry: Geometry | None = None
    task: TaskModel | None = None
    if shape.uses_task or mechanism.needs_task:
        if isinstance(model, Geometry):
            geometry = model
        else:
            task = as_task_model(model)
            if shape.uses_task or mechanism.needs_geometry:
                geometry = measure(task, vectors, progress)
            else:
                check_model(task, vectors)
    surveyed = geometry.survey if geometry else survey(vectors)
    frame, settings = _frame(shape, mechanism, vectors, surveyed, geometry)
    if mechanism.reshaping != "none":
        settings = {"reshaping": shape.name, **settings}
    inputs = PublicInputs(
        frame,
        vectors,
        *surveyed,
        epsilon=budget,
        delta=delta,
        percentile=percentile,
        size=size,
        gram=geometry.gram if geometry else None,
        outputs=geometry.outputs if geometry else 0,
        model=geometry.model if geometry else task.identity() if task else None,
        task=task,
        every_answer=every_answer,
    )
    return inputs, settings


def _frame(
    shape: Reshaping,
    mechanism: Mechanism,
    vectors: PublicVectors,
    surveyed: Survey,
    geometry: Geometry | None,
) -> tuple[Frame, Settings]:
    """Return the coordinates in which a mechanism works, and the settings to record."""
    settings: Settings = {}
    if geometry and geometry.probes is not None:
        settings["probes"] = float(geometry.probes)
    if isinstance(shape, Centre | Plain):
        centred = isinstance(shape, Centre)
        return Frame(surveyed.mean if centred else np.zeros(surveyed.identity.dim)), settings
    assert geometry is not None
    if mechanism.order is None:
        return task_metric(geometry), settings
    frame, reshaping_settings = shape.frame(mechanism.order, geometry, vectors)
    return frame, settings | reshaping_settings


def task_metric(geometry: Geometry) -> Frame:
    """Return coordinates in which distance is the change of the task's answer: Ω̂^{1/2}(z − μ)."""
    eigen = geometry.spectrum
    seen = eigen.values > 0
    root = np.sqrt(eigen.values[seen])
    basis = eigen.basis[:, seen]
    return Frame(geometry.mean, (basis * root).T, basis / root)
