"""What a recipe needs of the public side: measured, and its coordinates shaped to the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from offaxis.encoding import Frame, optimal_frame, reshape
from offaxis.encoding.reshaping import Rank
from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, PublicVectors, TaskModel, as_task_model, measure
from offaxis.geometry.public import Progress, Survey, survey
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.recipes.codebook import task_metric
from offaxis.recipes.ingredients import Ingredients, Recipe
from offaxis.vectors import Order, as_number

Shape = Literal["jacobian", "optimal", "centre", "none"]
Settings = dict[str, str | float]


def gather(
    model: Any,
    public: Any,
    chosen: Recipe,
    *,
    epsilon: Any,
    delta: Any = None,
    reshaping: Shape = "jacobian",
    percentile: float = 90.0,
    lambda_max: float = 1000.0,
    gauge: float | None = None,
    rank: Rank = "capped",
    active: int | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> tuple[Ingredients, Settings]:
    """Measure what a recipe needs of the public side; return it and the settings of the shape.

    Arguments are those of :func:`offaxis.fit`.
    """
    if size is not None and not chosen.size:
        raise InvalidInput(f"this randomizer takes no size, got size={size!r}")
    shape = _Shaping(reshaping, lambda_max, gauge, rank, active)
    shape.check(chosen)
    budget, vectors = exact_epsilon(epsilon), PublicVectors(public)
    geometry: Geometry | None = None
    task: TaskModel | None = None
    if shape.looks_at_the_task or chosen.needs_task:
        if isinstance(model, Geometry):
            geometry = model
        else:
            task = as_task_model(model)
            geometry = measure(task, vectors, progress)
    known = geometry.survey if geometry else survey(vectors)
    frame, settings = shape.frame(chosen.order, vectors, known, geometry)
    given = Ingredients(
        frame,
        vectors,
        *known,
        epsilon=budget,
        delta=delta,
        percentile=percentile,
        size=size,
        gram=geometry.gram if geometry else None,
        outputs=geometry.outputs if geometry else 0,
        model=geometry.model if geometry else None,
        task=task,
    )
    return given, settings


@dataclass(frozen=True)
class _Shaping:
    """How the coordinates are chosen in which a recipe works; fields as in ``fit``."""

    reshaping: Shape
    lambda_max: float
    gauge: float | None
    rank: Rank
    active: int | None

    @property
    def looks_at_the_task(self) -> bool:
        return self.reshaping in ("jacobian", "optimal")

    def check(self, chosen: Recipe) -> None:
        """Refuse what means nothing to the recipe."""
        if self.reshaping not in get_args(Shape):
            raise InvalidInput(
                f"reshaping must be 'optimal', 'jacobian', 'centre' or 'none', "
                f"got {self.reshaping!r}"
            )
        if self.rank not in get_args(Rank):
            raise InvalidInput(
                f"rank must be 'capped' or 'gap', got rank={self.rank!r}; for the number of "
                f"directions that are sent use reshaping='optimal' and active"
            )
        if self.active is not None and (self.reshaping != "optimal" or chosen.order is None):
            raise InvalidInput(
                f"active={self.active!r} is for reshaping='optimal' and randomizers of numbers; "
                f"leave it out with reshaping={self.reshaping!r} or a codebook"
            )

    def frame(
        self, order: Order | None, vectors: PublicVectors, known: Survey, geometry: Geometry | None
    ) -> tuple[Frame, Settings]:
        """Return the coordinates for a randomizer of that norm, and what a release says of them."""
        settings: Settings = {"reshaping": self.reshaping}
        if geometry and geometry.probes is not None:
            settings["probes"] = float(geometry.probes)
        if not self.looks_at_the_task:
            shift = known.mean if self.reshaping == "centre" else np.zeros(known.identity.dim)
            return Frame(shift), settings
        assert geometry is not None
        if order is None:
            return task_metric(geometry.gram, geometry.covariance, geometry.mean), settings
        if self.reshaping == "optimal":
            frame = optimal_frame(geometry, vectors, order=order, active=self.active)
            return frame, settings | {"active": float(frame.dim)}
        # A box has no volume constraint of its own; the round one serves it well.
        own = 2 if order == "inf" else order
        p = as_number(own if self.gauge is None else self.gauge, "gauge")
        cap = as_number(self.lambda_max, "lambda_max")
        shaped = reshape(geometry, gauge=p, lambda_max=cap, rank=self.rank)
        return shaped.frame, settings | {"gauge": p, "lambda_max": cap, "rank": self.rank}
