"""Other questions to the vectors of a setting: what is asked changes, who is protected does not.

All keep the public side of the setting they are made of, so releases are fitted once for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.spectrum import spectrum
from offaxis.studies.scores import Metric
from offaxis.studies.sources import PublicSide, Setting
from offaxis.vectors import Vectors

Draw = Callable[[int], tuple[Any, Any]]

_POOL: Final = 80_000
"""Vectors of a pool, at most."""


def agreement(base: Setting) -> Setting:
    """Ask for the task's own answers: how often they are kept, or what share of their variance.

    What :func:`offaxis.recommend` predicts for the goal "answers".
    """
    number = base.geometry.outputs == 1

    def draw(seed: int) -> tuple[Any, Any]:
        vectors = base.sample(seed).vectors
        outputs = base.task.outputs(vectors)
        return vectors, outputs if number else outputs.argmax(axis=1)

    metric: Metric = "explained" if number else "accuracy"
    return replace(base, name=f"agreement {base.name}", draw=draw, metric=metric)


def fidelity(base: Setting) -> Setting:
    """Ask for the vectors themselves, in the metric of the task."""
    root = metric_root(base)
    return replace(
        base,
        name=f"fidelity {base.name}",
        draw=_scored(root, base.sample),
        metric="explained",
        scored_by=root,
    )


def pooled(base: Setting) -> Setting:
    """Draw public and private vectors from one pool, at random: what "no shift" means.

    The pool are the private vectors, or, where these are drawn anew for every seed, the public
    ones. A network that was trained on its public vectors treats private ones otherwise, and people
    of another year differ: neither happens here.
    """
    vectors = base.sample(0).vectors if base.fixed else base.side.vectors
    order = np.random.default_rng(0).permutation(len(vectors))[:_POOL]
    public, private = np.split(vectors[order], [len(order) // 2])
    side = PublicSide(base.task, public)
    answers = base.task.outputs(private)
    sample = (private, answers[:, 0] if answers.shape[1] == 1 else answers.argmax(axis=1))
    return replace(
        base, name=f"pooled {base.name}", side=side, draw=lambda seed: sample, fixed=True
    )


def means(base: Setting, people: int) -> Setting:
    """Ask for the mean of people who are drawn anew for every seed, in the metric of the task."""
    root = metric_root(base)

    def some(seed: int) -> tuple[Vectors, Any]:
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
        draw=_scored(root, some),
        metric="mean error",
        fixed=False,
        scored_by=root,
    )


def metric_root(base: Setting) -> Layers:
    """Return a linear task R with RᵀR = Ω, the task's Gram on the public vectors."""
    found = spectrum(base.geometry.gram)
    read = found.values > 0
    return Layers.linear(np.sqrt(found.values[read])[:, None] * found.basis.T[read])


def _scored(task: TaskModel, sample: Callable[[int], tuple[Any, Any]]) -> Draw:
    """Return draws whose answers are the task's outputs on the vectors."""

    def draw(seed: int) -> tuple[Any, Any]:
        vectors, _ = sample(seed)
        return vectors, task.outputs(vectors)

    return draw
