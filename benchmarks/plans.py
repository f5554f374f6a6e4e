"""Are plans right? Models from simulated people beside what a plan predicted for them.

``python -m benchmarks.plans`` draws tasks under the assumption of a plan, lets simulated people
report with the release's own law, learns from their reports, and counts how often the accuracy is
inside the interval that the plan stated for that number of people and budget. Vectors are the
bundled CIFAR-10 features. A task is drawn here, not by the plan: one answer per cell, or log odds
along random directions.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import softmax

import offaxis
from experiments.data import load_cifar10_features
from offaxis.learning import FeatureMap, Number, PairSums, cells, learn, principal
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors

SIGNAL: Final = 0.85
CELLS: Final = [(0.5, 10_000), (1, 4_000), (1, 10_000), (2, 2_000), (2, 10_000)]


@dataclass(frozen=True)
class Found:
    """How many models were inside the interval of the plan."""

    kind: str
    epsilon: float
    people: int
    expected: float
    low: float
    high: float
    mean: float
    inside: int
    of: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tasks", type=int, default=12)
    arguments = parser.parse_args()
    rows = measure(arguments.tasks)
    print("| features, answer | ε | people | plan | interval | models | inside |")
    print("|---|---:|---:|---:|---|---:|---:|")
    for row in rows:
        print(
            f"| {row.kind} | {row.epsilon:g} | {row.people:,} | {row.expected:.3f} | "
            f"{row.low:.3f}–{row.high:.3f} | {row.mean:.3f} | {row.inside}/{row.of} |"
        )
    inside, of = sum(row.inside for row in rows), sum(row.of for row in rows)
    print(f"inside: {inside} of {of}, {inside / of:.1%}")


def measure(tasks: int) -> list[Found]:
    """Return one row per kind of features, budget and number of people."""
    public = load_cifar10_features().public
    rows = []
    kinds: list[tuple[str, FeatureMap, Any]] = [
        ("cells, 10 classes", cells(public), 10),
        ("linear, 3 classes", principal(public, 9, intercept=False), 3),
        ("linear, 2 classes, with intercept", principal(public, 9), 2),
        ("linear, a number", principal(public, 9), Number(0, 1)),
    ]
    for kind, features, answers in kinds:
        plan = offaxis.plan_learning(
            public, answers=answers, epsilon=1, features=features, signal=SIGNAL
        )
        for epsilon, people in CELLS:
            expected = plan.expected(people, epsilon)
            release = offaxis.learning.fit_pairs(features, answers, epsilon=epsilon)
            rng = np.random.default_rng(people + int(10 * epsilon))
            found = [one(features, release, answers, people, public, rng) for _ in range(tasks)]
            inside = sum(expected.low <= value <= expected.high for value in found)
            rows.append(
                Found(
                    kind,
                    epsilon,
                    people,
                    expected.accuracy,
                    expected.low,
                    expected.high,
                    float(np.mean(found)),
                    inside,
                    tasks,
                )
            )
    return rows


def one(
    features: FeatureMap,
    release: Release,
    answers: Any,
    people: int,
    public: Vectors,
    rng: np.random.Generator,
) -> float:
    """Draw a task and people, learn, and return the accuracy or R² among the public vectors."""
    x = features.of(public)
    chosen = rng.integers(len(public), size=people)
    sums = PairSums(release)
    if isinstance(answers, Number):
        line = (x - x.mean(axis=0)) @ rng.standard_normal(x.shape[1])
        line *= 0.25 * np.sqrt(SIGNAL) / line.std()
        noise = 0.25 * np.sqrt(1 - SIGNAL)
        drawn = 0.5 + line[chosen] + noise * rng.standard_normal(people)
        observed(sums, release, public[chosen], drawn, rng)
        predicted = learn(release, sums).predict(public)
        missed = float(((predicted - 0.5 - line) ** 2).mean()) + noise**2
        return float(1 - missed / 0.25**2)
    chances = class_chances(features, x, answers, rng)
    drawn = (rng.random((people, 1)) > chances[chosen].cumsum(axis=1)).sum(axis=1)
    observed(sums, release, public[chosen], np.minimum(drawn, answers - 1), rng)
    predicted = learn(release, sums).predict(public)
    right: Vectors = chances[np.arange(len(public)), predicted]
    return float(right.mean())


def class_chances(features: FeatureMap, x: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    """Return the chances of the classes of public vectors under the plan's assumption."""
    if features.kind == "cells":
        named = rng.permutation(np.resize(np.arange(k), max(k, features.size)))
        own = np.eye(k)[named[x.argmax(axis=1)]]
        spread: Vectors = SIGNAL * own + (1 - SIGNAL) / (k - 1) * (1 - own)
        return spread
    corners = np.eye(k) - 1 / k
    _, vectors = np.linalg.eigh(corners)
    directions = np.linalg.qr(rng.standard_normal((x.shape[1], k - 1)))[0]
    logits = (x - x.mean(axis=0)) @ directions @ vectors[:, 1:].T
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        right = softmax(middle * logits, axis=1).max(axis=1).mean()
        low, high = (middle, high) if right < SIGNAL else (low, middle)
    chances: Vectors = softmax(high * logits, axis=1)
    return chances


def observed(
    sums: PairSums, release: Release, vectors: Vectors, answers: Any, rng: np.random.Generator
) -> None:
    """Add what a server would observe of people's pairs, by the law of the randomizer."""
    encoded = release.encoder.encode(release.pairs(vectors, answers))
    sums.add_observed(draw_observations(release.randomizer, encoded, rng))


if __name__ == "__main__":
    main()
