"""What models learnt from reports of vectors and private answers are worth, next to limits.

    python -m benchmarks.learning [PART ...] [--seeds 20]

Parts:

- *images*: accuracy by people and budget, of cells and of linear models, with private and with
  public labels. CIFAR-10 features; people are validation images, on which the encoder was not
  trained: 4,000 are public, without labels, and people are drawn with replacement from the 6,000
  others. Accuracy is that on the 10,000 test images.
- *two-rounds*: half of the people find the directions in which the others are asked.
- *rivals*: the same people, with other methods (benchmarks/learning_rivals.py).
- *binary*: a private answer, animal or machine, compared with public labels; both equally common.
- *text*: sentiment of short texts, three classes (examples/text); 6,000 texts are public, 13,000
  belong to one person each, and 4,703 are for testing.
- *digits*: MNIST by principal components of pixels (4,000 public, people drawn with replacement
  from 56,000), and scikit-learn's digits (400 public, 900 people, 497 for testing).
- *intervals*: how often intervals of regression coefficients and of accuracies by private bits
  contain the truth. The regression is that of a household's consumption on the days before.
- *exact*: two cells of the first table from exact reports.
- *speed*: seconds to learn from a million reports.

A *limit* simulates unbiased estimates with the least noise that any report of this ε can have
(docs/proofs.md §25.6), through the same model. Estimates that are biased towards a guess can be
better where the limit is low. Linear models of images and digits assume equally common classes, and
text estimates the shares of the classes, too. Seeds vary splits, people and noise; ± is one
standard error of a mean over seeds. Reports are drawn from the law of the exact ones in floating
point, except in *exact*, in *speed* and for private bits.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.learning_rivals import (
    CLASSES,
    LINES,
    PUBLIC,
    TEXT_PEOPLE,
    Cells,
    Linear,
    Population,
    Rng,
    animals,
    images,
    limit_of_cells,
    limit_of_linear,
    mnist,
    people_needed,
    rivals,
    small_digits,
    texts,
)
from experiments.data.cache import cache_folder
from experiments.data.lhsm import load_lhsm
from offaxis.encoding.pairs import simplex
from offaxis.errors import OffaxisError
from offaxis.learning import (
    Classes,
    FeatureMap,
    Number,
    PairSums,
    ReportRegressor,
    accuracy,
    fit_check,
    fit_pairs,
    learn,
    principal,
)
from offaxis.learning.features import choose
from offaxis.release import Release
from offaxis.simulation.randomizers import draw_observations
from offaxis.vectors import Vectors

BUDGETS: Final = (0.5, 1.0, 2.0, 4.0)
PEOPLE: Final = (1_000, 4_000, 10_000, 40_000)
RANK: Final = 9
WIDE: Final = 24


# ---- Learning from simulated reports


def simulated(
    release: Release, population: Population, n: int, rng: Rng, labels: Classes | None = None
) -> PairSums:
    """Return sums of the reports of n people, with public labels if there are any."""
    chosen = population.draw(n, rng)
    vectors, own = population.people[chosen], population.labels[chosen]
    rows = release.pairs(vectors, own) if release.asked else vectors
    sums = PairSums(release, labels)
    observed = draw_observations(release.randomizer, release.encoder.encode(rows), rng)
    sums.add_observed(observed, None if labels is None else own.astype(float))
    return sums


def ours(
    features: FeatureMap,
    population: Population,
    epsilon: float,
    n: int,
    rng: Rng,
    labels_public: bool = False,
) -> float:
    """Return the accuracy of a model learnt from the reports of n people."""
    k = population.classes
    release = fit_pairs(features, None if labels_public else k, epsilon=epsilon)
    sums = simulated(release, population, n, rng, Classes(k) if labels_public else None)
    return learn(release, sums).score(population.test, population.test_labels)


def mean_error(scores: Sequence[float]) -> str:
    """Return a mean with its standard error."""
    return f"{np.mean(scores):.3f} ± {np.std(scores) / math.sqrt(len(scores)):.3f}"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n")
    print("| " + " | ".join(header) + " |")
    print("|---|" + "---:|" * (len(header) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


# ---- Images


def print_images(seeds: int) -> None:
    """Print accuracy by people and budget, and the limits."""
    scores: dict[tuple[str, float, int], list[float]] = {}
    for seed in range(seeds):
        population = images(seed)
        linear = Linear(principal(population.public, RANK, intercept=False), population)
        cells = Cells(choose(population.public, CLASSES), population)
        rng = np.random.default_rng([seed, 1])
        for epsilon in BUDGETS:
            for n in PEOPLE:
                found = {
                    "cells": ours(cells.features, population, epsilon, n, rng),
                    "cells, limit": limit_of_cells(cells, epsilon, n, rng),
                    "linear": ours(linear.features, population, epsilon, n, rng),
                    "linear, limit": limit_of_linear(linear, epsilon, n, rng),
                    "cells, labels public": ours(cells.features, population, epsilon, n, rng, True),
                    "cells, labels public, limit": limit_of_cells(cells, epsilon, n, rng, True),
                    "linear, labels public": ours(
                        linear.features, population, epsilon, n, rng, True
                    ),
                }
                for name, score in found.items():
                    scores.setdefault((name, epsilon, n), []).append(score)
    rows = []
    for name in dict.fromkeys(key[0] for key in scores):
        for epsilon in BUDGETS:
            cells_of_row = [mean_error(scores[name, epsilon, n]) for n in PEOPLE]
            rows.append([f"{name}, ε = {epsilon:g}", *cells_of_row])
    people = [f"{n:,}" for n in PEOPLE]
    print_table(f"Images, accuracy by people ({seeds} seeds)", ["", *people], rows)
    print_needs(linear.features, cells.features)
    print_ceilings(linear, cells)


def print_needs(linear: FeatureMap, cells: FeatureMap) -> None:
    """Print how many people the randomizers need."""
    rows = []
    for name, features, asked in (
        ("PrivUnit2, linear", linear, CLASSES),
        ("PrivUnit2, linear, labels public", linear, None),
        ("`subset`, cells", cells, CLASSES),
        ("`subset`, cells, labels public", cells, None),
    ):
        fitted = [fit_pairs(features, asked, epsilon=epsilon) for epsilon in BUDGETS]
        needs = [
            people_needed(release.randomizer, epsilon)
            for release, epsilon in zip(fitted, BUDGETS, strict=True)
        ]
        dimension = fitted[0].decoder.input_dim
        rows.append([f"{name}, {dimension} dimensions", *(f"{x:.3f}" for x in needs)])
    title = "People needed for the same error, relative to the limit"
    print_table(title, ["", *(f"ε = {epsilon:g}" for epsilon in BUDGETS)], rows)


def print_ceilings(linear: Linear, cells: Cells) -> None:
    """Print accuracies without privacy, of the last split."""
    from sklearn.linear_model import LogisticRegression

    population = linear.population
    head = LogisticRegression(max_iter=5_000).fit(population.people, population.labels)
    print(
        f"\nWithout privacy: cells {cells.accuracy(cells.table):.3f}, linear "
        f"{linear.accuracy(linear.cross, 1e-9):.3f}, logistic regression on all coordinates "
        f"{population.right(head.predict(population.test)):.3f}"
    )


# ---- Two rounds


def print_two_rounds(seeds: int) -> None:
    """Print what it is worth to let half of the people find the directions for the others."""
    n, rows = PEOPLE[-1], []
    for epsilon in BUDGETS[1:]:
        scores: dict[str, list[float]] = {}
        for seed in range(seeds):
            population, rng = images(seed), np.random.default_rng([seed, 11])
            wide = principal(population.public, WIDE, intercept=False)
            release = fit_pairs(wide, CLASSES, epsilon=epsilon)
            first = learn(release, simulated(release, population, n // 2, rng))
            found = principal(population.public, heads=[first.layers_], intercept=False)
            plain = principal(population.public, RANK, intercept=False)
            for name, features, people in (
                ("their directions, the other half", found, n // 2),
                (f"{RANK} principal directions, half", plain, n // 2),
                (f"{RANK} principal directions, all", plain, n),
            ):
                score = ours(features, population, epsilon, people, rng)
                scores.setdefault(name, []).append(score)
            right = first.score(population.test, population.test_labels)
            scores.setdefault(f"{WIDE} directions, half", []).append(right)
        rows.append([f"{epsilon:g}", *map(mean_error, scores.values())])
    print_table(f"Two rounds, {n:,} people ({seeds} seeds)", ["ε", *scores], rows)


# ---- Rivals


def print_rivals(seeds: int) -> None:
    """Print the accuracy of offaxis and of its rivals, and where a rival is not beaten."""
    sets: list[tuple[str, Callable[[int], Population], tuple[int, ...]]] = [
        ("images", images, PEOPLE)
    ]
    if _available(texts):
        sets.append(("text", texts, (TEXT_PEOPLE,)))
    for name, split, sizes in sets:
        found: dict[tuple[float, int], dict[tuple[str, str], list[float]]] = {}
        for seed in range(seeds):
            population = split(seed)
            cells: Cells | None = None
            if name == "images":
                linear = Linear(principal(population.public, RANK, intercept=False), population)
                cells = Cells(choose(population.public, CLASSES), population)
            else:
                linear = Linear(principal(population.public), population)
            rng = np.random.default_rng([seed, 2])
            for epsilon in BUDGETS:
                for n in sizes:
                    scores = {("linear", ""): ours(linear.features, population, epsilon, n, rng)}
                    if cells is not None:
                        score = ours(cells.features, population, epsilon, n, rng)
                        scores = {("cells", ""): score, **scores}
                    scores |= rivals(linear, cells, epsilon, n, rng)
                    for key, score in scores.items():
                        found.setdefault((epsilon, n), {}).setdefault(key, []).append(score)
        _print_rivals(name, found, seeds)


def _print_rivals(
    name: str, found: dict[tuple[float, int], dict[tuple[str, str], list[float]]], seeds: int
) -> None:
    own = ["cells", "linear"] if name == "images" else ["linear"]
    names = list(dict.fromkeys(key[0] for key in next(iter(found.values()))))
    rows, chosen = [], []
    unbeaten: dict[str, list[str]] = {method: [] for method in own}
    for (epsilon, n), scores in found.items():
        best: dict[str, list[float]] = {}
        for (rival, setting), values in scores.items():
            if rival not in best or np.mean(values) > np.mean(best[rival]):
                best[rival] = values
                if rival == "gradients":
                    kept = setting
        place = f"ε = {epsilon:g}, {n:,} people"
        chosen.append(f"{place}: {kept}")
        rows.append([f"{epsilon:g}, {n:,}", *(f"{np.mean(best[rival]):.3f}" for rival in names)])
        for method in own if epsilon <= 2 else []:
            for rival in names:
                gap = np.array(best[method]) - best[rival]
                error = float(gap.std()) / math.sqrt(len(gap))
                if rival not in (*own, *LINES) and gap.mean() <= 2 * error:
                    worse = ", worse" if gap.mean() < -2 * error else ""
                    shown = f"{place}, {rival}: {gap.mean():+.3f} ± {error:.3f}{worse}"
                    unbeaten[method].append(shown)
    print_table(f"Rivals, {name} ({seeds} seeds); ε, people", ["", *names], rows)
    for method, places in unbeaten.items():
        print(f"\nWhere {method} does not beat a rival by two standard errors, ε ≤ 2:\n")
        print("- " + "\n- ".join(places or ["nowhere"]))
    print("\nBest settings of gradients:\n")
    print("- " + "\n- ".join(chosen), flush=True)


def _available(split: Callable[[int], Population]) -> bool:
    try:
        split(0)
    except (ImportError, OffaxisError) as error:
        print(f"\nleft out: {getattr(split, '__name__', '')}: {error}")
        return False
    return True


# ---- Two classes


def print_binary(seeds: int) -> None:
    """Print errors of moments and accuracies with a private and with a public answer."""
    rows = []
    runs = 10 * seeds
    for epsilon in BUDGETS[:3]:
        for n in PEOPLE[:3]:
            scores: dict[bool, list[float]] = {False: [], True: []}
            errors: dict[bool, list[float]] = {False: [], True: []}
            for run in range(runs):
                population = animals(run % seeds)
                features = _animal_features(run % seeds)
                signs = simplex(2)[population.labels, 0]
                truth = signs @ features.of(population.people) / len(signs)
                rng = np.random.default_rng([run, 3])
                for known in (False, True):
                    release = fit_pairs(features, None if known else 2, epsilon=epsilon)
                    sums = simulated(release, population, n, rng, Classes(2) if known else None)
                    totals = sums.totals.sum(axis=0)
                    total = simplex(2)[:, 0] @ totals if known else totals[0]
                    errors[known].append(float(((total / n - truth) ** 2).sum()))
                    model = learn(release, sums)
                    scores[known].append(model.score(population.test, population.test_labels))
            ratio, error = _ratio(errors[False], errors[True])
            gap = np.array(scores[False]) - scores[True]
            difference = f"{gap.mean():+.3f} ± {gap.std() / math.sqrt(runs):.3f}"
            accuracies = [f"{np.mean(scores[known]):.3f}" for known in (False, True)]
            row = [f"{epsilon:g}, {n:,}", f"{ratio:.3f} ± {error:.3f}", *accuracies, difference]
            rows.append(row)
    header = ["ε, people", "people needed, private / public", "private", "public", "difference"]
    print_table(f"Animal or machine, r = {RANK} ({runs} runs)", header, rows)


@cache
def _animal_features(seed: int) -> FeatureMap:
    return principal(animals(seed).public, RANK, intercept=False)


def _ratio(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return the ratio of two means and its standard error."""
    a, b = np.array(first), np.array(second)
    ratio = float(a.mean() / b.mean())
    spread = (a.std() / a.mean()) ** 2 + (b.std() / b.mean()) ** 2
    return ratio, ratio * math.sqrt(float(spread) / len(a))


