"""The releases that a recommendation tries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from offaxis.decoding import shrink
from offaxis.decoding.posterior import posterior
from offaxis.errors import InvalidInput
from offaxis.evaluation.choosing import with_decoder
from offaxis.evaluation.utility import Goal
from offaxis.fitting import fit
from offaxis.geometry import Geometry, TaskModel
from offaxis.geometry.spectrum import spectrum
from offaxis.release import Release
from offaxis.vectors import Vectors

Decoding = Literal["own", "shrinkage", "posterior"]

_RANKS: Final = (1, 2, 3, 5, 7, 9, 12, 16, 24, 32)
_PERCENTILES: Final = (50.0, 90.0)
_CODEWORDS: Final = (4, 8, 16, 32, 64, 128)
_TITLES: Final = {"own": "", "shrinkage": ", shrinkage decoder", "posterior": ", posterior decoder"}
_FAR: Final = 256
"""Dimensions from which on a projection pays."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to make a release.

    Attributes
    ----------
    title : str
    settings : mapping
        For :func:`offaxis.fit`.
    decoding : {"own", "shrinkage", "posterior"}
        Whose decoder: the recipe's own, the linear one of least error, or the posterior mean.
    is_answer : bool
        Whether a report is about the model's answer and nothing else.
    """

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    decoding: Decoding = "own"
    is_answer: bool = False

    def make(
        self, task: TaskModel, geometry: Geometry, public: Vectors, epsilon: Any
    ) -> Release | None:
        """Fit it; None where it does not exist for this task or these vectors."""
        settings = dict(self.settings)
        # A trained or class-based release runs the model itself; the others need its geometry.
        model = task if settings.pop("needs_model", False) else geometry
        try:
            release = fit(model, public, epsilon=epsilon, **settings)
        except InvalidInput:
            return None
        if self.decoding == "shrinkage":
            return with_decoder(release, shrink(release, public))
        if self.decoding == "posterior":
            return with_decoder(release, posterior(release, public))
        return release


def candidates(task: TaskModel, geometry: Geometry, goal: Goal) -> list[Candidate]:
    """Return everything worth trying for a task and a goal, pure ε throughout."""
    if goal == "mean":
        return list(_for_means(geometry))
    return [*_codebooks(geometry), *_vectors(geometry)]


def _vectors(geometry: Geometry) -> Iterator[Candidate]:
    read = int(np.count_nonzero(spectrum(geometry.gram).values))
    for name, title in (("privunit2", "PrivUnit2"), ("laplace", "Laplace")):
        for shape, words in (("jacobian", "reshaped"), ("none", "plain")):
            settings: dict[str, Any] = {"randomizer": name, "reshaping": shape}
            yield Candidate(f"{title}, {words}", settings)
            if shape == "jacobian":
                yield Candidate(f"{title}, {words}, shrinkage decoder", settings, "shrinkage")
        for active in sorted({min(rank, read) for rank in _RANKS}):
            for percentile in _PERCENTILES if name == "laplace" else _PERCENTILES[:1]:
                settings = {
                    "randomizer": name,
                    "reshaping": "optimal",
                    "active": active,
                    "percentile": percentile,
                }
                where = f"{title}, {active} active directions"
                where += f", radius at {percentile:g} %" if name == "laplace" else ""
                for decoding in ("own", "shrinkage", "posterior"):
                    yield Candidate(where + _TITLES[decoding], settings, decoding)


def _codebooks(geometry: Geometry) -> Iterator[Candidate]:
    if geometry.outputs > 1:
        settings = {"randomizer": "class-response", "needs_model": True}
        yield Candidate("the model's answer by randomized response", settings, is_answer=True)
    else:
        settings = {"randomizer": "scalar-response", "needs_model": True}
        yield Candidate("the model's answer by an optimal channel", settings, is_answer=True)
    for size in (None, *_CODEWORDS):
        chosen: dict[str, Any] = {"randomizer": "response", "size": size}
        words = "codebook" if size is None else f"codebook of {size}"
        yield Candidate(words, chosen)
        yield Candidate(f"{words}, posterior decoder", chosen, "posterior")


def _for_means(geometry: Geometry) -> Iterator[Candidate]:
    names = ["laplace", "privunit2-mean", "privunitg-mean", "duchi", "piecewise", "hybrid"]
    names += ["projunit-mean"] if geometry.mean.size >= _FAR else []
    for name in names:
        for shape, words in (("jacobian", "reshaped"), ("centre", "centred")):
            yield Candidate(f"{name}, {words}", {"randomizer": name, "reshaping": shape})
    yield Candidate("codebook", {"randomizer": "response"})
