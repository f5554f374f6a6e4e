"""A class codebook: a report tells, noisily, the model's own answer.

The symbol is argmax T(z), found on the device by the public model itself, so nothing is lost before
the randomizer. It decodes to a public codeword of that class, which the model answers as the class.

Answers are not always alike. With shares Π_s of the s likeliest answers together, response over
these agrees with the model with probability e^ε Π_s / (e^ε + s − 1), and no report of the same ε
does better than the largest of these numbers: where some answers are rare and ε is small, every
further symbol costs more than it tells. So only the best s answers are kept; who has another one
sends the likeliest answer among them.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import CodewordDecoder, LinearDecoder
from offaxis.encoding import ArgmaxEncoder
from offaxis.encoding.encoders import ANSWERS, AnswerEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.public import walk
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.mechanisms.codebook import cells
from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.randomizers.symbols import KaryResponse
from offaxis.vectors import Vectors, row_dots

_COMPARED: Final = 2_000
"""Public vectors on which a model of another kind must prove to be linear."""


def kept_answers(shares: Vectors, epsilon: float) -> NDArray[Any]:
    """Return the answers, in order of their number, over which response agrees most often.

    At least two: with one there is nothing to report. Answers that nobody has are never kept.
    """
    order = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)]
    sizes = np.arange(1, order.size + 1)
    agreement = np.cumsum(shares[order]) / (1 + (sizes - 1) * math.exp(-epsilon))
    best = 2 + int(np.argmax(agreement[1:]))
    return np.sort(order[:best])


def _layers(inputs: PublicInputs) -> Layers:
    """Return the model as layers that a release file can hold."""
    if isinstance(inputs.task, Layers):
        return inputs.task
    if inputs.task is not None:
        Z = inputs.sample[:: 1 + len(inputs.sample) // _COMPARED]
        outputs = inputs.task.outputs(Z)
        weight = inputs.task.jacobians(Z[:1])[0].astype(np.float64)
        bias = outputs[0] - weight @ Z[0]
        if np.abs(Z @ weight.T + bias - outputs).max() <= 1e-4 * np.abs(outputs).max():
            return Layers.linear(weight, bias)
    model = inputs.model.name if inputs.model else "no model"
    raise InvalidInput(
        f"class-response runs the model on the device, so the release must hold its weights: pass "
        f"offaxis.geometry.Layers(weights, biases, activation), a weight matrix or a fitted "
        f"scikit-learn estimator, rather than {model} "
        f"as {type(inputs.task).__name__ if inputs.task else 'a measured geometry'}"
    )


def _encoder(layers: Layers, kept: NDArray[Any] | slice) -> ArgmaxEncoder | AnswerEncoder:
    """Return the model's answer among those kept, in their order."""
    weights = [*layers.weights[:-1], layers.weights[-1][kept]]
    biases = [*layers.biases[:-1], layers.biases[-1][kept]]
    if len(weights) == 1:
        return ArgmaxEncoder(weights[0], np.zeros(layers.input_dim), biases[0])
    return ANSWERS[layers.activation](weights, biases)


def _typical(
    inputs: PublicInputs, answer: ArgmaxEncoder | AnswerEncoder
) -> tuple[Vectors, Vectors]:
    """Return the share of every answer, and a vector that is answered so: the mean where it is.

    A class need not be convex. Where the mean of its public vectors is answered otherwise, it is
    the public vector of the class nearest to that mean.
    """
    known = cells(inputs, answer)
    sums, counts = known.sums, known.counts
    used = counts > 0
    means = np.divide(sums, counts[:, None], out=sums, where=used[:, None])
    missed = used & (answer.encode(means) != np.arange(counts.size))
    found, distance = means.copy(), np.full(counts.size, math.inf)
    for batch in walk(inputs.public, inputs.identity) if missed.any() else ():
        symbols = answer.encode(batch)
        moved = batch - means[symbols]
        away = row_dots(moved, moved)
        for symbol in np.unique(symbols[missed[symbols]]):
            rows = np.flatnonzero(symbols == symbol)
            closest = rows[np.argmin(away[rows])]
            if away[closest] < distance[symbol]:
                found[symbol], distance[symbol] = batch[closest], away[closest]
    return counts / counts.sum(), found


