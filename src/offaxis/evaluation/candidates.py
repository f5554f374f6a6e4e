"""The releases that a recommendation tries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from offaxis import randomizers
from offaxis.decoding import Decoder, LinearDecoder, ShrinkageDecoder, shrink
from offaxis.decoding.posterior import posterior
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.evaluation.choosing import always, with_decoder
from offaxis.evaluation.public_side import PublicSide
from offaxis.evaluation.utility import Goal
from offaxis.fitting import fit
from offaxis.geometry import Geometry, TaskModel
from offaxis.geometry.spectrum import spectrum
from offaxis.geometry.together import joint_answers
from offaxis.release import Release

Decoding = Literal["own", "affine", "shrinkage", "posterior", "mean", "commonest", "noise-aware"]

_RANKS: Final = (1, 2, 3, 5, 7, 9, 12, 16, 24, 32)
_RANKS_OF_MEANS: Final = (1, 3, 9, 32)
_PERCENTILES: Final = (50.0, 90.0)
_PERCENTILES_OF_MEANS: Final = (90.0, 100.0)
_CODEWORDS: Final = (4, 8, 16, 32, 64, 128)
_FAR: Final = 256
"""Dimensions from which on a projection pays."""

_STEPS: Final = 500
"""Of training a noise-aware decoder."""


def _noise_aware(release: Release, side: PublicSide) -> Decoder:
    from offaxis.recipes.noise_aware import noise_aware

    return noise_aware(release, side.task, side.vectors, steps=_STEPS)


_DECODERS: Final[dict[Decoding, Callable[[Release, PublicSide], Decoder]]] = {
    "shrinkage": lambda release, side: shrink(release, side.vectors),
    "posterior": lambda release, side: posterior(release, side.vectors),
    "mean": lambda release, side: always(release, side.geometry.mean),
    "commonest": lambda release, side: always(release, side.commonest),
    "noise-aware": _noise_aware,
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to make a release.

    Attributes
    ----------
    title : str
    settings : mapping
        For :func:`offaxis.fit`.
    decoding : str
        Whose decoder: the recipe's "own", the linear one of least error ("shrinkage"), the
        "posterior" mean, a "noise-aware" network; or one that reads no report and always answers
        the public "mean", or a vector with the "commonest" answers. "affine" is the recipe's own,
        for means too, though it may fill directions that are not sent with their public mean.
    model : TaskModel, optional
        A model that the release runs on the device; the others need a geometry alone.
    is_answer : bool
        Whether a report is about the models' answers and nothing else.
    """

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    decoding: Decoding = "own"
    model: TaskModel | None = None
    is_answer: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether the decoder reads no report."""
        return self.decoding in ("mean", "commonest")

    @property
    def is_vector(self) -> bool:
        """Whether a report tells a vector, in noise, rather than a symbol."""
        return self.settings["randomizer"] in randomizers.NAMES and not self.is_silent

    @property
    def base(self) -> Hashable:
        """What candidates have in common that differ by their decoder alone."""
        return id(self.model), tuple(sorted(self.settings.items(), key=str))

    def decoded(self, decoding: Decoding) -> Candidate:
        """Return the candidate with another decoder."""
        title = f"{self.title.split(', decoder:')[0]}, decoder: {decoding}"
        return replace(self, title=title, decoding=decoding)

    def fitted(self, side: PublicSide, epsilon: Any) -> Release | None:
        """Fit it with its own decoder; None where it does not exist for this task."""
        model = side.geometry if self.model is None else self.model
        budget = {"epsilon": epsilon, "statement": side.statement}
        try:
            return fit(model, side.vectors, **budget, **self.settings)
        except InvalidInput:
            return None

    def finished(self, fitted: Release, side: PublicSide) -> Release | None:
        """Give the release its decoder; None where that cannot be fitted to this task."""
        if self.decoding == "affine":
            return _with_affine_means(fitted)
        make = _DECODERS.get(self.decoding)
        if make is None:
            return fitted
        try:
            return with_decoder(fitted, make(fitted, side))
        except (InvalidInput, UnsupportedModel):
            return None

    def make(self, side: PublicSide, epsilon: Any) -> Release | None:
        """Fit it, decoder and all."""
        fitted = self.fitted(side, epsilon)
        return None if fitted is None else self.finished(fitted, side)

    def at_budget(self, fitted: Release, epsilon: Any) -> Release | None:
        """Return a fitted release at another budget, where the budget changes nothing but noise.

        None where the map depends on the budget: codebooks, and projections.
        """
        name = self.settings["randomizer"]
        if name not in randomizers.NAMES or name.startswith("projunit"):
            return None
        before: Any = fitted.randomizer
        noise = randomizers.make(name, dim=before.dim, radius=before.radius, epsilon=epsilon)
        return replace(fitted, randomizer=noise)


def _with_affine_means(release: Release) -> Release:
    """Let the map back decode means too: right along the directions that are sent."""
    back = release.decoder
    if not isinstance(back, ShrinkageDecoder):
        return release
    return replace(release, mean_decoder=LinearDecoder(back.matrix, back.offset))


def candidates(side: PublicSide, goal: Goal) -> list[Candidate]:
    """Return everything worth trying for a task and a goal, pure ε throughout."""
    if goal == "mean":
        return list(_for_means(side.geometry))
    return [*_answers(side), *_codebooks(), *_vectors(side), *_silent()]


def _read(geometry: Geometry) -> int:
    """Return the number of directions that the task sees."""
    return int(np.count_nonzero(spectrum(geometry.gram).values))


def _answers(side: PublicSide) -> Iterator[Candidate]:
    models = side.tasks.models
    if (joint := joint_answers(models)) is not None:
        words = "all answers by one randomized response"
        yield Candidate(words, {"randomizer": "class-response"}, model=joint, is_answer=True)
    for name, model in models.items():
        whose = "the model's answer" if len(models) == 1 else f"the answer of {name} alone"
        if side.outputs[name] > 1:
            words, recipe = f"{whose} by randomized response", "class-response"
        else:
            words, recipe = f"{whose} by an optimal channel", "scalar-response"
        yield Candidate(words, {"randomizer": recipe}, model=model, is_answer=True)


def _codebooks() -> Iterator[Candidate]:
    for size in (None, *_CODEWORDS):
        words = "codebook" if size is None else f"codebook of {size}"
        book = Candidate(words, {"randomizer": "response", "size": size})
        yield from (book, book.decoded("posterior"))


def _vectors(side: PublicSide) -> Iterator[Candidate]:
    read = _read(side.geometry)
    for name, title in (("privunit2", "PrivUnit2"), ("laplace", "Laplace")):
        plain = Candidate(f"{title}, plain", {"randomizer": name, "reshaping": "none"})
        shaped = Candidate(f"{title}, reshaped", {"randomizer": name, "reshaping": "jacobian"})
        yield from (plain, shaped, shaped.decoded("shrinkage"))
        for active in sorted({min(rank, read) for rank in _RANKS}):
            for percentile in _PERCENTILES if name == "laplace" else _PERCENTILES[:1]:
                where = f"{title}, {_directions(active)}"
                where += f", radius at {percentile:g} %" if name == "laplace" else ""
                own = Candidate(where, _optimal(name, active, percentile))
                yield from (own, own.decoded("shrinkage"), own.decoded("posterior"))


def _silent() -> Iterator[Candidate]:
    """Yield what knows nothing: nothing that is chosen should be worse."""
    settings = _optimal("laplace", 1, 90.0)
    yield Candidate("no report read, always the public mean", settings, "mean")
    yield Candidate("no report read, always the commonest answers", settings, "commonest")


def _for_means(geometry: Geometry) -> Iterator[Candidate]:
    read = _read(geometry)
    names = ["laplace", "privunit2-mean", "privunitg-mean", "duchi", "piecewise", "hybrid"]
    names += ["projunit-mean"] if geometry.mean.size >= _FAR else []
    for name in names:
        for percentile in _PERCENTILES_OF_MEANS:
            radius = f", radius at {percentile:g} %"
            for shape, words in (("jacobian", "reshaped"), ("centre", "centred")):
                settings = {"randomizer": name, "reshaping": shape, "percentile": percentile}
                yield Candidate(f"{name}, {words}{radius}", settings)
            for active in sorted({*(rank for rank in _RANKS_OF_MEANS if rank < read), read}):
                words = "all directions" if active == read else _directions(active)
                settings = _optimal(name, active, percentile)
                yield Candidate(f"{name}, {words}{radius}", settings, "affine")
    for name, words in (("response", "codebook"), ("subset", "codebook, subset selection")):
        for size in (None, *_CODEWORDS[2:]):
            count = "" if size is None else f" of {size}"
            yield Candidate(
                words.replace("codebook", f"codebook{count}"), {"randomizer": name, "size": size}
            )


def _optimal(name: str, active: int, percentile: float) -> dict[str, Any]:
    shape = {"reshaping": "optimal", "active": active, "percentile": percentile}
    return {"randomizer": name, **shape}


def _directions(count: int) -> str:
    return "1 active direction" if count == 1 else f"{count} active directions"