# ---- Text and digits


def print_text(seeds: int) -> None:
    """Print accuracy on the rated texts."""
    if not _available(texts):
        return
    scores: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        population = texts(seed)
        features = principal(population.public)
        linear, rng = Linear(features, population), np.random.default_rng([seed, 4])
        found: dict[str, list[float]] = {}
        for epsilon in BUDGETS:
            n = TEXT_PEOPLE
            found.setdefault("both private", []).append(ours(features, population, epsilon, n, rng))
            limit = limit_of_linear(linear, epsilon, n, rng)
            found.setdefault("limit of unbiased linear", []).append(limit)
            known = ours(features, population, epsilon, n, rng, True)
            found.setdefault("labels public", []).append(known)
        exact = linear.accuracy(linear.cross, 1 / linear.cross.size / n)
        found["no privacy, same features"] = [exact] * len(BUDGETS)
        wide = Linear(principal(population.public, 64), population)
        exact = wide.accuracy(wide.cross, 1 / wide.cross.size / n)
        found["no privacy, 64 directions"] = [exact] * len(BUDGETS)
        common = np.bincount(population.test_labels).max() / len(population.test_labels)
        found["the most common answer"] = [common] * len(BUDGETS)
        for name, values in found.items():
            scores.setdefault(name, []).append(values)
    shown = choose(population.public, 3)
    print(f"\nclearness of clusters {shown.settings['clearness']}: {shown}")
    title = f"Text, accuracy with {TEXT_PEOPLE:,} people ({seeds} seeds), {features}"
    _print_by_budget(title, scores)


