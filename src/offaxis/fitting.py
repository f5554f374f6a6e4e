"""Fitting: from a public model and public vectors to a frozen release. No private data here."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_args

import numpy as np

from offaxis import randomizers
from offaxis.decoding import CodewordDecoder
from offaxis.encoding.reshaping import Reshaping
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import Geometry, PublicVectors, TaskModel, as_task_model
from offaxis.geometry.jacobian import check_model, measure
from offaxis.geometry.public import Progress, survey, taken_evenly
from offaxis.mechanisms import Mechanism, find_mechanism, posterior
from offaxis.mechanisms.answers import affine_answer
from offaxis.mechanisms.base import Goal, PublicInputs, gather
from offaxis.privacy.guarantee import Guarantee, Unit
from offaxis.privacy.wording import MEAN_OVER
from offaxis.provenance import Provenance, check_statement
from offaxis.randomizers import (
    KaryResponse,
    MemoisedPrivUnit2,
    MemoisedResponse,
    PrivUnit2,
    Randomizer,
    SubsetSelection,
)
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.simulation import simulate
from offaxis.theory.ceilings import (
    fidelity_ceiling,
    least_mean_error,
    scalar_ceiling,
    task_spectrum,
)
from offaxis.vectors import row_dots

_MEASURED_ON: Final = 4_000
"""Number of public vectors that the expected utility of a default is estimated with."""

_PARTS: Final = 5
"""One of this many vectors is held out to measure on."""

_FEWEST: Final = 25
"""Fewest vectors to measure on."""

_ROUNDS: Final = 4
"""Simulated reports of each of them."""


def fit(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    goal: Goal | None = None,
    mechanism: str | Mechanism | type[Any] | None = None,
    delta: Any = None,
    unit: Unit = "item",
    reshaping: str | Reshaping | None = None,
    percentile: float | None = None,
    size: int | None = None,
    statement: str = "",
    progress: Progress | None = None,
) -> Release:
    """Fit a release to a public task.

    Without a ``mechanism``, one is chosen for the ``goal`` by a rule, without a search: for the
    answers of a classifier, the answer itself by randomized response, which agrees with the model
    as often as any report of this ε can; for one affine output, an optimal channel; for other
    outputs and for vectors, a codebook with a posterior decoder; for means, PrivUnit2.
    ``release.summary`` states what such a release is expected to keep, and the most that any report
    of this ε could. :func:`offaxis.recommend` compares releases.

    Everything is learnt from the public model and the public vectors; the result is frozen and can
    be published. ``public`` must not contain private vectors. A setting that would have no effect
    is an error.

    Parameters
    ----------
    model : torch module, scikit-learn estimator, ONNX file, function, weight matrix, …
        The public task: anything :func:`offaxis.geometry.as_task_model` accepts. A
        :class:`~offaxis.geometry.Geometry` measured earlier on the same public vectors avoids
        measuring it again for another budget. None is allowed if no task is used: with ``goal``
        "vectors" or "means", with ``reshaping`` "centre" or "none", and with a mechanism that
        needs no task.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report, read exactly: 0.1 means 1/10.
    goal : {"answers", "vectors", "means"}, optional
        What reports are for: the model's answer for each vector (the default), the vector itself,
        or a mean over people. An error together with a ``mechanism``.
    mechanism : str, Mechanism or class, optional
        One of ``offaxis.mechanisms.NAMES``, or your own: a class of randomizers or a mechanism
        (docs: "Your mechanism, your data"). "laplace" (pure), "spherical-laplace" (pure) and
        "gaussian" (ε, δ) report the vector; "privunit2", "privunitg", "privunitg-sphere" and
        "projunit" (pure) report its direction only, more accurately; with the suffix "-mean" (not
        for the sphere) they are unbiased, for means over people. "duchi", "piecewise" and "hybrid"
        (pure) report coordinates in a box, unbiased, in few bytes. "response" and "subset" (pure)
        report which of a few public codewords is nearest, "class-response" (pure) the model's
        class, and "scalar-response" (pure) the model's scalar output. "coordinatewise-laplace"
        (pure), "task-aware" (pure), "task-aware-network" (pure), "coordinatewise-gaussian",
        "instance-optimal" and "plan" (ε, δ) are mechanisms from the literature, bounded and fitted
        on public vectors.
    delta : number, optional
        Required by mechanisms with a δ, and an error for pure ones.
    unit : {"item", "user"}
        What the guarantee protects: one vector, or a person who sends one report in total.
    reshaping : {"jacobian", "optimal", "centre", "none"}, Jacobian or Optimal
        "jacobian", the default with a model, fits the space to the task. "optimal" fits it to the
        task and the public covariance, and omits directions the task does not see. "centre" only
        subtracts the public mean. "none" leaves the vectors unchanged. The last two need no model.
        :class:`~offaxis.Jacobian` and :class:`~offaxis.Optimal` have settings. For a classifier,
        pass :class:`~offaxis.geometry.CentredOutputs` of the model.
    percentile : float, optional
        Public percentile of the encoded norms to use as the radius ρ; 90 by default.
    size : int, optional
        Number of codewords ("response", "subset"), of numbers per report ("task-aware-network"),
        or of projected coordinates ("projunit").
    statement : str
        Where the public data came from; stored in the release.
    progress : callable, optional
        Called with the number of vectors just measured.

    Returns
    -------
    Release

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((3, 8)), rng.standard_normal((1000, 8))
    >>> release = offaxis.fit(head, public, epsilon=5)  # the model's answer
    >>> print(release.summary)
    Expected to keep 98.7 % of the model's answers, for people like the public ...
    >>> offaxis.fit(head, public, epsilon=5, mechanism="laplace")  # the vector, reshaped
    Release(laplace, ε = 5, pure, per item, dimension 8, ...)
    >>> best = offaxis.fit(head, public, epsilon=5, mechanism="privunit2", reshaping="optimal")
    >>> best.encoder.output_dim  # the task sees three directions
    3
    >>> str(offaxis.fit(head, public, epsilon=1, mechanism="gaussian", delta=1e-6).guarantee)
    'ε = 1, δ = 1e-06'
    """
    _check_arguments(model, public)
    if mechanism is not None:
        if goal is not None:
            raise InvalidInput(
                f"a goal chooses the mechanism: leave out goal={goal!r} or mechanism={mechanism!r}"
            )
        return fit_mechanism(
            model,
            public,
            mechanism,
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            reshaping=reshaping,
            percentile=percentile,
            size=size,
            statement=statement,
            progress=progress,
        )
    settings = {"delta": delta, "reshaping": reshaping, "percentile": percentile, "size": size}
    for name, value in settings.items():
        if value is not None:
            raise InvalidInput(
                f"{name}={value!r} is a setting of a mechanism: name one, such as "
                f"mechanism='laplace', or leave it out"
            )
    check_statement(statement)
    chosen = _default(model, public, "answers" if goal is None else goal)
    release = fit_mechanism(
        chosen.model,
        public,
        chosen.mechanism,
        epsilon=epsilon,
        unit=unit,
        reshaping=chosen.reshaping,
        percentile=chosen.percentile,
        statement=statement,
        progress=progress,
        every_answer=True,
    )
    if chosen.mechanism == "response":
        release = release.with_decoder(posterior(release, PublicVectors(public)))
    return _with_expectation(release, chosen, public)


def fit_mechanism(
    model: Any,
    public: Any,
    mechanism: str | Mechanism | type[Any],
    *,
    epsilon: Any,
    delta: Any = None,
    unit: Unit = "item",
    reshaping: str | Reshaping | None = None,
    percentile: float | None = None,
    size: int | None = None,
    statement: str = "",
    progress: Progress | None = None,
    every_answer: bool = False,
) -> Release:
    """Fit a release with a named mechanism; arguments as in :func:`fit`.

    With ``every_answer``, an answer of the model that no public vector has is an error.
    """
    check_statement(statement)
    mechanism = find_mechanism(mechanism)
    inputs, reshaping_settings = gather(
        model,
        public,
        mechanism,
        epsilon=epsilon,
        delta=delta,
        reshaping=reshaping,
        percentile=percentile,
        size=size,
        progress=progress,
        every_answer=every_answer,
    )
    parts = mechanism.prepare(inputs)
    _check_budget(parts.randomizer, inputs, mechanism.name)
    recorded = {"mechanism": mechanism.name, **reshaping_settings, **parts.settings}
    provenance = Provenance(inputs.model, inputs.identity, recorded, statement)
    return Release(
        parts.encoder,
        parts.randomizer,
        parts.decoder,
        provenance,
        unit,
        answers=parts.answers,
    )


def _check_budget(randomizer: Randomizer, inputs: PublicInputs, name: str) -> None:
    """Raise if a mechanism spends more than was asked for."""
    guarantee = randomizer.guarantee
    allowed = Guarantee(inputs.epsilon, inputs.delta or 0)
    if guarantee.epsilon > allowed.epsilon or guarantee.delta > allowed.delta:
        raise InvalidInput(f"{name!r} was asked for {allowed}, and promises only {guarantee}")


# ---- The default mechanism of a goal


class _Default(NamedTuple):
    """A mechanism chosen for a goal, with its settings and what it is fitted to."""

    goal: Goal
    mechanism: str
    model: Any
    reshaping: str | None = None
    percentile: float | None = None


def _default(model: Any, public: Any, goal: Goal) -> _Default:
    """Return the default for a goal."""
    if goal not in get_args(Goal):
        raise InvalidInput(f"goal must be 'answers', 'vectors' or 'means', got {goal!r}")
    if model is None and goal == "answers":
        raise InvalidInput(
            "without a model there are no answers to keep: pass a model, or goal='vectors' or "
            "goal='means'"
        )
    if goal == "means":
        # The radius covers all public vectors, because clipping biases means.
        return _Default(goal, "privunit2-mean", None, "centre", 100.0)
    if goal == "answers" and not isinstance(model, Geometry):
        task = as_task_model(model)
        outputs = check_model(task, PublicVectors(public))[1]
        if outputs > 1:
            check_not_targets(model, outputs)
            return _Default(goal, "class-response", task)
        try:
            affine_answer(task)
        except InvalidInput:
            pass
        else:
            return _Default(goal, "scalar-response", task)
    if model is None or isinstance(model, Geometry):
        return _Default("vectors", "response", model, None if model else "none")
    task = as_task_model(model)
    try:
        task.gram(next(PublicVectors(public).batches(8)))
    except UnsupportedModel:
        return _Default("vectors", "response", None, "none")
    return _Default("vectors", "response", task)


def check_not_targets(model: Any, outputs: int) -> None:
    """Raise for a regressor with several targets: its largest output is not an answer."""
    if not hasattr(model, "predict"):
        return
    try:
        from sklearn.base import is_regressor
    except ImportError:
        return
    if is_regressor(model):
        raise InvalidInput(
            f"the {type(model).__name__} predicts {outputs} quantities, not one of {outputs} "
            f"answers: use goal='vectors', or one model per quantity in offaxis.recommend"
        )


# ---- What a default is expected to keep


def _with_expectation(release: Release, chosen: _Default, public: Any) -> Release:
    """Record the expected utility of a default and the ceiling, for :attr:`Release.summary`."""
    expectation = _expectation(release, chosen, public)
    if expectation is None:
        return release
    settings = {**release.provenance.settings, "goal": chosen.goal}
    settings["expected"], settings["ceiling"] = expectation
    return replace(release, provenance=replace(release.provenance, settings=settings))


def _expectation(release: Release, chosen: _Default, public: Any) -> tuple[float, float] | None:
    """Return the expected utility and the ceiling, for people like the public vectors.

    For classes and means both are computed. Codebooks and channels are fitted once more, to four
    fifths of an even sample of the vectors, and measured on the last fifth; None if there are too
    few vectors.
    """
    epsilon = release.guarantee.epsilon
    if chosen.mechanism == "class-response":
        # The other answers are not kept because they would lower this: only one answer could be
        # better than all of those that are kept.
        assert isinstance(release.decoder, CodewordDecoder)
        shares = release.decoder.prior
        expected = float(shares.sum()) / (1 + (shares.size - 1) * math.exp(-float(epsilon)))
        return expected, max(expected, float(shares.max()))
    source = PublicVectors(public)
    if chosen.goal == "means":
        covariance = survey(source).covariance
        spectrum = np.linalg.eigvalsh(covariance).clip(min=0.0)
        randomizer: Any = release.randomizer
        variance, radius = float(np.trace(covariance)), float(randomizer.radius)
        # A vector inside the ball has its length drawn by a sign: this adds ρ² − ‖w‖².
        noise = randomizer.expected_squared_error() + max(radius**2 - variance, 0.0)
        least = least_mean_error(spectrum, epsilon)
        return noise / variance / MEAN_OVER, least / MEAN_OVER
    if isinstance(chosen.model, Geometry):
        return None
    vectors = taken_evenly(
        source.batches(_MEASURED_ON), release.provenance.public.count, _MEASURED_ON
    )
    order = np.random.default_rng(0).permutation(len(vectors))
    held_out = order < len(vectors) // _PARTS
    fitted_to, measured_on = vectors[~held_out], vectors[held_out]
    if len(measured_on) < _FEWEST:
        return None
    try:
        part = fit_mechanism(
            chosen.model, fitted_to, chosen.mechanism, epsilon=epsilon, reshaping=chosen.reshaping
        )
    except InvalidInput:  # what distinguishes the vectors is held out
        return None
    if chosen.mechanism == "response":
        part = part.with_decoder(posterior(part, PublicVectors(fitted_to)))
    repeated = np.tile(measured_on, (_ROUNDS, 1))
    decoded = simulate(part, repeated, np.random.default_rng(0))
    if chosen.mechanism == "scalar-response":
        answers = chosen.model.outputs(vectors)
        lost = chosen.model.outputs(decoded) - chosen.model.outputs(repeated)
        spread = answers[held_out] - answers[~held_out].mean()
        kept = 1 - float(np.mean(lost**2) / np.mean(spread**2))
        ceiling = scalar_ceiling(answers[:, 0], epsilon)
    else:
        if chosen.model is None:
            gram, covariance = np.eye(release.input_dim), survey(PublicVectors(vectors)).covariance
        else:
            geometry = measure(chosen.model, PublicVectors(vectors))
            gram, covariance = geometry.gram, geometry.covariance
        lost, spread = decoded - repeated, measured_on - fitted_to.mean(axis=0)
        squares = (row_dots(rows @ gram, rows).mean() for rows in (lost, spread))
        kept = 1 - float(np.divide(*squares))
        ceiling = fidelity_ceiling(task_spectrum(gram, covariance), epsilon)
    return min(kept, ceiling), ceiling


def at_budget(release: Release, epsilon: Any, mechanism: str) -> Release:
    """Return the release with the same public inputs at another budget.

    It equals a new fit if neither the maps nor the radius depend on the budget. That holds for
    every mechanism that only applies a randomizer, whose lattice and directions do not depend on
    the radius.
    """
    old: Any = release.randomizer
    name = mechanism if mechanism in randomizers.NAMES else old.kind
    on_unit_ball: Any = _unit_randomizer(name, old.dim, epsilon, getattr(old, "delta", None))
    return replace(release, randomizer=replace(on_unit_ball, radius=old.radius))


@lru_cache(maxsize=1024)
def _unit_randomizer(name: str, dim: int, epsilon: Any, delta: Any) -> Randomizer:
    return randomizers.make(name, dim=dim, radius=1.0, epsilon=epsilon, delta=delta)


def _check_arguments(model: Any, public: Any) -> None:
    """Raise for swapped arguments, and for a transposed weight matrix."""
    if _is_model(public):
        raise InvalidInput(
            f"public is a model ({type(public).__name__}); did you swap the arguments? It is "
            f"fit(model, public)"
        )
    if hasattr(public, "tocsr"):
        raise InvalidInput("public vectors must be dense: use public.toarray()")
    names, columns = getattr(model, "feature_names_in_", None), getattr(public, "columns", None)
    if names is not None and columns is not None and list(names) != list(columns):
        raise InvalidInput(
            "the columns of the public vectors differ from those that the model was fitted to, or "
            "are in another order; use public[model.feature_names_in_]"
        )
    if isinstance(model, np.ndarray) and model.ndim == 2 and getattr(public, "ndim", 0) == 2:
        (outputs, inputs), dim = model.shape, public.shape[1]
        if inputs != dim == outputs:
            raise InvalidInput(
                f"the model takes vectors of dimension {inputs}, the public ones have {dim}: a "
                f"weight matrix is (outputs, inputs); did you mean its transpose, model.T?"
            )


def _is_model(value: Any) -> bool:
    if isinstance(value, Geometry | TaskModel):
        return True
    # Arrays, tables and functions that return batches may be vectors.
    if not hasattr(value, "predict") and not hasattr(value, "parameters"):
        return False
    try:
        as_task_model(value)
    except (InvalidInput, UnsupportedModel):
        return False
    return True


# ---- Sequences


def memoise(release: Release, *, draws: int, period: int, instant: Any = None) -> Release:
    """Turn a release of single reports into a release of sequences: one person, many reports.

    A device draws a permanent answer of the release's ε in its first round, draws new ones every
    ``period`` rounds from a random round on, ``draws`` in all, and reports the one in force in
    every round through a second, instantaneous randomizer. All reports of a person together,
    however many, are within ε∞ = draws · ε. Nothing shows when a vector changes between two
    draws (:mod:`offaxis.randomizers.memoised`).

    Parameters
    ----------
    release : Release
        Of symbols ("class-response", "scalar-response", "response", "subset") or of directions
        ("privunit2", "privunit2-mean").
    draws : int
        The most permanent answers that a person ever draws. 0 stands for no limit: every window of
        rounds then has a promise, and the lifetime has none.
    period : int
        Rounds between two draws.
    instant : number, optional
        ε₁ of the instantaneous layer; by default the ε of the release. A larger one makes every
        single report more accurate and reveal more.

    Returns
    -------
    Release
        Its guarantee is that of the whole sequence, per user; without a limit on draws, that of
        one draw, per item.

    Raises
    ------
    InvalidInput
        If the randomizer of the release has no memoised form.

    Examples
    --------
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> classes = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
    >>> sequences = offaxis.memoise(classes, draws=4, period=91)  # four draws in a year
    >>> str(sequences.guarantee), sequences.unit  # of all reports of a person together
    ('ε = 8, pure', 'user')
    """
    randomizer = release.randomizer
    if isinstance(randomizer, KaryResponse | SubsetSelection):
        schedule: dict[str, Any] = {"size": randomizer.size}
        form: type[Any] = MemoisedResponse
    elif isinstance(randomizer, PrivUnit2):
        schedule = {"dim": randomizer.dim, "radius": randomizer.radius, "target": randomizer.target}
        form = MemoisedPrivUnit2
    else:
        raise InvalidInput(
            f"sequences need a release of symbols or directions, not of {randomizer.kind}: fit one "
            f"with mechanism='class-response', 'response', 'privunit2' or goal='means'"
        )
    if isinstance(randomizer, Memoised):
        raise InvalidInput("this is a release of sequences already")
    epsilon = randomizer.epsilon
    schedule |= {"epsilon": epsilon, "instant": epsilon if instant is None else instant}
    memoised = form(**schedule, draws=draws, period=period)
    provenance = release.provenance
    # What single reports were expected to keep does not hold for sequences.
    omitted = ("goal", "expected", "ceiling")
    settings = {k: v for k, v in provenance.settings.items() if k not in omitted}
    return replace(
        release,
        randomizer=memoised,
        unit="user" if memoised.draws else "item",
        provenance=replace(provenance, settings=settings),
    )
