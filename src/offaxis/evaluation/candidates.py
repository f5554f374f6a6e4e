"""The releases that a search tries.

To try another mechanism or decoder, add a :class:`Candidate` to one of the lists below.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from offaxis import randomizers
from offaxis.decoding import Decoder, LinearDecoder, ShrinkageDecoder
from offaxis.encoding.reshaping import Optimal
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.evaluation.utility import Goal, PublicSide
from offaxis.fitting import at_budget, fit
from offaxis.geometry import Geometry, TaskModel
from offaxis.geometry.multitask import joint_answers
from offaxis.geometry.spectrum import spectrum
from offaxis.mechanisms import posterior, shrink
from offaxis.release import Release
from offaxis.vectors import Vectors

Decoding = Literal["own", "affine", "shrinkage", "posterior", "mean", "commonest", "noise-aware"]

_RANKS: Final = (1, 2, 3, 5, 7, 9, 12, 16, 24, 32)
_RANKS_OF_MEANS: Final = (1, 3, 9, 32)
_PERCENTILES: Final = (50.0, 90.0)
_PERCENTILES_OF_MEANS: Final = (90.0, 100.0)
_CODEWORDS: Final = (4, 8, 16, 32, 64, 128)
_FAR: Final = 256
"""The dimension from which on a projection pays."""

_STEPS: Final = 500
"""Training steps of a noise-aware decoder."""


def _noise_aware(release: Release, side: PublicSide) -> Decoder:
    from offaxis.mechanisms.networks import noise_aware

    return noise_aware(release, side.task, side.vectors, steps=_STEPS)


def constant_decoder(release: Release, point: Vectors) -> ShrinkageDecoder:
    """Return a decoder of the release that ignores the report and answers a public point."""
    return ShrinkageDecoder(np.zeros((point.size, release.decoder.input_dim)), point)


_DECODERS: Final[dict[Decoding, Callable[[Release, PublicSide], Decoder]]] = {
    "shrinkage": lambda release, side: shrink(release, side.vectors),
    "posterior": lambda release, side: posterior(release, side.vectors),
    "mean": lambda release, side: constant_decoder(release, side.geometry.mean),
    "commonest": lambda release, side: constant_decoder(release, side.commonest),
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
        Which decoder: the mechanism's "own", the linear one of least error ("shrinkage"), the
        "posterior" mean, a "noise-aware" network; or one that ignores the report and always
        answers the public "mean", or a vector with the "commonest" answers. "affine" is the
        mechanism's own, for means too, though it may fill directions that are not sent with their
        public mean.
    model : TaskModel, optional
        A model that the release runs on the device; the others need a geometry alone.
    is_answer : bool
        Whether a report is about the models' answers and nothing else.
    release : Release, optional
        A release that is already fitted, of which only the decoder is chosen.
    """

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    decoding: Decoding = "own"
    model: TaskModel | None = None
    is_answer: bool = False
    release: Release | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the decoder ignores the report."""
        return self.decoding in ("mean", "commonest")

    @property
    def is_vector(self) -> bool:
        """Whether a report carries a noisy vector rather than a symbol."""
        return self.settings.get("mechanism") in randomizers.NAMES and not self.is_silent

    @property
    def base(self) -> Hashable:
        """What candidates that differ only in their decoder have in common."""
        return id(self.model), tuple(sorted(self.settings.items(), key=str))

    def decoded(self, decoding: Decoding) -> Candidate:
        """Return the candidate with another decoder."""
        title = f"{self.title.split(', decoder:')[0]}, decoder: {decoding}"
        return replace(self, title=title, decoding=decoding)

    def fitted(self, side: PublicSide, epsilon: Any) -> Release | None:
        """Fit it with its own decoder; None where it does not exist for this task."""
        if self.release is not None:
            return self.release
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
            return fitted.with_decoder(make(fitted, side))
        except (InvalidInput, UnsupportedModel):
            return None

    def make(self, side: PublicSide, epsilon: Any) -> Release | None:
        """Fit it, including its decoder."""
        fitted = self.fitted(side, epsilon)
        return None if fitted is None else self.finished(fitted, side)

    def at_budget(self, fitted: Release, epsilon: Any) -> Release | None:
        """Return a fitted release at another budget, where the budget changes nothing but noise.

        None where the map depends on the budget (codebooks, projections), or δ does.
        """
        name = self.settings.get("mechanism", "")
        if name not in randomizers.NAMES or name.startswith("projunit") or "delta" in self.settings:
            return None
        return at_budget(fitted, epsilon, name)


def _with_affine_means(release: Release) -> Release:
    """Let the map back decode means too: right along the directions that are sent."""
    back = release.decoder
    if not isinstance(back, ShrinkageDecoder):
        return release
    return replace(release, mean_decoder=LinearDecoder(back.matrix, back.offset))


# ----------------------------------------------------------------------------
# What is tried for a goal


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
        yield Candidate(words, {"mechanism": "class-response"}, model=joint, is_answer=True)
    for name, model in models.items():
        whose = "the model's answer" if len(models) == 1 else f"the answer of {name} alone"
        if side.outputs[name] > 1:
            words, mechanism = f"{whose} by randomized response", "class-response"
        else:
            words, mechanism = f"{whose} by an optimal channel", "scalar-response"
        yield Candidate(words, {"mechanism": mechanism}, model=model, is_answer=True)


def _codebooks() -> Iterator[Candidate]:
    for size in (None, *_CODEWORDS):
        words = "codebook" if size is None else f"codebook of {size}"
        book = Candidate(words, {"mechanism": "response", "size": size})
        yield from (book, book.decoded("posterior"))


def _vectors(side: PublicSide) -> Iterator[Candidate]:
    read = _read(side.geometry)
    for name, title in (("privunit2", "PrivUnit2"), ("laplace", "Laplace")):
        plain = Candidate(f"{title}, plain", {"mechanism": name, "reshaping": "none"})
        shaped = Candidate(f"{title}, reshaped", {"mechanism": name, "reshaping": "jacobian"})
        yield from (plain, shaped, shaped.decoded("shrinkage"))
        for rank in sorted({min(rank, read) for rank in _RANKS}):
            for percentile in _PERCENTILES if name == "laplace" else _PERCENTILES[:1]:
                where = f"{title}, {_directions(rank)}"
                where += f", radius at {percentile:g} %" if name == "laplace" else ""
                own = Candidate(where, optimal(name, rank, percentile))
                yield from (own, own.decoded("shrinkage"), own.decoded("posterior"))


def _silent() -> Iterator[Candidate]:
    """Yield what uses no report: nothing that is chosen should be worse."""
    settings = optimal("laplace", 1, 90.0)
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
                settings = {"mechanism": name, "reshaping": shape, "percentile": percentile}
                yield Candidate(f"{name}, {words}{radius}", settings)
            for rank in sorted({*(rank for rank in _RANKS_OF_MEANS if rank < read), read}):
                words = "all directions" if rank == read else _directions(rank)
                settings = optimal(name, rank, percentile)
                yield Candidate(f"{name}, {words}{radius}", settings, "affine")
    for name, words in (("response", "codebook"), ("subset", "codebook, subset selection")):
        for size in (None, *_CODEWORDS[2:]):
            count = "" if size is None else f" of {size}"
            yield Candidate(
                words.replace("codebook", f"codebook{count}"), {"mechanism": name, "size": size}
            )


def optimal(name: str, rank: int, percentile: float) -> dict[str, Any]:
    """Return the settings of an optimal reshaping of that rank."""
    return {"mechanism": name, "reshaping": Optimal(rank=rank), "percentile": percentile}


def _directions(count: int) -> str:
    return "1 active direction" if count == 1 else f"{count} active directions"


# ----------------------------------------------------------------------------
# What is tried by the presets: ranks and radii of one mechanism, decoders of one release


def ranks_and_radii(
    name: str, ranks: Sequence[int], percentiles: Sequence[float], more: Mapping[str, Any]
) -> list[Candidate]:
    """Return one mechanism with every number of directions and every radius."""
    return [
        Candidate(
            f"{name}, {_directions(rank)}, radius at {percentile:g} %",
            optimal(name, rank, percentile) | dict(more),
        )
        for rank in ranks
        for percentile in percentiles
    ]


def decoders_of(release: Release) -> list[Candidate]:
    """Return a fitted release with every decoder that can be fitted to it."""
    own = Candidate("own decoder", {}, release=release)
    others: tuple[Decoding, ...] = ("shrinkage", "posterior", "mean")
    return [own, *(replace(own, title=f"decoder: {kind}", decoding=kind) for kind in others)]
