"""What adapting a public model to people who differ is worth, and how often it is done wrongly.

    python -m benchmarks.shift [PART ...] [--seeds 20] [--people 8000] [--network resnet20]

CIFAR-10 features and the linear head of the network. 4,000 validation images are public, without
labels. Clean people are drawn with replacement from the 6,000 others, with the stated shares of
classes, and the accuracy is that on the 10,000 test images. People whose images are corrupted have
one half of the corrupted test images, and the accuracy is that on the other half. The network was
trained on none of them. Seeds vary splits, people and noise; ± is one standard error of a mean.

Parts:

- *moved*, *mix*: accuracy of the head, and how much :func:`offaxis.learning.shift.adapt` changes it
  at ε = .5, 1, 2. Verdicts are counted (u unchanged, m moved, x other mix, ? undecided), and how
  often the goodness-of-fit test rejected both explanations (f). For *moved*, "mean" is recentring
  by the exact mean of the people, "linear" the best linear model of nine directions, fitted with
  labels. For *mix*, "shares" is reweighting with the exact shares of the classes.
- *asked*: reweighting with the shares of answers that people are asked for instead
  (:func:`offaxis.learning.shift.reweight` with a class-response release).
- *alarms*: rates of verdicts over many more populations that are exactly one of the explanations,
  people drawn from the public vectors themselves; and rejections by the goodness-of-fit test, also
  for people of a class that no public vector has.
- *exact*: two cells again, with exact reports through the public functions.

Reports are drawn from the law of the exact ones in floating point, except in *exact*.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

import offaxis
from experiments.features import load_features
from experiments.models import load_model
from offaxis.geometry import Layers
from offaxis.learning.shift import Adaptation, Comparison, adapt, fit_shift, reweight
from offaxis.simulation import draw_observations

BUDGETS: Final = (0.5, 1.0, 2.0)
PUBLIC: Final = 4_000
CLASSES: Final = 10
MOVED: Final = (
    ("clean", 0),
    *(("gaussian_noise", severity) for severity in (1, 3, 5)),
    *((name, severity) for name in ("fog", "defocus_blur") for severity in (1, 3, 5)),
    ("brightness", 5),
)
MIXES: Final[dict[str, Callable[[np.random.Generator], np.ndarray]]] = {
    "Dirichlet(3)": lambda rng: rng.dirichlet(np.full(CLASSES, 3.0)),
    "Dirichlet(1)": lambda rng: rng.dirichlet(np.full(CLASSES, 1.0)),
    "Dirichlet(.3)": lambda rng: rng.dirichlet(np.full(CLASSES, 0.3)),
    "30, 30, 10, 10, 5, 5, 4, 3, 2, 1 %": lambda rng: rng.permutation(
        [0.3, 0.3, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01]
    ),
    "half in one class": lambda rng: rng.permutation([0.5, *[0.5 / 9] * 9]),
    "all in one class": lambda rng: rng.permutation(np.eye(CLASSES)[0]),
}
HEADS: Final = {
    "resnet20": "cifar10-linear",
    "published/resnet20-0": "published/cifar10-linear-0",
    "published/resnet20-1": "published/cifar10-linear-1",
}
LETTERS: Final = {"unchanged": "u", "moved": "m", "other mix": "x", "undecided": "?"}


class Images:
    """The features of one network, its head, and populations of people."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.head: Layers = load_model(HEADS[network])

    def part(self, name: str, severity: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return vectors and labels of a part of CIFAR-10, or of a corruption."""
        return _part(self.network, name, severity)

    def public(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return public vectors, and vectors and labels of the other validation images."""
        vectors, labels = self.part("validation")
        order = rng.permutation(len(vectors))
        others = order[PUBLIC:]
        return vectors[order[:PUBLIC]], vectors[others], labels[others]

    def moved(self, corruption: str, severity: int, people: int, seed: int) -> Population:
        """Return people whose images are corrupted; severity 0 is clean."""
        rng = np.random.default_rng([seed, 1])
        public, others, labels = self.public(rng)
        if not severity:
            drawn = rng.choice(len(others), people)
            return Population(public, others[drawn], labels[drawn], *self.part("test"))
        vectors, labels = self.part(corruption, severity)
        order = rng.permutation(len(vectors))
        drawn = rng.choice(order[: len(order) // 2], people)
        test = order[len(order) // 2 :]
        return Population(public, vectors[drawn], labels[drawn], vectors[test], labels[test])

    def mix(self, kind: str, people: int, seed: int) -> Population:
        """Return people whose classes have other shares."""
        rng = np.random.default_rng([seed, 2])
        public, others, labels = self.public(rng)
        shares = MIXES[kind](rng)
        drawn = _drawn(labels, shares, people, rng)
        vectors, truth = self.part("test")
        test = _drawn(truth, shares, len(truth), rng)
        return Population(public, others[drawn], labels[drawn], vectors[test], truth[test], shares)


@cache
def _part(network: str, name: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
    if severity:
        choice: dict[str, Any] = {"name": "cifar10-c", "corruption": name, "severity": severity}
    else:
        choice = {"name": "cifar10", "part": name}
    features = load_features(**choice, network=network)
    return features.vectors.astype(np.float64), features.labels


def _drawn(
    labels: np.ndarray, shares: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw indices so that classes have these shares."""
    weights = (shares / np.bincount(labels, minlength=CLASSES))[labels]
    return rng.choice(len(labels), size, p=weights / weights.sum())


class Population:
    """Public vectors, people, and vectors with labels to measure accuracy on."""

    def __init__(
        self,
        public: np.ndarray,
        people: np.ndarray,
        labels: np.ndarray,
        vectors: np.ndarray,
        truth: np.ndarray,
        shares: np.ndarray | None = None,
    ) -> None:
        self.public, self.people, self.labels = public, people, labels
        self.vectors, self.truth, self.shares = vectors, truth, shares

    def accuracy(self, model: Any) -> float:
        """Return the accuracy of a model."""
        return float((model.outputs(self.vectors).argmax(axis=1) == self.truth).mean())

    def adapted(self, head: Layers, epsilon: float, seed: int) -> Adaptation:
        """Return the adaptation from simulated reports."""
        return compared(head, self.public, self.people, epsilon, seed).adaptation


def compared(
    head: Layers, public: np.ndarray, people: np.ndarray, epsilon: float, seed: int
) -> Comparison:
    """Compare people with public vectors, by simulated reports."""
    release = fit_shift(head, public, epsilon=epsilon)
    rng = np.random.default_rng([seed, 3, round(100 * epsilon)])
    encoded = release.encoder.encode(people)
    return Comparison(head, release, draw_observations(release.randomizer, encoded, rng), public)


# ---- Accuracy


def print_moved(images: Images, seeds: int, people: int) -> None:
    """Print the table of people who moved."""
    header("people's images", ("mean", "linear"))
    for corruption, severity in MOVED:
        title = f"{corruption.replace('_', ' ')} {severity or ''}".strip()
        populations = [images.moved(corruption, severity, people, seed) for seed in range(seeds)]
        limits = [
            [p.accuracy(by_exact_mean(images.head, p)), p.accuracy(best_linear(images.head, p))]
            for p in populations
        ]
        row(title, images.head, populations, limits)


def print_mix(images: Images, seeds: int, people: int) -> None:
    """Print the table of people whose classes have another mix."""
    header("shares of classes", ("shares",))
    for kind in MIXES:
        populations = [images.mix(kind, people, seed) for seed in range(seeds)]
        limits = [[p.accuracy(reweight(images.head, p.shares, p.public))] for p in populations]
        row(kind, images.head, populations, limits)


def header(first: str, limits: tuple[str, ...]) -> None:
    """Print the header of a table."""
    budgets = [f"ε = {epsilon:g} | verdicts" for epsilon in BUDGETS]
    print(f"| {first} | head | {' | '.join([*budgets, *limits])} |")
    print("|---|" + "---:|" * (1 + 2 * len(BUDGETS) + len(limits)))


def row(title: str, head: Layers, populations: list[Population], limits: list[list[float]]) -> None:
    """Print the row of some populations."""
    before = np.array([p.accuracy(head) for p in populations])
    cells = [f"{before.mean():.3f}"]
    for epsilon in BUDGETS:
        adapted = [p.adapted(head, epsilon, seed) for seed, p in enumerate(populations)]
        after = np.array([p.accuracy(a.model) for p, a in zip(populations, adapted, strict=True)])
        verdicts = Counter(LETTERS[a.verdict] for a in adapted)
        unexplained = sum(not a.explained for a in adapted)
        found = " ".join(f"{n}{letter}" for letter, n in verdicts.most_common())
        cells += [gain(after - before), found + (f" ({unexplained}f)" if unexplained else "")]
    cells += [gain(column - before) for column in np.transpose(limits)]
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


def gain(differences: np.ndarray) -> str:
    """Return a mean with its standard error."""
    error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else np.nan
    return f"{differences.mean():+.4f} ± {error:.4f}"


def by_exact_mean(head: Layers, population: Population) -> Layers:
    """Return the head, recentred by the mean of the people in the directions of a release."""
    release = fit_shift(head, population.public, epsilon=1)
    decoder: Any = release.decoder
    forward, back = release.encoder.weights[0][:-1], decoder.matrix[:, :-1]
    back = back @ np.linalg.inv(forward @ back)
    apart = population.people.mean(axis=0) - population.public.mean(axis=0)
    bias = head.biases[0] - head.weights[0] @ back @ forward @ apart
    return Layers([head.weights[0]], [bias])


def best_linear(head: Layers, population: Population) -> Layers:
    """Return the multinomial logistic model of nine directions fitted to people with labels."""
    encoder = fit_shift(head, population.public, epsilon=1).encoder
    features = encoder.encode(population.people)
    hot = np.eye(CLASSES)[population.labels]
    n, r = features.shape

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(CLASSES, r)
        logits = features @ weights.T
        total = logsumexp(logits, axis=1)
        gradient = (np.exp(logits - total[:, None]) - hot).T @ features / n + 1e-3 * weights
        value = (total - (logits * hot).sum(axis=1)).mean() + 5e-4 * (weights**2).sum()
        return float(value), gradient.ravel()

    weights = minimize(loss, np.zeros(CLASSES * r), jac=True, method="L-BFGS-B").x
    weights = weights.reshape(CLASSES, r)
    return Layers([weights @ encoder.weights[0]], [weights @ encoder.biases[0]])


# ---- Shares that people are asked for


def print_asked(images: Images, seeds: int, people: int) -> None:
    """Print what reweighting by reports of answers changes."""
    print("| shares of classes | head | " + " | ".join(f"ε = {e:g}" for e in BUDGETS) + " |")
    print("|---|---:|" + "---:|" * len(BUDGETS))
    for kind in (None, *MIXES):
        cells: dict[float, list[float]] = {epsilon: [] for epsilon in BUDGETS}
        before = []
        for seed in range(seeds):
            if kind is None:
                population = images.moved("clean", 0, people, seed)
            else:
                population = images.mix(kind, people, seed)
            before.append(population.accuracy(images.head))
            for epsilon in BUDGETS:
                release = offaxis.fit(
                    images.head, population.public, epsilon=epsilon, mechanism="class-response"
                )
                reports = release.privatize(population.people)
                model = reweight(images.head, release.shares(reports), population.public)
                cells[epsilon].append(population.accuracy(model))
        gains = [gain(np.array(after) - before) for after in cells.values()]
        print(f"| {kind or 'like the public'} | {np.mean(before):.3f} | {' | '.join(gains)} |")


# ---- False alarms


def print_alarms(images: Images, people: int, runs: int) -> None:
    """Print rates of verdicts and rejections over simulated populations."""
    rng = np.random.default_rng(4)
    vectors, labels = images.part("validation")
    answers = images.head.outputs(vectors).argmax(axis=1)
    release = fit_shift(images.head, vectors, epsilon=1)
    decoder: Any = release.decoder
    spread = decoder.matrix[:, :-1]
    spread = spread / np.linalg.norm(release.encoder.weights[0][:-1] @ spread, axis=0)

    def unchanged() -> tuple[np.ndarray, np.ndarray]:
        return vectors, vectors[rng.choice(len(vectors), people)]

    def moved() -> tuple[np.ndarray, np.ndarray]:
        direction = rng.standard_normal(spread.shape[1])
        shift = spread @ (direction / np.linalg.norm(direction))
        return vectors, vectors[rng.choice(len(vectors), people)] + shift

    def mixed() -> tuple[np.ndarray, np.ndarray]:
        shares = rng.dirichlet(np.ones(CLASSES))
        return vectors, vectors[_drawn(answers, shares, people, rng)]

    def new_class() -> tuple[np.ndarray, np.ndarray]:
        public = vectors[labels != rng.integers(CLASSES)]
        return public, vectors[rng.choice(len(vectors), people)]

    kinds = {
        "like the public": unchanged,
        "moved by one standard deviation": moved,
        "Dirichlet(1)": mixed,
        "a class that no public vector has": new_class,
    }
    print("| people | ε | unchanged | moved | other mix | undecided | neither | moved | mix |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for title, draw in kinds.items():
        for epsilon in BUDGETS:
            verdicts: Counter[str] = Counter()
            rejected = np.zeros(3)
            for run in range(runs):
                public, who = draw()
                found = compared(images.head, public, who, epsilon, run)
                verdicts[found.adaptation.verdict] += 1
                p = [found.evidence.fit(x) for x in (found.evidence.moved, found.evidence.mixed)]
                rejected += np.array([max(p), *p]) <= 0.05
            cells = [verdicts[name] / runs for name in LETTERS] + list(rejected / runs)
            shown = " | ".join(f"{cell:.3f}" for cell in cells)
            print(f"| {title} | {epsilon:g} | {shown} |", flush=True)


# ---- Exact reports


def print_exact(images: Images, people: int) -> None:
    """Print two cells from exact reports, one seed each."""
    print("| people | ε | head | simulated | exact | seconds for reports | and to adapt |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for title, population in (
        ("gaussian noise 5", images.moved("gaussian_noise", 5, people, 0)),
        ("half in one class", images.mix("half in one class", people, 0)),
    ):
        release = fit_shift(images.head, population.public, epsilon=1)
        start = time.perf_counter()
        reports = release.privatize(population.people)
        made = time.perf_counter()
        adapted = adapt(images.head, release, reports, population.public)
        done = time.perf_counter()
        simulated = population.adapted(images.head, 1.0, 0)
        before = population.accuracy(images.head)
        cells = [
            f"{population.accuracy(found.model) - before:+.4f} ({found.verdict})"
            for found in (simulated, adapted)
        ]
        seconds = f"{made - start:.1f} | {done - made:.1f}"
        print(f"| {title} | 1 | {before:.3f} | {' | '.join(cells)} | {seconds} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("moved", "mix", "asked", "alarms", "exact")
    parser.add_argument("part", nargs="*", choices=[*names, []], default=[])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--people", type=int, default=8_000)
    parser.add_argument("--runs", type=int, default=200, help="populations per row of alarms")
    parser.add_argument("--network", choices=HEADS, default="resnet20")
    arguments = parser.parse_args()
    images = Images(arguments.network)
    for part in arguments.part or names:
        print(f"\n{part}: {arguments.people:,} people, {arguments.network}\n", flush=True)
        if part == "alarms":
            print_alarms(images, arguments.people, arguments.runs)
        elif part == "exact":
            print_exact(images, arguments.people)
        else:
            tables = {"moved": print_moved, "mix": print_mix, "asked": print_asked}
            tables[part](images, arguments.seeds, arguments.people)


if __name__ == "__main__":
    main()
