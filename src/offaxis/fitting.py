"""Fit a release: public model and public vectors in, frozen release out. No private data here."""

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
    be published. No private vector may be among ``public``. A setting that would have no effect is
    an error.

    Parameters
    ----------
    model : torch module, scikit-learn estimator, weight matrix, Layers, TaskModel, or Geometry
        The public task. A :class:`~offaxis.geometry.Geometry` measured before on the same public
        vectors saves measuring it again for another budget. May be None where nothing looks at a
        task: with ``reshaping`` "centre" or "none", and a mechanism that needs no task either.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report, read exactly: 0.1 means 1/10.
    mechanism : str
        One of ``offaxis.mechanisms.NAMES``. "laplace" (pure), "spherical-laplace" (pure) and
        "gaussian" (ε, δ) report the vector; "privunit2", "privunitg", "privunitg-sphere" and
        "projunit" (pure) its direction only, more accurately; with "-mean" (not the sphere) they
        serve means over people. "duchi", "piecewise" and "hybrid" (pure) report coordinates in a
        box, unbiased, in few bytes. "response" and "subset" (pure) report which of a few public
        codewords is nearest, "class-response" (pure) the model's answer, and "scalar-response"
        (pure) its number. "coordinatewise-laplace" (pure), "task-aware" (pure),
        "task-aware-network" (pure), "coordinatewise-gaussian", "instance-optimal" and "plan"
        (ε, δ) are mechanisms of the literature, bounded and fitted on public vectors.
    delta : number, optional
        For those with a δ, and only for them.
    unit : {"item", "user"}
        What one report stands for.
    reshaping : {"jacobian", "optimal", "centre", "none"}, Jacobian or Optimal
        Shape the space to the task (the default); to the task and the public covariance at once,
        which also leaves out what the task does not see; only subtract the public mean; or use the
        mechanism plainly. The last two need no model. :class:`~offaxis.Jacobian` and
        :class:`~offaxis.Optimal` carry settings. For a task whose answer is its largest output
        pass :class:`~offaxis.geometry.CentredOutputs` of the model.
    percentile : float, optional
        Public percentile of the encoded norms that becomes the radius ρ; 90 by default.
    size : int, optional
        Number of codewords ("response", "subset"), of numbers per report ("task-aware-network"),
        or of projected coordinates ("projunit").
    statement : str
        Where the public data came from, in your words; kept in the release.
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
    chosen = mechanism if isinstance(mechanism, Mechanism) else find_mechanism(mechanism)
    _check_statement(statement)
    _check_places(model, public)
    inputs, recorded = gather(
        model,
        public,
        chosen,
        epsilon=epsilon,
        delta=delta,
        reshaping=reshaping,
        percentile=percentile,
        size=size,
        progress=progress,
    )
    parts = chosen.prepare(inputs)
    settings = {"mechanism": chosen.name, **recorded, **parts.settings}
    origin = Provenance(inputs.model, inputs.identity, settings, statement)
    return Release(parts.encoder, parts.randomizer, parts.decoder, origin, unit, parts.mean_decoder)


def at_budget(release: Release, epsilon: Any, mechanism: str) -> Release:
    """Return the release of the same public side at another budget.

    Equal to fitting again where neither the maps nor the radius depend on the budget, which holds
    for every mechanism that is a randomizer alone: the lattice and the directions of a randomizer
    do not depend on the radius.
    """
    old: Any = release.randomizer
    name = mechanism if mechanism in randomizers.NAMES else old.kind
    unit: Any = _unit_randomizer(name, old.dim, epsilon, getattr(old, "delta", None))
    return replace(release, randomizer=replace(unit, radius=old.radius))


@lru_cache(maxsize=1024)
def _unit_randomizer(name: str, dim: int, epsilon: Any, delta: Any) -> Randomizer:
    return randomizers.make(name, dim=dim, radius=1.0, epsilon=epsilon, delta=delta)


def _check_places(model: Any, public: Any) -> None:
    """Refuse arguments in each other's place, and a weight matrix the wrong way round."""
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
    # Arrays, tables and batches of them are vectors; a weight matrix is one of them.
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
