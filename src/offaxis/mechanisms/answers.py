"""Mechanisms that report the model's answer: class-response and scalar-response.

The public model runs on the device, and its answer goes through k-ary response. A reported symbol
decodes to a vector on which the model gives the decoded answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import CodewordDecoder
from offaxis.encoding import Answers, ArgmaxEncoder, Encoder, ModelEncoder
from offaxis.encoding.encoders import AnswerEncoder, answer_encoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, TaskModel
from offaxis.geometry.models import answer_names, layers_for_answers
from offaxis.geometry.public import walk
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.mechanisms.codebook import cell_sums
from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.randomizers.symbols import KaryResponse
from offaxis.vectors import Vectors, row_dots

# ---- class-response

_TOLERANCE: Final = 1e-4
"""How much smaller than the largest output that of a network's answer may be, relative to all."""


def _prepare_classes(inputs: PublicInputs) -> Parts:
    """Return a class codebook: a report is a noisy answer of the model.

    The symbol is argmax T(z), computed on the device, so nothing is lost before the randomizer. It
    decodes to a public codeword that the model classifies as that class.

    With Π_s the share of the s most common answers together, response over these agrees with the
    model with probability e^ε Π_s / (e^ε + s − 1), and no report of the same ε agrees more often
    than the largest of these numbers: where some answers are rare and ε is small, every further
    symbol costs more than it adds. So only the best s answers are kept. A client with another
    answer sends one of them: the one with the largest output if the release holds the model, else
    the one that has the largest output most often among public vectors with the client's answer.
    """
    task = inputs.task
    if task is None:
        raise InvalidInput("class-response runs the model: pass the model, not its geometry")
    layers = _held(inputs, task)
    answer = _encoder(layers, slice(None)) if layers else _ModelAnswer(task, inputs.mean)
    shares, typical = _typical(inputs, answer)
    if np.count_nonzero(shares) < 2:
        raise InvalidInput(
            "the model gives the same answer on all public vectors, so there is nothing to report "
            "(class-response): its answer is its largest output, so use a model with one output "
            "per answer, or name the two answers of a model with one logit: "
            "offaxis.geometry.Classifier(model, answers=(…, …))"
        )
    if inputs.every_answer:
        check_complete(shares, answer_names(task))
    kept = kept_answers(shares, float(inputs.epsilon))
    answers = _answers(inputs, task, answer, kept)
    codewords, encoder = typical[kept], _kept_encoder(inputs, task, layers, kept, answers)
    return Parts(
        encoder,
        KaryResponse(kept.size, inputs.epsilon),
        CodewordDecoder(codewords, shares[kept]),
        answers,
        {"codewords": float(kept.size), "answers": float(shares.size)},
    )


def check_complete(shares: Vectors, names: tuple[str, ...] | None) -> None:
    """Raise if some answer of the model occurs for no public vector: no report could name it."""
    unseen = np.flatnonzero(shares == 0)
    if unseen.size:
        few = ", ".join(repr(names[i] if names else int(i)) for i in unseen[:5])
        more = ", …" if unseen.size > 5 else ""
        raise InvalidInput(
            f"no public vector has the answer {few}{more} ({unseen.size} of {shares.size} "
            f"answers), so no report could name it: add public vectors with these answers, use a "
            f"model without them, or let them share a symbol with mechanism='class-response'"
        )


def _answers(inputs: PublicInputs, task: TaskModel, answer: Encoder, kept: NDArray[Any]) -> Answers:
    """Return the names of the answers, and the symbol of each."""
    names = answer_names(task) or tuple(map(str, range(answer.output_dim)))
    symbols = np.full(len(names), -1)
    symbols[kept] = np.arange(kept.size)
    if kept.size < len(names):
        votes = np.zeros((len(names), kept.size))
        for batch in walk(inputs.public, inputs.identity):
            given = answer.encode(batch)
            merged = symbols[given] < 0
            if merged.any():
                closest = task.outputs(batch[merged])[:, kept].argmax(axis=1)
                np.add.at(votes, (given[merged], closest), 1)
        symbols = np.where(symbols < 0, votes.argmax(axis=1), symbols)
    return Answers(names, tuple(symbols.tolist()), tuple(kept.tolist()))


