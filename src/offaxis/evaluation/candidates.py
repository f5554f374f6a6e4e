"""The candidates of a search: ways to make a release.

To try another mechanism, add a :class:`Candidate` to one of the lists below; to try another
decoder, add it to ``Decoding`` and ``_DECODERS`` first. The order
of the candidates is part of the result: of equal scores the first one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from offaxis import plugins, randomizers
from offaxis.decoding import Decoder, ShrinkageDecoder
from offaxis.encoding.reshaping import Optimal
from offaxis.errors import InvalidInput, MissingExtra, UnsupportedModel
from offaxis.evaluation.utility import MeasuredTasks
from offaxis.fitting import at_budget, fit_mechanism
from offaxis.geometry import Geometry, TaskModel
from offaxis.geometry.multitask import joint_answers
from offaxis.mechanisms import Mechanism, find_mechanism, posterior, shrink
from offaxis.mechanisms.base import Goal
from offaxis.release import Release
from offaxis.vectors import Vectors

Decoding = Literal["own", "shrinkage", "posterior", "mean", "commonest", "noise-aware"]

_RANKS: Final = (1, 2, 3, 5, 7, 9, 12, 16, 24, 32)
_PERCENTILES: Final = (50.0, 90.0)
_PERCENTILES_OF_MEANS: Final = (90.0, 100.0)
_CODEWORDS: Final = (4, 8, 16, 32, 64, 128)
_PROJECTION_DIM: Final = 256
"""Projections are tried from this dimension on."""

_STEPS: Final = 500
"""Training steps of a noise-aware decoder."""


def _noise_aware(release: Release, measured: MeasuredTasks) -> Decoder:
    from offaxis.mechanisms.networks import noise_aware

    return noise_aware(release, measured.task, measured.vectors, steps=_STEPS)


def constant_decoder(release: Release, point: Vectors) -> ShrinkageDecoder:
    """Return a decoder for the release that ignores the report and returns a public point."""
    return ShrinkageDecoder(np.zeros((point.size, release.decoder.input_dim)), point)


_DECODERS: Final[dict[Decoding, Callable[[Release, MeasuredTasks], Decoder]]] = {
    "shrinkage": lambda release, measured: shrink(release, measured.vectors),
    "posterior": lambda release, measured: posterior(release, measured.vectors),
    "mean": lambda release, measured: constant_decoder(release, measured.mean),
    "commonest": lambda release, measured: constant_decoder(release, measured.commonest),
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
        The decoder: the mechanism's "own", the linear one of least error ("shrinkage"), the
        "posterior" mean, or a "noise-aware" network. "mean" and "commonest" ignore the report and
        always return the public mean, or a vector with the commonest answers.
    model : TaskModel, optional
        The model that the release runs on the device; other candidates need only a geometry.
    is_answer : bool
        Whether a report carries only the models' answers.
    release : Release, optional
        A fitted release, for candidates that differ only in the decoder.
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
    def requested(self) -> str:
        """The name of the mechanism, if it is compared by request; otherwise empty."""
        mechanism = self.settings.get("mechanism")
        return mechanism.name if isinstance(mechanism, Mechanism) else ""

    @property
    def base_key(self) -> Hashable:
        """The same for candidates that differ only in their decoder."""
        return id(self.model), tuple(sorted(self.settings.items(), key=str))

    def with_decoding(self, decoding: Decoding) -> Candidate:
        """Return the candidate with another decoder."""
        title = f"{self.title.split(', decoder:')[0]}, decoder: {decoding}"
        return replace(self, title=title, decoding=decoding)

    @property
    def uses_geometry(self) -> bool:
        """Whether the release is fitted to the geometry of the tasks."""
        chosen = find_mechanism(self.settings["mechanism"])
        return chosen.read_reshaping(self.settings.get("reshaping")).uses_task

    def fit_base(self, measured: MeasuredTasks, epsilon: Any) -> Release:
        """Fit the release with the mechanism's own decoder.

        Raises
        ------
        InvalidInput, UnsupportedModel
            If the tasks or the public vectors do not allow it.
        """
        if self.release is not None:
            return self.release
        model: Any = self.model
        if model is None and self.uses_geometry:
            model = measured.geometry
        budget = {"epsilon": epsilon, "statement": measured.statement}
        return fit_mechanism(model, measured.vectors, **budget, **self.settings)

    def add_decoder(self, base: Release, measured: MeasuredTasks) -> Release:
        """Give a fitted release the candidate's decoder; errors as in :meth:`fit_base`."""
        make_decoder = _DECODERS.get(self.decoding)
        return base if make_decoder is None else base.with_decoder(make_decoder(base, measured))

    def make(self, measured: MeasuredTasks, epsilon: Any) -> Release | None:
        """Fit the release and its decoder; None if that is not possible."""
        try:
            return self.add_decoder(self.fit_base(measured, epsilon), measured)
        except NOT_POSSIBLE:
            return None

    def at_budget(self, base: Release, epsilon: Any) -> Release | None:
        """Return a fitted release at another budget, if the budget changes only the noise.

        None if the maps depend on the budget (codebooks, projections), and for a δ.
        """
        name = self.settings.get("mechanism", "")
        if name not in randomizers.NAMES or name.startswith("projunit") or "delta" in self.settings:
            return None
        return at_budget(base, epsilon, name)


