"""What a first call gives: default and recommended releases of many kinds of models.

    python -m benchmarks.front_door [--splits 20] [--draws 50] [--models layers,forest]
    python -m benchmarks.front_door --choosing

Classifiers are trained on one half of a data set, which is also public; the other half is private.
The label accuracy of simulated reports of the private half is compared with the reference line:
the accuracy of randomized response on the model's answer. Every cell averages over splits; the
bundled features, which are many more, have a tenth of the splits.

With ``--choosing``: whether the quick search chooses as the full one does, in 40 cells, and how
long it takes on 20,000 vectors of dimension 768.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import offaxis
from experiments.data import load_cifar10_features
from offaxis.evaluation.utility import TaskScorer
from offaxis.geometry import Layers, PublicVectors, as_task_model
from offaxis.geometry import measure as measure_geometry
from offaxis.geometry.models import TaskModel
from offaxis.simulation import draw_observations, simulate
from offaxis.theory import reference_line

BUDGETS = (1, 2, 3, 5, 7.5, 10)
NETWORKS = ("layers", "torch", "jax", "onnx", "callable")
ESTIMATORS: dict[str, Callable[[int], Any]] = {
    "forest": lambda seed: RandomForestClassifier(100, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(max_iter=30, random_state=seed),
    "svm": lambda seed: SVC(random_state=seed),
    "pipeline": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
}


def main() -> None:
    """Print the least ratio of every data set and model, over all budgets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--models", default=",".join((*NETWORKS, *ESTIMATORS)))
    parser.add_argument("--choosing", action="store_true")
    arguments = parser.parse_args()
    if arguments.choosing:
        choosing()
        return
    heads = f"{'data':<9}{'model':<10}{'in the':>7}{'recommended / line':>20}"
    print(f"{heads}{'fit / recommended':>19}{'fit':>10}")
    for data, (X, y) in datasets():
        for name in arguments.models.split(","):
            splits = arguments.splits if data != "features" else max(1, arguments.splits // 10)
            row = measure(name, X, y, splits, arguments.draws)
            held = "file" if row.held else "device"
            line, first = (f"{value:.3f} (ε = {at:g})" for value, at in (row.line, row.first))
            text = f"{data:<9}{name:<10}{held:>7}{line:>20}{first:>19}{row.seconds:>8.2f} s"
            print(text, flush=True)


def datasets() -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield three data sets of scikit-learn, and the bundled features with their labels."""
    for name, load in (
        ("digits", load_digits),
        ("wine", load_wine),
        ("cancer", load_breast_cancer),
    ):
        X, y = load(return_X_y=True)
        yield name, (StandardScaler().fit_transform(X) if name != "digits" else X / 16, y)
    features = load_cifar10_features()
    yield "features", (features.vectors, features.labels)


class Row(NamedTuple):
    """The least ratios over all budgets, with the budget; and the seconds of one default fit."""

    held: bool
    line: tuple[float, float]
    first: tuple[float, float]
    seconds: float


def measure(name: str, X: np.ndarray, y: np.ndarray, splits: int, draws: int) -> Row:
    """Average over splits the accuracies of the line, of the default and the recommendation."""
    scores = np.zeros((3, len(BUDGETS), splits))
    held, seconds = True, 0.0
    for split in range(splits):
        public, private, targets, labels = train_test_split(
            X, y, test_size=0.5, random_state=split, stratify=y
        )
        model = trained(name, public, targets, split)
        task = as_task_model(model)
        accuracy = float((task.outputs(private).argmax(axis=1) == labels).mean())
        for at, epsilon in enumerate(BUDGETS):
            scores[0, at, split] = reference_line(accuracy, len(np.unique(y)), epsilon)
            started = time.perf_counter()
            default = offaxis.fit(model, public, epsilon=epsilon)
            seconds = max(seconds, time.perf_counter() - started)
            best = offaxis.recommend(model, public, epsilon=epsilon).release
            held = held and best.encoder.kind != "model-answer"
            for index, release in ((1, best), (2, default)):
                scores[index, at, split] = decoded_accuracy(release, task, private, labels, draws)
    line, best_score, first = scores.mean(axis=2)
    return Row(held, least(best_score / line), least(first / best_score), seconds)


def least(ratios: np.ndarray) -> tuple[float, float]:
    """Return the smallest ratio and its budget."""
    at = int(ratios.argmin())
    return float(ratios[at]), BUDGETS[at]


def decoded_accuracy(
    release: offaxis.Release, task: TaskModel, vectors: np.ndarray, labels: np.ndarray, draws: int
) -> float:
    """Return the label accuracy of the model on decoded reports."""
    if not hasattr(release.decoder, "codewords"):  # the report is not read, or holds a vector
        decoded = simulate(release, vectors, np.random.default_rng(0))
        return float((task.outputs(decoded).argmax(axis=1) == labels).mean())
    encoded = np.tile(release.encoder.encode(vectors), draws)
    observed = draw_observations(release.randomizer, encoded, np.random.default_rng(0))
    decoder: Any = release.decoder
    answers = task.outputs(decoder.codewords).argmax(axis=1)
    symbols = np.where(observed > 0, decoder.prior, 0.0).argmax(axis=1)
    return float((answers[symbols] == np.tile(labels, draws)).mean())


def trained(name: str, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Train the model; networks are the same one in five forms."""
    if name in ESTIMATORS:
        return ESTIMATORS[name](seed).fit(X, y)
    return FORMS[name](network(X.tobytes(), X.shape, y.tobytes(), seed))


@lru_cache(maxsize=128)
def network(X: bytes, shape: tuple[int, int], y: bytes, seed: int) -> Layers:
    """Train the network, once for all forms."""
    vectors, labels = np.frombuffer(X).reshape(shape), np.frombuffer(y, dtype=np.int64)
    trained = MLPClassifier((32,), max_iter=400, tol=1e-3, random_state=seed).fit(vectors, labels)
    layers = as_task_model(trained)
    assert isinstance(layers, Layers)
    return layers


def as_torch(layers: Layers) -> Any:
    """Return the network as a torch module."""
    import torch

    parts: list[Any] = []
    for weight, bias in zip(layers.weights, layers.biases, strict=True):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        linear.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def as_jax(layers: Layers) -> Any:
    """Return the network as a JAX function."""
    import jax.numpy as jnp

    from offaxis.geometry.jax_model import JaxModel

    def network(params: Any, Z: Any) -> Any:
        *hidden, last = params
        for weight, bias in hidden:
            Z = jnp.maximum(Z @ weight.T + bias, 0)
        return Z @ last[0].T + last[1]

    pairs = zip(layers.weights, layers.biases, strict=True)
    params = [(jnp.asarray(weight), jnp.asarray(bias)) for weight, bias in pairs]
    return JaxModel(network, params, dim=layers.input_dim)


def as_onnx(layers: Layers) -> Any:
    """Return the network as an ONNX graph."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, tensors, current = [], [], "x"
    for index, (weight, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
        for letter, array in (("w", weight), ("b", bias)):
            single = np.ascontiguousarray(array, dtype=np.float32)
            tensors.append(numpy_helper.from_array(single, f"{letter}{index}"))
        inputs, out = [current, f"w{index}", f"b{index}"], f"y{index}"
        nodes.append(helper.make_node("Gemm", inputs, [out], transB=1))
        current = out
        if index < len(layers.weights) - 1:
            nodes.append(helper.make_node("Relu", [out], [f"h{index}"]))
            current = f"h{index}"
    ends = (("x", layers.input_dim), (current, len(layers.biases[-1])))
    first, last = (
        helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", size]) for end, size in ends
    )
    graph = helper.make_graph(nodes, "network", [first], [last], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_callable(layers: Layers) -> Callable[[np.ndarray], np.ndarray]:
    """Return the network as a plain function."""

    def network(Z: np.ndarray) -> np.ndarray:
        return layers.outputs(np.asarray(Z))

    return network


FORMS: dict[str, Callable[[Layers], Any]] = {
    "layers": lambda layers: layers,
    "torch": as_torch,
    "jax": as_jax,
    "onnx": as_onnx,
    "callable": as_callable,
}


def utility(release: offaxis.Release, model: Layers, vectors: np.ndarray, goal: Any) -> float:
    """Return the utility of a release on all vectors, averaged over 80 reports of each."""
    gram = measure_geometry(model, PublicVectors(vectors)).gram
    scorer = TaskScorer(model, gram, vectors.mean(axis=0), goal)
    return float(np.mean([scorer(release, vectors, seed).score for seed in range(20)]))


def choosing() -> None:
    """Compare the quick search with the full one, and time it on many wide vectors."""
    same, cells, worst = 0, 0, 0.0
    for data, (X, y) in datasets():
        public, targets = X[:4000], y[:4000]
        model = trained("layers", np.ascontiguousarray(public), np.asarray(targets), 0)
        for goal in ("answers", "vectors"):
            for epsilon in (1, 2, 4, 6, 8):
                found = [
                    offaxis.recommend(model, public, epsilon=epsilon, goal=goal, effort=effort)
                    for effort in ("quick", "full")
                ]
                titles = [one.candidate.title for one in found]
                scores = [utility(one.release, model, public, goal) for one in found]
                cells, same = cells + 1, same + (titles[0] == titles[1])
                if titles[0] != titles[1]:
                    worst = max(worst, 1 - scores[0] / scores[1])
                    print(f"{data} {goal} ε = {epsilon}: {titles} {scores}", flush=True)
    print(f"the same choice in {same} of {cells} cells; else at most {worst:.1%} less utility")
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((20_000, 768)) / np.sqrt(1 + np.arange(768))
    head = Layers(
        [rng.standard_normal((64, 768)) / 8, rng.standard_normal((10, 64)) / 8],
        [np.zeros(64), np.zeros(10)],
    )
    for goal in ("answers", "vectors", "means"):
        started = time.perf_counter()
        offaxis.recommend(head, wide, epsilon=4, goal=goal)
        print(f"20,000 x 768, {goal}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
