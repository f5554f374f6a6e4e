"""Fitting: from a public model and public vectors to a frozen release. No private data here."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from offaxis import randomizers
from offaxis.encoding.reshaping import Reshaping
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import Geometry, TaskModel, as_task_model
from offaxis.geometry.public import Progress
from offaxis.mechanisms import Mechanism, find_mechanism
from offaxis.mechanisms.base import gather
from offaxis.privacy.guarantee import Unit
from offaxis.randomizers import Randomizer
from offaxis.release import LONGEST_STATEMENT, Provenance, Release


def fit(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    mechanism: str | Mechanism = "laplace",
    delta: Any = None,
    unit: Unit = "item",
    reshaping: str | Reshaping | None = None,
    percentile: float | None = None,
    size: int | None = None,
    statement: str = "",
    progress: Progress | None = None,
) -> Release:
    """Fit a release to a public task.

    Everything is learnt from the public model and the public vectors; the result is frozen and can
    be published. ``public`` must not contain private vectors. A setting that would have no effect
    is an error.

    Parameters
    ----------
    model : torch module, scikit-learn estimator, weight matrix, Layers, TaskModel, or Geometry
        The public task. A :class:`~offaxis.geometry.Geometry` measured earlier on the same public
        vectors avoids measuring it again for another budget. None is allowed if no task is used:
        with ``reshaping`` "centre" or "none", and a mechanism that needs no task.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report, read exactly: 0.1 means 1/10.
    mechanism : str
        One of ``offaxis.mechanisms.NAMES``. "laplace" (pure), "spherical-laplace" (pure) and
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
        "jacobian" (the default) fits the space to the task. "optimal" fits it to the task and the
        public covariance, and omits directions the task does not see. "centre" only subtracts the
        public mean. "none" leaves the vectors unchanged. The last two need no model.
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
    >>> offaxis.fit(head, public, epsilon=5)
    Release(laplace, ε = 5, pure, per item, dimension 8, ...)
    >>> best = offaxis.fit(head, public, epsilon=5, mechanism="privunit2", reshaping="optimal")
    >>> best.encoder.output_dim  # the task sees three directions
    3
    >>> str(offaxis.fit(head, public, epsilon=1, mechanism="gaussian", delta=1e-6).guarantee)
    'ε = 1, δ = 1e-06'
    """
    if not isinstance(mechanism, Mechanism):
        mechanism = find_mechanism(mechanism)
    _check_statement(statement)
    _check_arguments(model, public)
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
    )
    parts = mechanism.prepare(inputs)
    settings = {"mechanism": mechanism.name, **reshaping_settings, **parts.settings}
    provenance = Provenance(inputs.model, inputs.identity, settings, statement)
    return Release(
        parts.encoder, parts.randomizer, parts.decoder, provenance, unit, parts.mean_decoder
    )


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
    # Arrays, tables and batches of them may be vectors; a weight matrix looks like one of them.
    if not callable(value) and not hasattr(value, "predict"):
        return False
    try:
        as_task_model(value)
    except (InvalidInput, UnsupportedModel):
        return False
    return True


def _check_statement(statement: str) -> None:
    if not isinstance(statement, str) or len(statement) > LONGEST_STATEMENT:
        raise InvalidInput(f"statement must be a text of at most {LONGEST_STATEMENT:,} characters")
    if not statement.isascii() and statement != statement.encode(errors="replace").decode():
        raise InvalidInput("statement must be a text that can be written as UTF-8")
