"""Questions asked after collecting: errors, coverage, tests of fit. Part of ``population``."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

import offaxis
from experiments.features import load_features
from experiments.models import load_model
from offaxis.decoding import Shares
from offaxis.errors import InvalidInput
from offaxis.learning import cells, fit_pairs, principal
from offaxis.learning.frequencies import Histogram
from offaxis.learning.likelihoods import CELLS, Likelihoods, support_of
from offaxis.learning.population import Population, of_likelihoods
from offaxis.randomizers import Hybrid, SubsetSelection
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors

BUDGETS: Final = (0.5, 1.0, 2.0, 4.0)
PEOPLE: Final = (10_000, 100_000)
PUBLIC: Final = 4_000
CLASSES: Final = 10
NETWORK: Final = "published/resnet20-0"
HEAD: Final = "published/cifar10-linear-0"
LOGIT: Final = 3
UNEVEN: Final = (0.3, 0.3, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01)
MOVED: Final = {
    "noise 1": ("gaussian_noise", 1),
    "noise 5": ("gaussian_noise", 5),
    "fog 3": ("fog", 3),
}
POPULATIONS: Final = ("same", "uneven", *MOVED)
RELEASES: Final = ("cells", "PrivUnit2", "default")
MEDIAN_BINS: Final = (16, 32, 64)
_BATCH: Final = 8192

Rng = np.random.Generator


@cache
def _part(name: str) -> tuple[Vectors, Any]:
    choice: dict[str, Any]
    if name in MOVED:
        corruption, severity = MOVED[name]
        choice = {"name": "cifar10-c", "corruption": corruption, "severity": severity}
    else:
        choice = {"name": "cifar10", "part": name}
    found = load_features(**choice, network=NETWORK)
    return found.vectors.astype(np.float64), found.labels


@cache
def _head() -> Any:
    return load_model(HEAD)


def logit(vectors: Vectors) -> Vectors:
    """The number that analysts ask for: one output of the head."""
    values: Vectors = _head().outputs(vectors)[:, LOGIT]
    return values


@dataclass(frozen=True)
class Cell:
    """One crowd that reports through one release."""

    population: str
    release: str
    epsilon: float
    people: int
    seed: int


@lru_cache(maxsize=2)
def _crowd(population: str, seed: int) -> tuple[Vectors, Vectors, Vectors]:
    """Return public vectors, the vectors of whom people are drawn, and their weights."""
    rng = np.random.default_rng([seed, 7])
    vectors, labels = _part("validation")
    order = rng.permutation(len(vectors))
    public, others = vectors[order[:PUBLIC]], order[PUBLIC:]
    if population in MOVED:
        moved = _part(population)[0]
        return public, moved, np.full(len(moved), 1 / len(moved))
    known = labels[others]
    shares = rng.permutation(UNEVEN) if population == "uneven" else np.full(CLASSES, 1 / CLASSES)
    weights = (shares / np.bincount(known, minlength=CLASSES))[known]
    return public, vectors[others], weights / weights.sum()


@lru_cache(maxsize=4)
def fitted(release: str, epsilon: float, seed: int) -> Release:
    """Return a release that is fitted to no question."""
    public = _crowd("same", seed)[0]
    if release == "cells":
        return fit_pairs(cells(public, size=CLASSES), None, epsilon=epsilon)
    if release == "PrivUnit2":
        return fit_pairs(principal(public, rank=9), None, epsilon=epsilon)
    return offaxis.fit(None, public, epsilon=epsilon, goal="vectors")


def estimated(cell: Cell, drawn: Vectors, public: Vectors, rng: Rng) -> Population:
    """Return the population of simulated reports."""
    release = fitted(cell.release, cell.epsilon, cell.seed)
    likelihoods = Likelihoods(support_of(public, [release], CELLS))
    encoded = release.encode_private(drawn)
    observed = (
        draw_observations(release.randomizer, encoded[start : start + _BATCH], rng)
        for start in range(0, len(drawn), _BATCH)
    )
    likelihoods.add_observed(release, observed)
    return of_likelihoods(likelihoods)


def truths(vectors: Vectors, weights: Vectors, edges: Vectors) -> dict[str, Any]:
    """Return the exact answers for weighted vectors."""
    outputs = _head().outputs(vectors)
    values = outputs[:, LOGIT]
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return {
        "shares": np.bincount(outputs.argmax(axis=1), weights, minlength=CLASSES),
        "mean": float(weights @ values),
        "median": float(values[order][np.searchsorted(below, 0.5)]),
        "histogram": np.bincount(places, weights, minlength=len(edges) - 1),
    }


def answers(crowd: Population, edges: Vectors) -> dict[str, Any]:
    """Return our answers; None where reports are too few for a question."""
    asked = {
        "shares": lambda: crowd.share(_head()),
        "mean": lambda: crowd.mean(logit),
        "median": lambda: crowd.quantile(logit, 0.5),
        "histogram": lambda: crowd.histogram(logit, edges),
    }
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except InvalidInput:
            found[name] = None
    return found


def asked_alone(drawn: Vectors, epsilon: float, edges: Vectors, rng: Rng) -> dict[str, Any]:
    """Return answers of people who are asked one question each time, with the whole ε."""
    outputs = _head().outputs(drawn)
    values = outputs[:, LOGIT]
    low, high = edges[0], edges[-1]

    def shares_of(symbols: Any, size: int) -> Shares:
        randomizer = SubsetSelection(size, epsilon)
        counts = np.zeros(size)
        for start in range(0, len(symbols), _BATCH):
            seen = draw_observations(randomizer, symbols[start : start + _BATCH], rng)
            counts += (seen > 0).sum(axis=0)
        return Shares(counts.astype(np.int64), randomizer)

    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    scaled = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
    hybrid = Hybrid(dim=1, radius=1.0, epsilon=epsilon)
    noisy = draw_observations(hybrid, scaled[:, None], rng)
    medians = []
    for bins in MEDIAN_BINS:
        inside = np.clip((scaled + 1) / 2 * bins, 0, bins - 1).astype(np.int64)
        found = Histogram(
            np.linspace(low, high, bins + 1), np.arange(bins), shares_of(inside, bins)
        )
        medians.append(found.quantile(0.5).estimate)
    own = shares_of(outputs.argmax(axis=1), CLASSES)
    return {
        "shares": own.projected(),
        "mean": float((noisy.mean() + 1) / 2 * (high - low) + low),
        "median": medians,
        "histogram": shares_of(places, len(edges) - 1).projected(),
    }


def run(cell: Cell) -> dict[str, Any]:
    """Return squared errors, coverage and the p-value of one cell."""
    with threadpool_limits(1):
        rng = np.random.default_rng(
            [cell.seed, cell.people, int(10 * cell.epsilon), POPULATIONS.index(cell.population)]
        )
        public, vectors, weights = _crowd(cell.population, cell.seed)
        drawn = vectors[rng.choice(len(vectors), cell.people, p=weights)]
        own = logit(public)
        edges = np.quantile(own, [0.001, *np.linspace(0.1, 0.9, 9), 0.999])
        present = truths(drawn, np.full(len(drawn), 1 / len(drawn)), edges)
        law = truths(vectors, weights, edges)
        asked = asked_alone(drawn, cell.epsilon, edges, rng)
        nobody = truths(public, np.full(len(public), 1 / len(public)), edges)
        crowd = estimated(cell, drawn, public, rng)
        row: dict[str, Any] = {**cell.__dict__, "p": crowd.fit.p_value, "spread": crowd.fit.spread}
        row["deviation"] = float(own.std())
        for name, answer in answers(crowd, edges).items():
            truth = np.atleast_1d(present[name])
            single = np.reshape(asked[name], (-1, truth.size))
            row[f"{name} asked"] = [float(((part - truth) ** 2).sum()) for part in single]
            row[f"{name} nobody"] = float(((np.atleast_1d(nobody[name]) - truth) ** 2).sum())
            if answer is None:
                continue
            found = np.atleast_1d(answer.estimate)
            row[f"{name} ours"] = float(((found - truth) ** 2).sum())
            low, high = (np.atleast_1d(end) for end in answer.interval())
            inside = (low <= np.atleast_1d(law[name])) & (np.atleast_1d(law[name]) <= high)
            row[f"{name} covered"] = [int(inside.sum()), inside.size]
        return row


def cells_of(people: list[int], releases: list[str], seeds: int, moved: int) -> Iterator[Cell]:
    """Yield all cells, those of many people first."""
    for count in sorted(people, reverse=True):
        for population, release, epsilon in product(POPULATIONS, releases, BUDGETS):
            for seed in range(moved if population in MOVED else seeds):
                yield Cell(population, release, epsilon, count, seed)


def measure(cells: list[Cell], jobs: int, out: Path | None) -> list[dict[str, Any]]:
    """Run the cells in processes; write every row to a file as it is done."""
    rows = []
    os.environ["OMP_NUM_THREADS"] = "1"
    stream = None if out is None else out.open("w", encoding="utf-8")
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(run, cells, chunksize=4):
            rows.append(row)
            if stream is not None:
                stream.write(json.dumps(row) + "\n")
                stream.flush()
    return rows


def floors(population: str, seed: int) -> dict[str, float]:
    """Return the squared errors of ten cells whose shares are known exactly: their bias."""
    public, vectors, weights = _crowd(population, seed)
    release = fitted("cells", 1.0, seed)
    own, theirs = release.encode_private(public), release.encode_private(vectors)
    size = int(max(own.max(), theirs.max())) + 1
    ratio = np.bincount(theirs, weights, size) / np.maximum(np.bincount(own, minlength=size), 1)
    edges = np.quantile(logit(public), [0.001, *np.linspace(0.1, 0.9, 9), 0.999])
    found, truth = truths(public, ratio[own], edges), truths(vectors, weights, edges)
    return {name: float(np.square(found[name] - truth[name]).sum()) for name in truth}


# ---- Tables


def _root(values: list[float]) -> float:
    return math.sqrt(sum(values) / len(values)) if values else math.nan


def grouped(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the rows of each population, release, number of people and ε."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["population"], row["release"], row["people"], row["epsilon"]].append(row)
    return groups


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Print errors next to asking alone, coverage, and rates of the test of fit."""
    groups = grouped(rows)
    for question in ("shares", "mean", "median", "histogram"):
        print(f"\n**{question}**: root mean squared error, ours / asked alone / nobody asked")
        for key, group in groups.items():
            ours = _root([row[f"{question} ours"] for row in group if f"{question} ours" in row])
            options = zip(*(row[f"{question} asked"] for row in group), strict=True)
            asked = min(_root(list(part)) for part in options)
            nobody = _root([row[f"{question} nobody"] for row in group])
            scale = group[0]["deviation"] if question in ("mean", "median") else 1.0
            print(
                f"{' '.join(map(str, key)):40s} {ours / scale:.4f} {asked / scale:.4f} "
                f"{nobody / scale:.4f}  ratio {ours / asked:.2f}  ({len(group)})"
            )
    print("\n**floor** of ten cells: error without noise of shares, mean, median, histogram")
    for population in POPULATIONS:
        seeds = sorted({row["seed"] for row in rows if row["population"] == population})
        found = [floors(population, seed) for seed in seeds]
        scale = {"mean": float(rows[0]["deviation"]), "median": float(rows[0]["deviation"])}
        listed = [
            f"{_root([part[name] for part in found]) / scale.get(name, 1.0):.4f}"
            for name in ("shares", "mean", "median", "histogram")
        ]
        print(f"{population:10s} {' '.join(listed)}")
    print("\n**coverage** of 95 % intervals, in percent; p <= .05; median tau")
    for key, group in groups.items():
        parts = []
        for question in ("shares", "mean", "median", "histogram"):
            pairs = [row[f"{question} covered"] for row in group if f"{question} covered" in row]
            inside, total = (sum(pair[i] for pair in pairs) for i in (0, 1))
            parts.append(f"{100 * inside / total:5.1f}" if total else "    –")
        p = [row["p"] for row in group]
        rejected = "  –" if any(map(math.isnan, p)) else f"{np.mean(np.array(p) <= 0.05):.3f}"
        tau = np.median([row["spread"] for row in group])
        print(f"{' '.join(map(str, key)):40s} {' '.join(parts)}   {rejected}   {tau:.4f}")
