"""What a mechanism is: public maps around a randomizer, and how they are fitted.

The guarantee is the randomizer's. The maps, fitted on public vectors, decide only what its reports
are worth. A mechanism is given :class:`PublicInputs` and returns :class:`Parts`;
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
from offaxis.encoding import Encoder, Frame, public_radius
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
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import Progress, PublicIdentity, Survey, survey, taken_evenly, walk
from offaxis.geometry.spectrum import spectrum
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import check_delta
from offaxis.vectors import Order, Vectors

PERCENTILE: Final = 90.0
"""Share of the public vectors whose norm the radius covers, in percent, where none is given."""

_SAMPLE_NUMBERS: Final = 1 << 24
"""At most this many numbers of the public vectors are in memory, where moments do not suffice."""


@dataclass(frozen=True, eq=False)
class PublicInputs:
    """The public side of a release, and its budget. Nothing here is private.

    Attributes
    ----------
    frame : Frame
        The coordinates in which the mechanism works: reshaped to the task, or the vector's own.
    public, identity
        The public vectors and their identity.
    mean, covariance
        Their moments.
    gram : (m, m) array, optional
        Ω̂ of the task, where one was measured.
    outputs : int
        Number of the task's outputs; 0 without a task.
    model, task : optional
        The task's identity; and the task itself, where it was given.
    epsilon, delta, percentile, size
        As in :func:`offaxis.fit`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.encoding import Frame
    >>> from offaxis.geometry import PublicVectors
    >>> from offaxis.geometry.public import survey
    >>> from offaxis.mechanisms import PublicInputs, find_mechanism
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((500, 3)))
    >>> inputs = PublicInputs(Frame(np.zeros(3)), public, *survey(public), epsilon=Fraction(2))
    >>> inputs.sample.shape, round(inputs.radius(inputs.frame.encoder, 1), 1)
    ((500, 3), 3.8)
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

    @property
    def seed(self) -> int:
        """A public seed: the same public vectors give the same release."""
        return int(self.identity.sha256[:16], 16)

    @cached_property
    def sample(self) -> Vectors:
        """The public vectors, (n, m): all of them, or an even sample of very many."""
        most = max(1, _SAMPLE_NUMBERS // self.identity.dim)
        return taken_evenly(walk(self.public, self.identity), self.identity.count, most)

    def radius(self, encoder: Encoder, order: Order) -> float:
        """Return the percentile of the public vectors' encoded norms."""
        return public_radius(
            encoder, self.public, self.identity, order=order, percentile=self.percentile
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a release.

    ``settings`` go into its provenance beside those of the reshaping.

    Examples
    --------
    >>> from offaxis.decoding import ShiftDecoder
    >>> from offaxis.encoding import ShiftEncoder
    >>> from offaxis.mechanisms import Parts
    >>> from offaxis.randomizers import Laplace
    >>> parts = Parts(ShiftEncoder(np.zeros(3)), Laplace(3, 1.0, 2), ShiftDecoder(np.zeros(3)))
    >>> parts.mean_decoder is None  # the decoder is unbiased, so it serves means as well
    True
    """

    encoder: Encoder
    randomizer: Randomizer
    decoder: Decoder
    mean_decoder: Decoder | None = None
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
        The norm of its ball, which the reshaping serves; None where it has no ball.
    needs_delta, needs_task, uses_percentile : bool
    reshaping : {"coordinates", "metric", "none"}
        What a reshaping does for it: choose its coordinates; choose the metric of a codebook, the
        task's or the vectors' own; or nothing, so that none may be given.
    size : str
        What ``size`` counts; empty if it takes none.

    Examples
    --------
    >>> from offaxis.mechanisms import find_mechanism
    >>> mechanism = find_mechanism("laplace")
    >>> mechanism.order, mechanism.needs_delta
    (1, False)
    >>> mechanism.check_delta(1e-5)
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: 'laplace' is pure: it takes no delta, got delta=1e-05
    """

    name: str
    prepare: Callable[[PublicInputs], Parts]
    order: Order | None
    needs_delta: bool = False
    needs_task: bool = False
    uses_percentile: bool = True
    reshaping: Literal["coordinates", "metric", "none"] = "coordinates"
    size: str = ""

    def check_delta(self, delta: Any) -> None:
        """Refuse a missing δ, and one that would have no effect."""
        check_delta(delta, self.name, needed=self.needs_delta)

    def check_size(self, size: Any) -> None:
        """Refuse a size that would have no effect."""
        if size is not None and not self.size:
            raise InvalidInput(f"{self.name!r} takes no size, got size={size!r}")

    def read_percentile(self, percentile: Any) -> float:
        """Return the percentile, the default where none is given; refuse one without effect."""
        if percentile is None:
            return PERCENTILE
        if not self.uses_percentile:
            raise InvalidInput(
                f"a percentile changes nothing for {self.name!r}: leave out "
                f"percentile={percentile!r}"
            )
        return check_percentile(percentile)

    def read_reshaping(self, reshaping: Any) -> Reshaping:
        """Return the reshaping, the default where none is given; refuse one without effect."""
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
                f"nothing: use 'jacobian', or 'none' for the vectors' own metric"
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
) -> tuple[PublicInputs, Settings]:
    """Measure what a mechanism needs of the public side; return it and what to record of it.

    Arguments are those of :func:`offaxis.fit`.
    """
    mechanism.check_delta(delta)
    mechanism.check_size(size)
    covered = mechanism.read_percentile(percentile)
    shape = mechanism.read_reshaping(reshaping)
    budget, vectors = exact_epsilon(epsilon), PublicVectors(public)
    geometry: Geometry | None = None
    task: TaskModel | None = None
    if shape.uses_task or mechanism.needs_task:
        if isinstance(model, Geometry):
            geometry = model
        else:
            task = as_task_model(model)
            geometry = measure(task, vectors, progress)
    known = geometry.survey if geometry else survey(vectors)
    frame, recorded = _frame(shape, mechanism, vectors, known, geometry)
    if mechanism.reshaping != "none":
        recorded = {"reshaping": shape.name, **recorded}
    inputs = PublicInputs(
        frame,
        vectors,
        *known,
        epsilon=budget,
        delta=delta,
        percentile=covered,
        size=size,
        gram=geometry.gram if geometry else None,
        outputs=geometry.outputs if geometry else 0,
        model=geometry.model if geometry else None,
        task=task,
    )
    return inputs, recorded


def _frame(
    shape: Reshaping,
    mechanism: Mechanism,
    vectors: PublicVectors,
    known: Survey,
    geometry: Geometry | None,
) -> tuple[Frame, Settings]:
    """Return the coordinates in which a mechanism works, and what a release records of them."""
    recorded: Settings = {}
    if geometry and geometry.probes is not None:
        recorded["probes"] = float(geometry.probes)
    if isinstance(shape, Centre | Plain):
        centred = isinstance(shape, Centre)
        return Frame(known.mean if centred else np.zeros(known.identity.dim)), recorded
    assert geometry is not None
    if mechanism.order is None:
        return task_metric(geometry.gram, geometry.covariance, geometry.mean), recorded
    frame, settings = shape.frame(mechanism.order, geometry, vectors)
    return frame, recorded | settings


def task_metric(gram: Vectors, covariance: Vectors, centre: Vectors) -> Frame:
    """Return coordinates in which distance is the change of the task's answer: Ω̂^{1/2}(z − c)."""
    found = spectrum(gram, covariance)
    looked_at = found.values > 0
    root = np.sqrt(found.values[looked_at])
    basis = found.basis[:, looked_at]
    return Frame(centre, (basis * root).T, basis / root)
