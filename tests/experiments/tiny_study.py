"""A source small enough for tests, and rows of every kind on it."""

from __future__ import annotations

import numpy as np

from experiments.engine import Row
from experiments.methods import METHODS, Method, ablated
from experiments.sources import PublicTask, Setting
from offaxis.geometry import Layers

DIM = 6
BUDGETS = (1.0, 5.0)
ABLATED = "PrivUnit2+PA w/o Pre-processing"


def head(classes: int = 3, activation: str = "relu") -> Layers:
    rng = np.random.default_rng(1)
    shapes = [(5, DIM), (4, 5), (classes, 4)]
    weights = [rng.standard_normal(shape) for shape in shapes]
    biases = [rng.standard_normal(rows) for rows, _ in shapes]
    return Layers(weights, biases, activation=activation)


def balanced_head() -> Layers:
    """Return a head whose answers all occur for the public vectors of :func:`source`."""
    task = head()
    rng = np.random.default_rng(2)
    mixing = rng.standard_normal((DIM, DIM))
    public = rng.standard_normal((500, DIM)) @ mixing + 1.0
    last = task.biases[-1] - np.median(task.outputs(public), axis=0)
    return Layers(task.weights, [*task.biases[:-1], last])


def source(count: int = 2600, seed: int = 2, task: Layers | None = None) -> Setting:
    """Return a classification source; the default has more vectors than one block."""
    rng = np.random.default_rng(seed)
    task = task or head()
    mixing = rng.standard_normal((DIM, DIM))
    public = rng.standard_normal((500, DIM)) @ mixing + 1.0
    vectors = rng.standard_normal((count, DIM)) @ mixing + 1.0
    labels = task.outputs(vectors).argmax(1)
    return Setting("tiny", PublicTask(task, public), lambda _: (vectors, labels))


def changing_source() -> Setting:
    """Return a regression source with another sample for every seed."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((1, DIM))
    public = rng.standard_normal((400, DIM))

    def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = np.random.default_rng(seed).standard_normal((50, DIM))
        return drawn, drawn @ weight[0] + 0.1

    return Setting("line", PublicTask(Layers.linear(weight), public), draw, "rmse", fixed=False)


def rows(*labels: str, epsilons: tuple[float, ...] = BUDGETS) -> list[Row]:
    chosen = labels or (*METHODS, ABLATED)
    return [Row(label, "", "tiny", method(label), epsilons) for label in chosen]


def method(label: str) -> Method:
    return ablated(label) if label == ABLATED else METHODS[label]
