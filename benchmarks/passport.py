"""Leak passports of many releases: every attack beside what ε allows, and what breaks the bounds.

``python -m benchmarks.passport`` attacks seven releases of images, households and handwritten
digits at six budgets, as ``offaxis passport`` does, and prints how many cells exceed their bound,
how close attacks come to it, and which controls exceed it. One false-alarm rate covers all cells of
all passports together. ``--out docs/results/passport.csv`` writes the closest cell of every attack,
release, data set and budget. The controls depend on the data and the budget alone, and are attacked
once for each.

Images are CIFAR-10 features under corruptions with their classes; households are 16 days of mean
energy of a household, its label whether it uses more than the median on the next day; digits are
the 8×8 images of scikit-learn. A release is fitted to other public vectors than those attacked.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import offaxis
from experiments.data import load, load_cifar10_features
from experiments.households import prepare
from offaxis.geometry import Layers
from offaxis.leakage import Leak, LeakPassport
from offaxis.learning import fit_pairs, principal
from offaxis.vectors import Vectors

EPSILONS: Final = (0.5, 1, 2, 5, 7.5, 10)
FALSE_ALARM: Final = 1e-3
TRIALS: Final = 2000
SLOW: Final = {"privunit2": 1000, "laplace": 1000, "pairs": 1000, "duchi": 500}
"""Most trials where reports, likelihoods, controls or models are slow."""

RELEASES: Final = ("answer", "response", "privunit2", "laplace", "gaussian", "duchi", "pairs")
COLUMNS: Final = (
    *("data", "release", "epsilon", "source", "attack", "cells", "exceeded"),
    *("closest", "trials", "value", "low", "high", "chance", "bound", "spent", "shown"),
)


@dataclass(frozen=True, eq=False)
class Data:
    """Vectors to fit a release to, a task, and other public vectors with labels to attack."""

    name: str
    task: Any
    fitted: Vectors
    vectors: Vectors
    labels: Any

    def release(self, kind: str, epsilon: float) -> offaxis.Release:
        """Fit a release of a kind."""
        settings: dict[str, Any] = {"epsilon": epsilon}
        if kind == "pairs":
            codes = np.unique(self.labels)
            names = [str(code) for code in codes] if len(codes) <= 100 else ["less", "more"]
            return fit_pairs(principal(self.fitted, 8), names, epsilon=epsilon)
        if kind == "answer":
            outputs = self.task.outputs(self.fitted[:1]).shape[1]
            kind = "class-response" if outputs > 1 else "scalar-response"
        if kind == "gaussian":
            settings["delta"] = "1e-5"
        if kind == "duchi":
            settings["reshaping"] = "optimal"
        return offaxis.fit(self.task, self.fitted, mechanism=kind, **settings)

    def labels_of(self, kind: str) -> Any:
        """Return the labels as a release takes them."""
        if kind != "pairs":
            return self.labels
        if len(np.unique(self.labels)) <= 100:
            return self.labels.astype(str)
        return np.where(self.labels > np.median(self.labels), "more", "less")


def images() -> Data:
    """CIFAR-10 features; the vectors attacked are of test images."""
    data = load_cifar10_features()
    return Data("images", data.head, data.public[:4000], data.vectors[:3000], data.labels[:3000])


def households() -> Data:
    """Windows of public households, divided by household."""
    readings = load("lhsm")
    sides = prepare(readings.energy, readings.first_day)
    _, places = np.unique(sides.public_households, return_inverse=True)
    odd = places % 2 == 1
    rng = np.random.default_rng(0)
    fitted = rng.choice(np.flatnonzero(~odd), 3000, replace=False)
    attacked = rng.choice(np.flatnonzero(odd), 3000, replace=False)
    targets = sides.public_targets
    return Data(
        "households", sides.model, sides.public[fitted], sides.public[attacked], targets[attacked]
    )


def digits() -> Data:
    """Handwritten digits with a logistic model."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    vectors, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(vectors))
    vectors, labels = vectors[order] / 16, labels[order]
    model = LogisticRegression(max_iter=2000).fit(vectors[:600], labels[:600])
    task = Layers.linear(model.coef_, model.intercept_)
    return Data("digits", task, vectors[:600], vectors[600:], labels[600:])


SETS: Final = (images, households, digits)


def passports(trials: int, alarm: float) -> Iterator[tuple[str, str, float, LeakPassport]]:
    """Yield data set, release, budget and passport."""
    share = alarm / (len(SETS) * len(RELEASES) * len(EPSILONS))
    for make in SETS:
        data = make()
        for kind in RELEASES:
            for epsilon in EPSILONS:
                started = time.perf_counter()
                passport = offaxis.passport(
                    data.release(kind, epsilon),
                    data.vectors,
                    labels=data.labels_of(kind),
                    trials=min(trials, SLOW.get(kind, trials)),
                    false_alarm=share,
                    controls=kind == "laplace",
                )
                seconds = time.perf_counter() - started
                print(f"{data.name} {kind} {epsilon:g}: {passport.summary} {seconds:.1f} s")
                yield data.name, kind, epsilon, passport


def closest(leaks: list[Leak]) -> Leak:
    """Return the cell that is shown to come closest to its bound, from chance."""
    return max(leaks, key=lambda leak: (leak.shown, leak.spent or 0.0))


def rows(name: str, kind: str, epsilon: float, passport: LeakPassport) -> Iterator[dict[str, Any]]:
    """Yield one row for every attack on the release, and one for every control."""
    groups: dict[tuple[str, str], list[Leak]] = {}
    for leak in passport.leaks:
        attack = leak.attack if leak.source == "release" else "all"
        groups.setdefault((leak.source, attack), []).append(leak)
    for (source, attack), leaks in groups.items():
        best = closest(leaks)
        numbers = {
            key: "" if value is None else f"{value:.4f}"
            for key in ("value", "low", "high", "chance", "bound", "spent", "shown")
            for value in [getattr(best, key)]
        }
        whose = kind if source == "release" else ""
        exceeded = sum(leak.exceeds for leak in leaks)
        head = (name, whose, epsilon, source, attack, len(leaks), exceeded)
        row = dict(zip(COLUMNS, (*head, best.setting, best.trials), strict=False))
        yield row | numbers


def summarize(found: list[tuple[str, str, float, LeakPassport]]) -> None:
    """Print what the run shows over all cells."""
    own = [leak for *_, passport in found for leak in passport.of_release]
    judged = [leak for leak in own if leak.bound is not None]
    exceeded = [leak for leak in judged if leak.exceeds]
    print(f"\n{len(own)} cells of releases, {len(judged)} with a bound, {len(exceeded)} above it")
    for epsilon in EPSILONS:
        part = [p for *_, e, p in found if e == epsilon]
        best = closest([leak for p in part for leak in p.of_release])
        near = sum(leak.shown >= 0.8 for p in part for leak in p.of_release)
        over = Counter(leak.source for p in part for leak in p.of_controls if leak.exceeds)
        of = Counter(leak.source for p in part for leak in p.of_controls if leak.bound is not None)
        broken = ", ".join(f"{source} {over[source]} of {of[source]}" for source in sorted(of))
        print(
            f"ε = {epsilon:g}: closest {best.attack} ({best.setting}) {best.value:.3f} of "
            f"{best.bound:.3f}, {100 * (best.spent or 0):.0f} % of the way; {near} cells shown to "
            f"be at 80 % or more; controls above their bound: {broken}"
        )


def main() -> None:
    """Run all passports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = list(passports(arguments.trials, FALSE_ALARM))
    summarize(found)
    if arguments.out is not None:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for entry in found:
                writer.writerows(rows(*entry))
        print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