def print_digits(seeds: int) -> None:
    """Print accuracy on MNIST and on scikit-learn's digits."""
    for name, split, n in (("MNIST", mnist, 40_000), ("small digits", small_digits, 900)):
        if not _available(split):
            continue
        scores: dict[str, list[list[float]]] = {}
        for seed in range(seeds):
            population = split(seed)
            rng = np.random.default_rng([seed, 5])
            default = choose(population.public, CLASSES)
            for rank in (9, 16):
                features = principal(population.public, rank, intercept=False)
                linear = Linear(features, population)
                for kind in ("private", "public"):
                    scores.setdefault(f"r = {rank}, labels {kind}", []).append(
                        [
                            ours(features, population, epsilon, n, rng, kind == "public")
                            for epsilon in BUDGETS
                        ]
                    )
                scores.setdefault(f"r = {rank}, limit of unbiased linear", []).append(
                    [limit_of_linear(linear, epsilon, n, rng) for epsilon in BUDGETS]
                )
                exact = linear.accuracy(linear.cross, 1 / linear.cross.size / n)
                scores.setdefault(f"r = {rank}, no privacy", []).append([exact] * len(BUDGETS))
            scores.setdefault(f"default, {default.kind}", []).append(
                [ours(default, population, epsilon, n, rng) for epsilon in BUDGETS]
            )
        _print_by_budget(f"{name}, accuracy with {n:,} people ({seeds} seeds)", scores)