def _kept_encoder(
    inputs: PublicInputs,
    task: TaskModel,
    layers: Layers | None,
    kept: NDArray[Any],
    answers: Answers,
) -> Encoder:
    if layers is not None:
        return _encoder(layers, kept)
    encoder = ModelEncoder(np.array(answers.symbols, dtype=np.float64), inputs.mean)
    return encoder.attach(lambda Z: task.outputs(Z).argmax(axis=1))


@dataclass(frozen=True, eq=False)
class _ModelAnswer:
    """x = argmax_j T(z)_j of any model, while a release is fitted."""

    task: TaskModel
    mean: Vectors

    kind: ClassVar[str] = "answer"

    @property
    def input_dim(self) -> int:
        return int(self.mean.size)

    @cached_property
    def output_dim(self) -> int:
        return int(self.task.outputs(self.mean[None]).shape[1])

    def encode(self, Z: Vectors) -> NDArray[Any]:
        symbols: NDArray[Any] = self.task.outputs(Z).argmax(axis=1)
        return symbols


CLASS_RESPONSE = Mechanism(
    "class-response",
    _prepare_classes,
    order=None,
    needs_task=True,
    needs_geometry=False,
    uses_percentile=False,
    reshaping="none",
)


def kept_answers(shares: Vectors, epsilon: float) -> NDArray[Any]:
    """Return the answers, in ascending order, over which response agrees most often.

    At least two are kept, since one answer leaves nothing to report. Answers with share zero are
    never kept.
    """
    order = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)]
    sizes = np.arange(1, order.size + 1)
    agreement = np.cumsum(shares[order]) / (1 + (sizes - 1) * math.exp(-epsilon))
    best = 2 + int(np.argmax(agreement[1:]))
    return np.sort(order[:best])


def _held(inputs: PublicInputs, task: TaskModel) -> Layers | None:
    """Return the network that the release can hold, if it gives the answers of the model.

    On public vectors, its answer must be one of the model's largest outputs. They are equal where
    outputs are saturated, and differ in the last digits between precisions.
    """
    layers = layers_for_answers(task)
    if layers is None or layers is task:
        return layers
    for batch in walk(inputs.public, inputs.identity):
        outputs = task.outputs(batch)
        if outputs.shape[1] == 1:
            return layers  # a logit, read as two answers
        given = np.take_along_axis(outputs, layers.outputs(batch).argmax(axis=1)[:, None], axis=1)
        if (outputs.max(axis=1) - given[:, 0] > _TOLERANCE * np.abs(outputs).max()).any():
            return None
    return layers


def _encoder(layers: Layers, kept: NDArray[Any] | slice) -> ArgmaxEncoder | AnswerEncoder:
    """Return the encoder to the model's answer among those kept, in their order."""
    weights = [*layers.weights[:-1], layers.weights[-1][kept]]
    biases = [*layers.biases[:-1], layers.biases[-1][kept]]
    if len(weights) == 1:
        return ArgmaxEncoder(weights[0], np.zeros(layers.input_dim), biases[0])
    return answer_encoder(layers.activation)(weights, biases)


def _typical(inputs: PublicInputs, answer: Encoder) -> tuple[Vectors, Vectors]:
    """Return the share of every answer, and a vector that has this answer.

    The vector is the mean of the public vectors of the class. A class need not be convex: if the
    mean has another answer, it is the public vector of the class that is nearest to the mean.
    """
    cells = cell_sums(inputs, answer)
    sums, counts = cells.sums, cells.counts
    used = counts > 0
    means = np.divide(sums, counts[:, None], out=sums, where=used[:, None])
    missed = used & (answer.encode(means) != np.arange(counts.size))
    typical, distance = means.copy(), np.full(counts.size, math.inf)
    for batch in walk(inputs.public, inputs.identity) if missed.any() else ():
        symbols = answer.encode(batch)
        difference = batch - means[symbols]
        squares = row_dots(difference, difference)
        for symbol in np.unique(symbols[missed[symbols]]):
            rows = np.flatnonzero(symbols == symbol)
            closest = rows[np.argmin(squares[rows])]
            if squares[closest] < distance[symbol]:
                typical[symbol], distance[symbol] = batch[closest], squares[closest]
    return counts / counts.sum(), typical


# ---- scalar-response

