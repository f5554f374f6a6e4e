"""Fit a release: public model and public vectors in, frozen release out. No private data here."""

from __future__ import annotations

from typing import Any

import numpy as np

from offaxis.encoding.reshaping import Rank
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import Geometry, TaskModel, as_task_model
from offaxis.geometry.public import Progress
from offaxis.privacy.guarantee import Unit
from offaxis.provenance import LONGEST_STATEMENT, Provenance
from offaxis.recipes import recipe
from offaxis.recipes.gathering import Shape, gather
from offaxis.release import Release


def fit(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    randomizer: str = "laplace",
    delta: Any = None,
    unit: Unit = "item",
    reshaping: Shape = "jacobian",
    percentile: float = 90.0,
    lambda_max: float = 1000.0,
    gauge: float | None = None,
    rank: Rank = "capped",
    active: int | None = None,
    size: int | None = None,
    statement: str = "",
    progress: Progress | None = None,
) -> Release:
    """Fit a release to a public task.

    Everything is learnt from the public model and the public vectors; the result is frozen and can
    be published. No private vector may be among ``public``.

    Parameters
    ----------
    model : torch module, scikit-learn estimator, weight matrix, Layers, TaskModel, or Geometry
        The public task. A :class:`~offaxis.geometry.Geometry` measured before on the same public
        vectors saves measuring it again for another budget. May be None where nothing looks at a
        task: with ``reshaping`` "centre" or "none", and a randomizer that asks no task either.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report, read exactly: 0.1 means 1/10.
    randomizer : str
        One of ``offaxis.recipes.NAMES``. "laplace" (pure), "spherical-laplace" (pure) and
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
    reshaping : {"jacobian", "optimal", "centre", "none"}
        Shape the space to the task; to the task and the public covariance at once, which also
        leaves out what the task does not see; only subtract the public mean; or use the
        randomizer plainly. The last two need no model. For a task whose answer is its largest
        output pass :class:`~offaxis.geometry.CentredOutputs` of the model.
    percentile : float
        Public percentile of the encoded norms that becomes the radius ρ.
    lambda_max : float
        Largest stretch of a direction the task ignores ("jacobian").
    gauge : float, optional
        p of the volume constraint; by default the randomizer's own norm, 2 for the box. The
        published tables use 1 throughout.
    rank : {"capped", "gap"}
        Water-filling under the cap, or the threshold rule of the paper's public code.
    active : int, optional
        How many directions a report tells of ("optimal"); by default all that the task sees.
        Fewer mean less noise on each: :func:`offaxis.evaluation.tune` chooses.
    size : int, optional
        Number of codewords ("response", "subset"), of numbers a report carries
        ("task-aware-network"), or of projected coordinates ("projunit").
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
    >>> best = offaxis.fit(head, public, epsilon=5, randomizer="privunit2", reshaping="optimal")
    >>> best.encoder.output_dim  # the task sees three directions
    3
    >>> str(offaxis.fit(head, public, epsilon=1, randomizer="gaussian", delta=1e-6).guarantee)
    'ε = 1, δ = 1e-06'
    """
    chosen = recipe(randomizer)
    chosen.check_delta(delta, randomizer)
    _check_statement(statement)
    _check_places(model, public)
    given, settings = gather(
        model,
        public,
        chosen,
        epsilon=epsilon,
        delta=delta,
        reshaping=reshaping,
        percentile=percentile,
        lambda_max=lambda_max,
        gauge=gauge,
        rank=rank,
        active=active,
        size=size,
        progress=progress,
    )
    parts = chosen.prepare(given)
    settings = {"recipe": randomizer, **settings, **parts.settings}
    origin = Provenance(given.model, given.identity, settings, statement)
    return Release(parts.encoder, parts.randomizer, parts.decoder, origin, unit, parts.mean_decoder)


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
