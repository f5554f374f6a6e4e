"""The streaming Gram of a public model: Ω̂ = (1/N) Σ J_iᵀ J_i, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.geometry.gram import AcceleratedModel, GramAndMoments, GramRule, HostSums
from offaxis.geometry.models import ModelIdentity, TaskModel
from offaxis.geometry.public import Progress, PublicVectors, Survey, fold_identified
from offaxis.geometry.public_hash import PublicIdentity
from offaxis.vectors import Vectors, as_integer

_BATCH_NUMBERS = 1 << 22
"""A batch is cut so that its Jacobians hold about this many numbers."""

EXACT_NUMBERS = 1 << 17
"""A Gram that holds more numbers than this a vector is sketched."""

PROBES = 4
"""Probes a vector of a sketch, when not told."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """What fitting needs to know of the public side.

    Attributes
    ----------
    gram : (m, m) array
        Ω̂, the mean of JᵀJ.
    mean : (m,) array
        μ, the mean of the public vectors.
    covariance : (m, m) array
        C, their covariance.
    outputs : int
        k, the number of outputs of the model.
    probes : int or None
        Probes a vector where the Gram is a sketch; None where it is exact.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.geometry import Geometry, PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.eye(3)[:1]), PublicVectors(public))
    >>> isinstance(geometry, Geometry), geometry.outputs, geometry.survey.identity.count
    (True, 1, 500)
    >>> [str(offaxis.fit(geometry, public, epsilon=e).guarantee) for e in (1, 2)]  # measured once
    ['ε = 1, pure', 'ε = 2, pure']
    """

    gram: Vectors
    mean: Vectors
    covariance: Vectors
    outputs: int
    model: ModelIdentity
    public: PublicIdentity
    probes: int | None = None

    @property
    def survey(self) -> Survey:
        """Who the public vectors are, and their moments."""
        return Survey(self.public, self.mean, self.covariance)


def _check_rows(model: TaskModel, Z: Vectors) -> int:
    """Return k, after checking that every row of outputs belongs to its own vector alone."""
    few = Z[:8]
    together = model.outputs(few)
    alone = model.outputs(few[:1])
    if together.ndim != 2 or len(together) != len(few) or alone.shape != (1, together.shape[1]):
        raise InvalidInput(
            f"the model must return one row a vector, (n, k) for an input (n, m); "
            f"for {len(few)} vectors it returned shape {together.shape}"
        )
    if not np.isfinite(together).all():
        raise InvalidInput("the model returned a value that is not finite on public vectors")
    if not np.allclose(alone[0], together[0], rtol=1e-3, atol=1e-5 * np.abs(together).max()):
        raise InvalidInput(
            "the model's answer for a vector depends on the other vectors of its batch; "
            "it must treat every row on its own (no batch statistics outside eval mode)"
        )
    return int(together.shape[1])


def _probes(asked: int | None, held: int, outputs: int) -> int | None:
    """Return how many probes a vector, or None for the exact Gram."""
    if asked is None:
        return None if held <= EXACT_NUMBERS else min(PROBES, outputs)
    return min(as_integer(asked, "probes", 1), outputs)


def measure(
    model: TaskModel,
    public: PublicVectors,
    progress: Progress | None = None,
    *,
    probes: int | None = None,
) -> Geometry:
    """Walk once through the public vectors and return the geometry of the task.

    Memory does not grow with the number of vectors: one batch of Jacobians and a few m×m matrices.

    Parameters
    ----------
    model : TaskModel
    public : PublicVectors
    progress : callable, optional
        Called with the number of vectors just finished.
    probes : int, optional
        Backward passes a vector for a sketch of the Gram. By default the Gram is exact while it
        holds at most 131,072 numbers a vector, and beyond sketched with 4.

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> task = as_task_model(np.array([[2.0, 0.0, 0.0]]))  # a linear task that reads one coordinate
    >>> measure(task, PublicVectors(public)).gram
    array([[4., 0., 0.],
           [0., 0., 0.],
           [0., 0., 0.]])
    """
    first = next(iter(public.batches(8)))
    dim = first.shape[1]
    if model.input_dim not in (None, dim):
        raise InvalidInput(
            f"the model takes vectors of dimension {model.input_dim}, the public ones have {dim}"
        )
    outputs = _check_rows(model, first)
    held = model.numbers_per_vector(dim, outputs)
    probes = _probes(probes, held, outputs)
    rows = int(np.clip(_BATCH_NUMBERS // (held if probes is None else dim + outputs), 16, 8192))
    make = partial(_sums, GramRule(model, dim, outputs, probes))
    found, identity = fold_identified(public, make, rows, progress)
    sums = found.home()
    gram = sums.gram.mean()
    if not np.isfinite(gram).all():
        raise InvalidInput(
            "the model's Jacobian is not finite, or too large to square, on the public vectors; "
            "rescale the model's outputs or the vectors"
        )
    return Geometry(
        gram=gram,
        mean=sums.moments.mean,
        covariance=sums.moments.covariance,
        outputs=outputs,
        model=model.identity(),
        public=identity,
        probes=probes,
    )


def _sums(rule: GramRule) -> GramAndMoments:
    """Return where sums are taken: beside the model if it lives on an accelerator."""
    if isinstance(rule.model, AcceleratedModel) and rule.model.accelerated:
        return rule.model.sums(rule)
    return HostSums(rule)