NOT_POSSIBLE: Final = (InvalidInput, UnsupportedModel, MissingExtra)
"""Errors of a candidate that the tasks, the vectors or the installation do not allow."""


# ---- Candidates of recommend


def candidates(measured: MeasuredTasks, goal: Goal) -> list[Candidate]:
    """Return the candidates for a task and a goal; all are pure ε."""
    if goal == "means":
        return list(_for_means(measured.geometry))
    if measured.without_geometry:
        return [*_answers(measured), *_codebooks("none"), *_plain_vectors(), *_silent_plain()]
    return [*_answers(measured), *_codebooks(None), *_vectors(measured), *_silent()]


def of_mechanisms(
    mechanisms: Sequence[str | Mechanism | type[Any]], measured: MeasuredTasks, goal: Goal
) -> list[Candidate]:
    """Return the candidates of mechanisms that are compared by request, plain and reshaped."""
    found, chosen = [], [find_mechanism(given) for given in mechanisms]
    names = [plugins.shown(mechanism.name) for mechanism in chosen]
    for place, mechanism in enumerate(chosen):
        name = names[place]
        if names.count(name) > 1:
            name += f" {names[: place + 1].count(name)}"
        if mechanism.needs_delta:
            raise InvalidInput(f"recommendations are pure: {name} needs a delta; leave it out")
        if mechanism.reshaping == "none":
            found.append(Candidate(name, {"mechanism": mechanism}))
            continue
        shapes = {"none": "plain", "centre": "centred"}
        if not measured.without_geometry:
            shapes["jacobian"] = "reshaped"
        for shape, words in shapes.items():
            if mechanism.reshaping == "metric" and shape == "centre":
                continue
            own = Candidate(f"{name}, {words}", {"mechanism": mechanism, "reshaping": shape})
            found += [own] if goal == "means" else [own, own.with_decoding("shrinkage")]
        if goal == "means" or measured.without_geometry or mechanism.reshaping != "coordinates":
            continue
        visible = _visible_directions(measured.geometry)
        for rank in sorted({min(rank, visible) for rank in _RANKS}):
            settings = {"mechanism": mechanism, "reshaping": Optimal(rank=rank)}
            own = Candidate(f"{name}, {_directions(rank)}", settings)
            found += [own, own.with_decoding("shrinkage")]
    return found


def sufficient(measured: MeasuredTasks, goal: Goal) -> list[Candidate]:
    """Return the candidates that suffice because no other can be better; none if that is unknown.

    For the answers of one classifier, no report of the same ε agrees with the model more often
    than randomized response on its commonest answers (docs/proofs.md §15).
    """
    if goal != "answers" or list(measured.outputs.values()) == [1] or len(measured.outputs) > 1:
        return []
    return [*_answers(measured), *_silent_plain()]


def _visible_directions(geometry: Geometry) -> int:
    """Return the number of directions that affect the task."""
    return int(np.count_nonzero(geometry.spectrum.values))


def _answers(measured: MeasuredTasks) -> Iterator[Candidate]:
    models = measured.tasks.models
    if (joint := joint_answers(models)) is not None:
        words = "all answers by one randomized response"
        yield Candidate(words, {"mechanism": "class-response"}, model=joint, is_answer=True)
    for name, model in models.items():
        answer = "the model's answer" if len(models) == 1 else f"the answer of {name} alone"
        if measured.outputs[name] > 1:
            words, mechanism = f"{answer} by randomized response", "class-response"
        else:
            words, mechanism = f"{answer} by an optimal channel", "scalar-response"
        yield Candidate(words, {"mechanism": mechanism}, model=model, is_answer=True)