def _print_by_budget(title: str, scores: dict[str, list[list[float]]]) -> None:
    rows = [[name, *map(mean_error, np.transpose(values))] for name, values in scores.items()]
    print_table(title, ["", *(f"ε = {epsilon:g}" for epsilon in BUDGETS)], rows)


# ---- Intervals


def print_intervals(seeds: int) -> None:
    """Print how often 95 % intervals contain the truth."""
    vectors, numbers = household_windows()
    asked = Number(0, 1)
    clipped = np.clip(numbers, 0, 1)
    rows = []
    for epsilon in (1.0, 2.0, 4.0):
        for n in (4_000, 20_000):
            hits = []
            for run in range(20 * seeds):
                rng = np.random.default_rng([run, 6])
                features = principal(vectors[rng.integers(len(vectors), size=4_000)], 4)
                truth = coefficients(features, vectors, clipped)
                release = fit_pairs(features, asked, epsilon=epsilon)
                chosen = rng.integers(len(vectors), size=n)
                rows_of = release.pairs(vectors[chosen], numbers[chosen])
                sums = PairSums(release)
                encoded = release.encoder.encode(rows_of)
                sums.add_observed(draw_observations(release.randomizer, encoded, rng))
                low, high = ReportRegressor(release).fit(sums).interval()
                hits.append((low <= truth) & (truth <= high))
            shares = np.mean(hits, axis=0)
            error = np.std(np.mean(hits, axis=1)) / math.sqrt(len(hits))
            each = ", ".join(f"{share:.3f}" for share in shares)
            rows.append([f"{epsilon:g}, {n:,}", f"{shares.mean():.3f} ± {error:.3f}", each])
    title = f"Coverage of 95 % intervals of coefficients ({20 * seeds} runs)"
    print_table(title, ["ε, people", "all", "each"], rows)
    _print_coverage_of_accuracy(100 * seeds)


