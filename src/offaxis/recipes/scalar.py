"""A number as the answer: a report tells, noisily, in which interval the task's answer lies.

For tasks with one output that is affine in the vector, t = wᵀz + b. The intervals are those of the
least mean squared error under the public answers (``recipes/scalar_channel.py``), and the interval
goes through k-ary response. With E = e^ε − 1, cell masses m_j, cell means z̄_j of the public vectors
and their mean μ, symbol y decodes to the posterior mean

    E[z | y] = Σ_j P(j | y) z̄_j = (E m_y z̄_y + μ) / (E m_y + 1),

as P(j | y) ∝ m_j (e^ε if j = y, else 1). The task is affine, so its answer on that vector is the
posterior mean of the answer: the decoded number of the optimal channel. A task that bends would
answer otherwise there, which is why it is refused.

Intervals by affine scores: with edges e_1 < … < e_{k−1} the score j t − (e_1 + … + e_j) exceeds the
one before it exactly where t > e_j, so the largest score names the interval. The reshaping
changes nothing here.

The public answers stand for everybody's. At large budgets cells with a share of about e^{−ε} count,
so the law of rare answers matters: it takes many times e^ε public vectors, of many people, to know
it, and where it is not known the error is larger than the least one.
"""

from __future__ import annotations

import math

import numpy as np

from offaxis.decoding import CodewordDecoder, LinearDecoder
from offaxis.encoding import ArgmaxEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.public import walk
from offaxis.randomizers.response import KaryResponse
from offaxis.recipes.cells import cells
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.recipes.scalar_channel import refined_channel
from offaxis.vectors import Vectors

_INSTEAD = "for other tasks use 'response', a codebook in the task's metric"


def affine_answer(task: TaskModel | None) -> tuple[Vectors, float]:
    """Return w and b of a task z ↦ wᵀz + b.

    Raises
    ------
    InvalidInput
        If the task has more outputs than one, bends, or is not known by its layers.
    """
    if not isinstance(task, Layers):
        known = "a geometry" if task is None else f"a {task.identity().kind} model"
        raise InvalidInput(
            f"scalar-response needs the weights of its task, got {known}: pass a weight matrix "
            f"(1, m) or offaxis.geometry.Layers; {_INSTEAD}"
        )
    if len(task.biases[-1]) != 1:
        raise InvalidInput(
            f"scalar-response is for a task with one output, got {len(task.biases[-1])}; {_INSTEAD}"
        )
    if len(task.weights) > 1 and task.activation != "identity":
        raise InvalidInput(
            f"scalar-response is for a task that is affine in the vector, got {task!r}; {_INSTEAD}"
        )
    weight, bias = task.weights[0], task.biases[0]
    for w, b in zip(task.weights[1:], task.biases[1:], strict=True):
        weight, bias = w @ weight, w @ bias + b
    return weight[0], float(bias[0])


def interval_encoder(weight: Vectors, centre: Vectors, edges: Vectors) -> ArgmaxEncoder:
    """Return the encoder that counts the edges below wᵀ(z − c); one on an edge is not above it.

    Parameters
    ----------
    weight, centre : (m,) arrays
    edges : (k − 1,) array
        Ascending.
    """
    # Slopes and biases around zero: scores stay small where the answers are, and digits are kept.
    slopes = np.arange(edges.size + 1) - edges.size / 2
    below = np.append(0.0, np.cumsum(edges))
    return ArgmaxEncoder(np.outer(slopes, weight), centre, below[-1] / 2 - below)


def _cells(given: Ingredients, weight: Vectors, edges: Vectors) -> tuple[Vectors, Vectors, Vectors]:
    """Return the edges, and the share and the mean of all public vectors in every interval."""
    while True:
        encoder = interval_encoder(weight, given.mean, edges)
        found = cells(given, encoder)
        sums, counts = found.sums, found.counts
        used = counts > 0
        if used.all():
            return edges, counts / counts.sum(), sums / counts[:, None]
        # Rounding took the last vector of a cell to its neighbour: the cell goes.
        inner = np.flatnonzero(used)
        edges = edges[inner[1:] - 1]


def _prepare(given: Ingredients) -> Parts:
    weight, _ = affine_answer(given.task)
    answers = [(batch - given.mean) @ weight for batch in walk(given.public, given.identity)]
    channel = refined_channel(np.concatenate(answers), given.epsilon)
    if channel.size < 2:
        raise InvalidInput(
            "the task gives the same answer on all public vectors, so there is nothing to report"
        )
    edges, shares, means = _cells(given, weight, channel.edges)
    growth = math.expm1(float(given.epsilon))
    weights = (shares / (shares + 1 / growth))[:, None]
    decoded = given.mean + weights * (means - given.mean)
    return Parts(
        interval_encoder(weight, given.mean, edges),
        KaryResponse(shares.size, given.epsilon),
        CodewordDecoder(decoded, shares),
        LinearDecoder(means.T, np.zeros(given.identity.dim)),
        {"intervals": float(shares.size), "bins": float(channel.bins)},
    )


SCALAR_RESPONSE = Recipe(_prepare, order=None, needs_task=True)