def _prepare_classes(inputs: PublicInputs) -> Parts:
    layers = _layers(inputs)
    shares, typical = _typical(inputs, _encoder(layers, slice(None)))
    if np.count_nonzero(shares) < 2:
        raise InvalidInput(
            "class-response needs a model that gives two or more different answers on the public "
            "vectors, an output each"
        )
    kept = kept_answers(shares, float(inputs.epsilon))
    encoder, codewords = _encoder(layers, kept), typical[kept]
    return Parts(
        encoder,
        KaryResponse(kept.size, inputs.epsilon),
        CodewordDecoder(codewords, shares[kept]),
        LinearDecoder(codewords.T, np.zeros(encoder.input_dim)),
        {"codewords": float(kept.size), "answers": float(shares.size)},
    )


CLASS_RESPONSE = Mechanism(
    "class-response",
    _prepare_classes,
    order=None,
    needs_task=True,
    uses_percentile=False,
    reshaping="none",
)


# ----------------------------------------------------------------------------
# A number as the answer: a report tells, noisily, in which interval the task's answer lies.
#
# For tasks with one output that is affine in the vector, t = wᵀz + b. The intervals are those of
# the least mean squared error under the public answers (``mechanisms/scalar_channel.py``), and the
# interval goes through k-ary response. With E = e^ε − 1, cell masses m_j, cell means z̄_j of the
# public vectors and their mean μ, symbol y decodes to the posterior mean
#
#     E[z | y] = Σ_j P(j | y) z̄_j = (E m_y z̄_y + μ) / (E m_y + 1),
#
# as P(j | y) ∝ m_j (e^ε if j = y, else 1). The task is affine, so its answer on that vector is the
# posterior mean of the answer: the decoded number of the optimal channel. A task that bends would
# answer otherwise there, which is why it is refused.
#
# Intervals by affine scores: with edges e_1 < … < e_{k−1} the score j t − (e_1 + … + e_j) exceeds
# the one before it exactly where t > e_j, so the largest score names the interval. The reshaping
# changes nothing here.
#
# The public answers stand for everybody's. At large budgets cells with a share of about e^{−ε}
# count, so the law of rare answers matters: it takes many times e^ε public vectors, of many people,
# to know it, and where it is not known the error is larger than the least one.

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


def _cells(
    inputs: PublicInputs, weight: Vectors, edges: Vectors
) -> tuple[Vectors, Vectors, Vectors]:
    """Return the edges, and the share and the mean of all public vectors in every interval."""
    while True:
        encoder = interval_encoder(weight, inputs.mean, edges)
        found = cells(inputs, encoder)
        sums, counts = found.sums, found.counts
        used = counts > 0
        if used.all():
            return edges, counts / counts.sum(), sums / counts[:, None]
        # Rounding took the last vector of a cell to its neighbour: the cell goes.
        inner = np.flatnonzero(used)
        edges = edges[inner[1:] - 1]


def _prepare_scalar(inputs: PublicInputs) -> Parts:
    weight, _ = affine_answer(inputs.task)
    answers = [(batch - inputs.mean) @ weight for batch in walk(inputs.public, inputs.identity)]
    channel = refined_channel(np.concatenate(answers), inputs.epsilon)
    if channel.size < 2:
        raise InvalidInput(
            "the task gives the same answer on all public vectors, so there is nothing to report"
        )
    edges, shares, means = _cells(inputs, weight, channel.edges)
    growth = math.expm1(float(inputs.epsilon))
    weights = (shares / (shares + 1 / growth))[:, None]
    decoded = inputs.mean + weights * (means - inputs.mean)
    return Parts(
        interval_encoder(weight, inputs.mean, edges),
        KaryResponse(shares.size, inputs.epsilon),
        CodewordDecoder(decoded, shares),
        LinearDecoder(means.T, np.zeros(inputs.identity.dim)),
        {"intervals": float(shares.size), "bins": float(channel.bins)},
    )


SCALAR_RESPONSE = Mechanism(
    "scalar-response",
    _prepare_scalar,
    order=None,
    needs_task=True,
    uses_percentile=False,
    reshaping="none",
)