def _codebooks(reshaping: str | None) -> Iterator[Candidate]:
    metric = {} if reshaping is None else {"reshaping": reshaping}
    for size in (None, *_CODEWORDS):
        words = "codebook" if size is None else f"codebook of {size}"
        book = Candidate(words, {"mechanism": "response", "size": size, **metric})
        yield from (book, book.with_decoding("posterior"))


def _plain_vectors() -> Iterator[Candidate]:
    """Yield releases of vectors for tasks without a geometry, and one that says what is missing."""
    for name, title in (("privunit2", "PrivUnit2"), ("laplace", "Laplace")):
        for shape, words in (("none", "plain"), ("centre", "centred")):
            settings = {"mechanism": name, "reshaping": shape}
            yield Candidate(f"{title}, {words}", settings)
            yield Candidate(f"{title}, {words}", settings).with_decoding("shrinkage")
    settings = {"mechanism": "privunit2", "reshaping": "jacobian"}
    yield Candidate("releases reshaped to the model", settings)


def _vectors(measured: MeasuredTasks) -> Iterator[Candidate]:
    visible = _visible_directions(measured.geometry)
    for name, title in (("privunit2", "PrivUnit2"), ("laplace", "Laplace")):
        plain = Candidate(f"{title}, plain", {"mechanism": name, "reshaping": "none"})
        shaped = Candidate(f"{title}, reshaped", {"mechanism": name, "reshaping": "jacobian"})
        yield from (plain, shaped, shaped.with_decoding("shrinkage"))
        for rank in sorted({min(rank, visible) for rank in _RANKS}):
            for percentile in _PERCENTILES if name == "laplace" else _PERCENTILES[:1]:
                words = f"{title}, {_directions(rank)}"
                words += f", radius at {percentile:g} %" if name == "laplace" else ""
                own = Candidate(words, optimal(name, rank, percentile))
                yield own
                yield own.with_decoding("shrinkage")
                yield own.with_decoding("posterior")


def _silent() -> Iterator[Candidate]:
    """Yield candidates that ignore the report: no choice should be worse than these."""
    settings = optimal("laplace", 1, 90.0)
    yield Candidate("no report read, always the public mean", settings, "mean")
    yield Candidate("no report read, always the commonest answers", settings, "commonest")


def _silent_plain() -> Iterator[Candidate]:
    settings = {"mechanism": "laplace", "reshaping": "none"}
    yield Candidate("no report read, always the commonest answers", settings, "commonest")


def _for_means(geometry: Geometry) -> Iterator[Candidate]:
    """Yield releases whose mean is unbiased except for clipping: they send all directions."""
    names = ["laplace", "privunit2-mean", "privunitg-mean", "duchi", "piecewise", "hybrid"]
    names += ["projunit-mean"] if geometry.mean.size >= _PROJECTION_DIM else []
    for name in names:
        for percentile in _PERCENTILES_OF_MEANS:
            for shape, words in (("jacobian", "reshaped"), ("centre", "centred")):
                settings = {"mechanism": name, "reshaping": shape, "percentile": percentile}
                yield Candidate(f"{name}, {words}, radius at {percentile:g} %", settings)


def optimal(mechanism: str | Mechanism | type[Any], rank: int, percentile: float) -> dict[str, Any]:
    """Return the settings of a mechanism with the optimal reshaping of a rank."""
    return {"mechanism": mechanism, "reshaping": Optimal(rank=rank), "percentile": percentile}


def _directions(count: int) -> str:
    return "1 active direction" if count == 1 else f"{count} active directions"


# ---- Candidates of tune and best_decoder


def ranks_and_radii(
    mechanism: str | Mechanism | type[Any],
    ranks: Sequence[int],
    percentiles: Sequence[float],
    more: Mapping[str, Any],
) -> list[Candidate]:
    """Return one mechanism with every rank and every radius."""
    title = plugins.shown(find_mechanism(mechanism).name)
    return [
        Candidate(
            f"{title}, {_directions(rank)}, radius at {percentile:g} %",
            optimal(mechanism, rank, percentile) | dict(more),
        )
        for rank in ranks
        for percentile in percentiles
    ]


def decoders_of(release: Release) -> list[Candidate]:
    """Return a fitted release with every decoder that can be tried on it."""
    own = Candidate("own decoder", {}, release=release)
    others: tuple[Decoding, ...] = ("shrinkage", "posterior", "mean")
    return [own, *(replace(own, title=f"decoder: {kind}", decoding=kind) for kind in others)]
