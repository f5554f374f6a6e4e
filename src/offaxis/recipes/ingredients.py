"""What a recipe is given, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from offaxis.decoding import Decoder
from offaxis.encoding import Encoder, Frame, public_radius
from offaxis.geometry import PublicVectors, TaskModel
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import walk
from offaxis.geometry.public_hash import PublicIdentity
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import check_delta
from offaxis.vectors import Order, Vectors

_SAMPLE_NUMBERS: Final = 1 << 24
"""So many numbers of the public vectors are held at once, where moments do not suffice."""


@dataclass(frozen=True, eq=False)
class Ingredients:
    """The public side of a release, and its budget. Nothing here is private.

    Attributes
    ----------
    frame : Frame
        The coordinates in which the recipe works: reshaped to the task, or the vector's own.
    public, identity
        The public vectors and who they are.
    mean, covariance
        Their moments.
    gram : (m, m) array, optional
        Ω̂ of the task, where one was measured.
    outputs : int
        Number of the task's outputs; 0 without a task.
    model, task : optional
        Who the task is; and the task itself, where it was given.
    epsilon, delta, percentile, size
        As in :func:`offaxis.fit`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from offaxis.encoding import Frame
    >>> from offaxis.geometry import PublicVectors
    >>> from offaxis.geometry.public import survey
    >>> from offaxis.recipes import Ingredients, recipe
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((500, 3)))
    >>> given = Ingredients(Frame(np.zeros(3)), public, *survey(public), epsilon=Fraction(2))
    >>> given.sample.shape, round(given.radius(given.frame.encoder, 1), 1)
    ((500, 3), 3.8)
    >>> recipe("laplace").prepare(given).randomizer.kind
    'laplace'
    >>> given.seed == int(given.identity.sha256[:16], 16)  # public: a fit repeats
    True
    """

    frame: Frame
    public: PublicVectors
    identity: PublicIdentity
    mean: Vectors
    covariance: Vectors
    epsilon: Fraction
    delta: Any = None
    percentile: float = 90.0
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
        """The public vectors as they are, (n, m): all, or evenly many where they are too many."""
        most = max(1, _SAMPLE_NUMBERS // self.identity.dim)
        stride = -(-self.identity.count // most)
        kept, seen = [], 0
        for batch in walk(self.public, self.identity):
            kept.append(batch[-seen % stride :: stride].copy())
            seen += len(batch)
        return np.concatenate(kept)

    def radius(self, encoder: Encoder, order: Order) -> float:
        """Return the percentile of the public vectors' encoded norms."""
        return public_radius(
            encoder, self.public, self.identity, order=order, percentile=self.percentile
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """What a release is put together from.

    ``settings`` go into its provenance beside those of the reshaping.

    Examples
    --------
    >>> from offaxis.decoding import ShiftDecoder
    >>> from offaxis.encoding import ShiftEncoder
    >>> from offaxis.randomizers import Laplace
    >>> from offaxis.recipes import Parts
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
class Recipe:
    """A mechanism as people know it: public maps around a randomizer, and how they are fitted.

    The guarantee is the randomizer's; the maps, fitted on public vectors, decide only what its
    reports are worth.

    Attributes
    ----------
    prepare : callable
    order : {1, 2, "inf"} or None
        The norm of its ball, which the reshaping serves; None where it has no ball but works in
        the task's metric.
    needs_delta, needs_task : bool
    size : str
        What ``size`` counts; empty if it takes none.

    Examples
    --------
    >>> from offaxis.recipes import Recipe, recipe
    >>> mechanism: Recipe = recipe("laplace")
    >>> mechanism.order, mechanism.needs_delta
    (1, False)
    >>> mechanism.check_delta(1e-5, "laplace")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: 'laplace' is pure: it takes no delta, got delta=1e-05
    """

    prepare: Callable[[Ingredients], Parts]
    order: Order | None
    needs_delta: bool = False
    needs_task: bool = False
    size: str = ""

    def check_delta(self, delta: Any, name: str) -> None:
        """Refuse a missing δ, and one that would be of no use."""
        check_delta(delta, name, needed=self.needs_delta)