_INSTEAD: Final = "for other tasks use 'response', a codebook in the task's metric"


def _prepare_scalar(inputs: PublicInputs) -> Parts:
    """Return an interval codebook: a report is a noisy interval of the task's scalar answer.

    For tasks with one output that is affine in the vector, t = wᵀz + b. The intervals are those of
    the least mean squared error under the public answers
    (:mod:`~offaxis.mechanisms.scalar_channel`), and the interval goes through k-ary response. With
    E = e^ε − 1, cell masses m_j, cell means z̄_j of the public vectors and their mean μ, symbol y
    decodes to the posterior mean

        E[z | y] = Σ_j P(j | y) z̄_j = (E m_y z̄_y + μ) / (E m_y + 1),

    as P(j | y) ∝ m_j (e^ε if j = y, else 1). The task is affine, so its answer on that vector is
    the posterior mean of the answer: the decoded number of the optimal channel. This fails for
    nonlinear tasks, which are therefore an error.

    The public answers stand in for those of the clients. At large budgets cells with a share of
    about e^{−ε} matter, and with them the distribution of rare answers: estimating it takes many
    times e^ε public vectors from many people, and where it is unknown the error is larger than the
    least one.
    """
    weight, _ = affine_answer(inputs.task)
    answers = [(batch - inputs.mean) @ weight for batch in walk(inputs.public, inputs.identity)]
    channel = refined_channel(np.concatenate(answers), inputs.epsilon)
    if channel.size < 2:
        raise InvalidInput(
            "the task gives the same answer on all public vectors, so there is nothing to report"
        )
    edges, shares, means = _intervals(inputs, weight, channel.edges)
    growth = math.expm1(float(inputs.epsilon))
    weights = (shares / (shares + 1 / growth))[:, None]
    decoded = inputs.mean + weights * (means - inputs.mean)
    return Parts(
        interval_encoder(weight, inputs.mean, edges),
        KaryResponse(shares.size, inputs.epsilon),
        CodewordDecoder(decoded, shares),
        settings={"intervals": float(shares.size), "bins": float(channel.bins)},
    )


SCALAR_RESPONSE = Mechanism(
    "scalar-response",
    _prepare_scalar,
    order=None,
    needs_task=True,
    needs_geometry=False,
    uses_percentile=False,
    reshaping="none",
)


def affine_answer(task: TaskModel | None) -> tuple[Vectors, float]:
    """Return w and b of a task z ↦ wᵀz + b.

    Raises
    ------
    InvalidInput
        If the task has several outputs, is not affine, or is not given by its layers.
    """
    if task is not None and not isinstance(task, Layers):
        task = layers_for_answers(task) or task
    if not isinstance(task, Layers):
        what = "a geometry" if task is None else f"a {task.identity().kind} model"
        raise InvalidInput(
            f"scalar-response needs the weights of its task, got {what}: pass a weight matrix "
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
    """Return the encoder that counts the edges below t = wᵀ(z − c); an edge is not below itself.

    The intervals are found by affine scores: with edges e_1 < … < e_{k−1} the score
    j t − (e_1 + … + e_j) exceeds the one before it exactly where t > e_j, so the largest score
    identifies the interval.

    Parameters
    ----------
    weight, centre : (m,) arrays
    edges : (k − 1,) array
        Ascending.
    """
    # Slopes and biases around zero: scores stay small where the answers are, and keep their digits.
    slopes = np.arange(edges.size + 1) - edges.size / 2
    below = np.append(0.0, np.cumsum(edges))
    return ArgmaxEncoder(np.outer(slopes, weight), centre, below[-1] / 2 - below)


def _intervals(
    inputs: PublicInputs, weight: Vectors, edges: Vectors
) -> tuple[Vectors, Vectors, Vectors]:
    """Return the edges, and the share and the mean of all public vectors in every interval."""
    while True:
        encoder = interval_encoder(weight, inputs.mean, edges)
        cells = cell_sums(inputs, encoder)
        sums, counts = cells.sums, cells.counts
        used = counts > 0
        if used.all():
            return edges, counts / counts.sum(), sums / counts[:, None]
        # Rounding moved the last vector of a cell into its neighbour: remove the empty cell.
        inner = np.flatnonzero(used)
        edges = edges[inner[1:] - 1]
