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
from offaxis.encoding.network import ANSWERS, AnswerEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.geometry.public import walk
from offaxis.randomizers.response import KaryResponse
from offaxis.recipes.cells import cells
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
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


def _layers(given: Ingredients) -> Layers:
    """Return the model as layers that a release file can hold."""
    if isinstance(given.task, Layers):
        return given.task
    if given.task is not None:
        Z = given.sample[:: 1 + len(given.sample) // _COMPARED]
        outputs = given.task.outputs(Z)
        weight = given.task.jacobians(Z[:1])[0].astype(np.float64)
        bias = outputs[0] - weight @ Z[0]
        if np.abs(Z @ weight.T + bias - outputs).max() <= 1e-4 * np.abs(outputs).max():
            return Layers.linear(weight, bias)
    model = given.model.name if given.model else "no model"
    raise InvalidInput(
        f"class-response runs the model on the device, so the release must hold its weights: pass "
        f"offaxis.geometry.Layers(weights, biases, activation), a weight matrix or a fitted "
        f"scikit-learn estimator, rather than {model} "
        f"as {type(given.task).__name__ if given.task else 'a measured geometry'}"
    )


def _encoder(layers: Layers, kept: NDArray[Any] | slice) -> ArgmaxEncoder | AnswerEncoder:
    """Return the model's answer among those kept, in their order."""
    weights = [*layers.weights[:-1], layers.weights[-1][kept]]
    biases = [*layers.biases[:-1], layers.biases[-1][kept]]
    if len(weights) == 1:
        return ArgmaxEncoder(weights[0], np.zeros(layers.input_dim), biases[0])
    return ANSWERS[layers.activation](weights, biases)


def _typical(given: Ingredients, answer: ArgmaxEncoder | AnswerEncoder) -> tuple[Vectors, Vectors]:
    """Return the share of every answer, and a vector that is answered so: the mean where it is.

    A class need not be convex. Where the mean of its public vectors is answered otherwise, it is
    the public vector of the class nearest to that mean.
    """
    known = cells(given, answer)
    sums, counts = known.sums, known.counts
    used = counts > 0
    means = np.divide(sums, counts[:, None], out=sums, where=used[:, None])
    missed = used & (answer.encode(means) != np.arange(counts.size))
    found, distance = means.copy(), np.full(counts.size, math.inf)
    for batch in walk(given.public, given.identity) if missed.any() else ():
        symbols = answer.encode(batch)
        moved = batch - means[symbols]
        away = row_dots(moved, moved)
        for symbol in np.unique(symbols[missed[symbols]]):
            rows = np.flatnonzero(symbols == symbol)
            closest = rows[np.argmin(away[rows])]
            if away[closest] < distance[symbol]:
                found[symbol], distance[symbol] = batch[closest], away[closest]
    return counts / counts.sum(), found


def _prepare(given: Ingredients) -> Parts:
    layers = _layers(given)
    shares, typical = _typical(given, _encoder(layers, slice(None)))
    if np.count_nonzero(shares) < 2:
        raise InvalidInput(
            "class-response needs a model that gives two or more different answers on the public "
            "vectors, an output each"
        )
    kept = kept_answers(shares, float(given.epsilon))
    encoder, codewords = _encoder(layers, kept), typical[kept]
    return Parts(
        encoder,
        KaryResponse(kept.size, given.epsilon),
        CodewordDecoder(codewords, shares[kept]),
        LinearDecoder(codewords.T, np.zeros(encoder.input_dim)),
        {"codewords": float(kept.size), "answers": float(shares.size)},
    )


CLASS_RESPONSE = Recipe(_prepare, order=None, needs_task=True)