def coefficients(features: FeatureMap, vectors: Vectors, numbers: Vectors) -> Vectors:
    """Return the coefficients of least squares without privacy, in units of the numbers."""
    x = features.of(vectors)
    found: Vectors = np.linalg.solve(x.T @ x, x.T @ numbers)
    return found


def household_windows() -> tuple[Vectors, Vectors]:
    """Return windows of 16 complete days, (n, 16), and the consumption of the day after each."""
    energy = load_lhsm(cache_folder()).energy.astype(float)
    complete = np.cumsum(np.isnan(energy), axis=1)
    rng = np.random.default_rng(0)
    house = rng.integers(len(energy), size=200_000)
    day = rng.integers(energy.shape[1] - 17, size=house.size)
    usable = (complete[house, day + 16] == complete[house, day]) & ~np.isnan(energy[house, day])
    house, day = house[usable][:50_000], day[usable][:50_000]
    windows = energy[house[:, None], day[:, None] + np.arange(17)]
    return windows[:, :16], windows[:, 16]


def _print_coverage_of_accuracy(runs: int) -> None:
    population = images(0)
    features = choose(population.public, CLASSES)
    release = fit_pairs(features, CLASSES, epsilon=2)
    rng = np.random.default_rng(7)
    rows = []
    for people in (100, 4_000):
        model = learn(release, simulated(release, population, people, rng))
        truth = model.score(population.test, population.test_labels)
        for epsilon in (1.0, 2.0, 4.0):
            check = fit_check(model, population.public, epsilon=epsilon)
            for n in (500, 2_000):
                hits = []
                for _ in range(runs if n == 500 else runs // 2):
                    chosen = rng.integers(len(population.test), size=n)
                    labels = population.test_labels[chosen]
                    reports = check.privatize(population.test[chosen], answers=labels)
                    low, high = accuracy(check, reports).interval()
                    hits.append(low <= truth <= high)
                share = float(np.mean(hits))
                error = math.sqrt(share * (1 - share) / len(hits))
                rows.append(
                    [
                        f"{epsilon:g}, {n:,}",
                        f"{truth:.3f}",
                        f"{share:.3f} ± {error:.3f}",
                        f"{len(hits):,}",
                    ]
                )
    title = "Coverage of 95 % intervals of accuracy by private bits (exact reports)"
    print_table(title, ["ε, people", "accuracy", "coverage", "runs"], rows)


# ---- Exact reports


def print_exact(seeds: int) -> None:
    """Print two cells of the first table from exact reports and from simulated ones."""
    rows = []
    for kind, epsilon, n in (("cells", 1.0, 4_000), ("linear", 2.0, 10_000)):
        scores: dict[str, list[float]] = {"exact": [], "simulated": []}
        for seed in range(seeds):
            population = images(seed)
            features = principal(population.public, RANK, intercept=False)
            if kind == "cells":
                features = choose(population.public, CLASSES)
            release = fit_pairs(features, CLASSES, epsilon=epsilon)
            rng = np.random.default_rng([seed, 8])
            chosen = population.draw(n, rng)
            labels = population.labels[chosen]
            reports = release.privatize(population.people[chosen], answers=labels)
            model = learn(release, reports)
            scores["exact"].append(model.score(population.test, population.test_labels))
            model = learn(release, simulated(release, population, n, rng))
            scores["simulated"].append(model.score(population.test, population.test_labels))
        rows.append([f"{kind}, ε = {epsilon:g}, {n:,} people", *map(mean_error, scores.values())])
    print_table(f"Exact reports ({seeds} seeds)", ["", "exact", "simulated"], rows)


def print_speed(seeds: int) -> None:
    """Print the seconds to learn from a million reports, read from bytes."""
    rng = np.random.default_rng(9)
    vectors = rng.standard_normal((50_000, 64))
    cases: list[tuple[str, FeatureMap, Any]] = [
        ("moments, r = 16, 2 classes", principal(vectors[:PUBLIC], 16, intercept=False), 2),
        ("moments, r = 16, 10 classes", principal(vectors[:PUBLIC], 16, intercept=False), 10),
        ("moments, r = 16, a number", principal(vectors[:PUBLIC], 16), Number(0, 9)),
        ("cells, 10 classes", choose(images(0).public, CLASSES), 10),
    ]
    rows = []
    for name, features, asked in cases:
        release = fit_pairs(features, asked, epsilon=1)
        answers = rng.integers(2 if asked == 2 else 10, size=len(vectors))
        start = time.perf_counter()
        reports = release.privatize(vectors, answers=answers)
        made = time.perf_counter() - start
        assert isinstance(reports, list)
        reports = reports * 20
        seconds = []
        for threads in (1, None):
            with threadpool_limits(limits=threads):
                taken = []
                for _ in range(2):
                    start = time.perf_counter()
                    learn(release, reports)
                    taken.append(time.perf_counter() - start)
            seconds.append(f"{min(taken):.1f}")
        rows.append([name, str(len(reports[0])), *seconds, f"{len(vectors) / made:,.0f}"])
    header = ["m = 64", "bytes per report", "seconds, one BLAS thread", "all", "made per second"]
    print_table("A million reports, read and learnt from", header, rows)


PARTS: Final[dict[str, Callable[[int], None]]] = {
    "images": print_images,
    "two-rounds": print_two_rounds,
    "rivals": print_rivals,
    "binary": print_binary,
    "text": print_text,
    "digits": print_digits,
    "intervals": print_intervals,
    "exact": print_exact,
    "speed": print_speed,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        start = time.perf_counter()
        PARTS[part](arguments.seeds)
        print(f"\n{part}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
