"""A year of daily reports of London households within one ε per person, compared with rivals.

    python -m benchmarks.sequences [--epsilon 8] [--runs 5] [--people 100 400 1000 4000]
    python -m benchmarks.sequences --attacks

Households report their consumption class (public quartiles) every day for 365 days. Printed are the
errors of the daily shares (root mean square over days of the ℓ2 distance) and of the daily mean
consumption (root mean square, kWh per half-hour, each class at its public mean). 700 households are
public; the people are drawn from the others, evenly ("like the public") or seven times as often if
they consume more than the public median ("heavy users"). All releases of ours are made of exact
reports and estimated by offaxis.learning.trend with the public shares as the reference.

Coverage: how often a 95 % interval, which is about the average over its window, contains the share
of the day itself.

LOLOHA (Arcolezi, Pinzón, Palamidessi, Gambs 2023) with two hash values is rebuilt from its paper
and simulated. Its guarantee adds up the permanent answers of both hash values, and says nothing
about which of them is in force when: --attacks shows what that reveals.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Final

import numpy as np

import offaxis
from experiments.data.cache import cache_folder
from experiments.data.lhsm import load_lhsm
from offaxis.auditing.trials import epsilon_below
from offaxis.client.sequences import next_reports
from offaxis.geometry import Layers
from offaxis.learning import trend
from offaxis.randomizers import MemoisedResponse
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy

DAYS: Final = 365
FIRST_DAY: Final = 365
"""Index of the first day: 2012-11-22, from which on most meters are installed."""
PUBLIC: Final = 700
CLASSES: Final = 4
DRAWS: Final = (1, 2, 4)
ALPHA: Final = 1e-3


def main() -> None:
    """Print the errors, or the attacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--people", type=int, nargs="+", default=[100, 400, 1000, 4000])
    parser.add_argument("--attacks", action="store_true")
    arguments = parser.parse_args()
    if arguments.attacks:
        print_attacks(arguments.epsilon)
    else:
        print_errors(arguments.epsilon, arguments.runs, arguments.people)


# ---- Data


def load_households() -> tuple[np.ndarray, np.ndarray]:
    """Return a year of public and of private households, (n, 365); gaps repeat the day before."""
    energy = load_lhsm(cache_folder()).energy[:, FIRST_DAY : FIRST_DAY + DAYS].astype(float)
    energy = energy[np.isnan(energy).mean(axis=1) <= 0.03]
    for day in range(1, DAYS):
        missing = np.isnan(energy[:, day])
        energy[missing, day] = energy[missing, day - 1]
    first = np.isnan(energy)
    energy[first] = np.nanmean(energy)
    order = np.random.default_rng(0).permutation(len(energy))
    return energy[order[:PUBLIC]], energy[order[PUBLIC:]]


def class_model(edges: np.ndarray) -> Layers:
    """Return the model whose class is the number of edges below a consumption."""
    slopes = np.arange(len(edges) + 1, dtype=float)
    heights = -np.concatenate([[0.0], np.cumsum(edges)])
    return Layers([slopes[:, None]], [heights], answers=("low", "middle", "high", "top"))


def shares_by_day(classes: np.ndarray) -> np.ndarray:
    """Return (365, 4) shares of (n, 365) classes."""
    return np.stack([(classes == c).mean(axis=0) for c in range(CLASSES)], axis=1)


# ---- Releases


def sequence_reports(release: Release, energy: np.ndarray) -> dict[int, list[bytes]]:
    """Return the exact reports of every day, by the code of a device."""
    people: list[Any] = [None] * len(energy)
    days = {}
    for day in range(DAYS):
        vectors = dict(enumerate(energy[:, day, None]))
        days[day], people = next_reports(release, people, day, vectors)
    return days


def daily_response(classes: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Return estimated shares from fresh responses of ε/365 every day, simulated."""
    odds = math.exp(epsilon / DAYS)
    own = odds / (odds + CLASSES - 1)
    other = (1 - own) / (CLASSES - 1)
    kept = rng.random(classes.shape) < own
    shift = rng.integers(1, CLASSES, classes.shape)
    return (shares_by_day(np.where(kept, classes, (classes + shift) % CLASSES)) - other) / (
        own - other
    )


class Loloha:
    """LOLOHA with two hash values: a permanent answer per hash value, a fresh one on top.

    ``epsilon`` is the total by its own accounting: two permanent answers of half of it. The first
    report of a value has half the ε of a permanent answer, as in its paper's experiments.
    """

    def __init__(self, people: int, epsilon: float, rng: np.random.Generator) -> None:
        permanent = epsilon / 2
        first = permanent / 2
        instant = math.log(
            (math.exp(permanent + first) - 1) / (math.exp(permanent) - math.exp(first))
        )
        self._right, self._shown = (1 / (1 + math.exp(-e)) for e in (permanent, instant))
        self._rng = rng
        self.hashes = rng.integers(0, 2, (people, CLASSES))
        honest = rng.random((people, 2)) < self._right
        self._answers = np.where(honest, [0, 1], [1, 0])

    def reports(self, classes: np.ndarray) -> np.ndarray:
        """Return one bit per person and day."""
        hashed = np.take_along_axis(self.hashes, classes, axis=1)
        answers = np.take_along_axis(self._answers, hashed, axis=1)
        return np.where(self._rng.random(answers.shape) < self._shown, answers, 1 - answers)

    def shares(self, reports: np.ndarray) -> np.ndarray:
        """Return the unbiased estimates of daily shares."""
        own = self._right * self._shown + (1 - self._right) * (1 - self._shown)
        agree = [(self.hashes[:, c, None] == reports).mean(axis=0) for c in range(CLASSES)]
        return (np.stack(agree, axis=1) - 0.5) / (own - 0.5)


# ---- Errors


def print_errors(epsilon: float, runs: int, sizes: list[int]) -> None:
    """Print the errors of every method, for two populations."""
    public, private = load_households()
    edges = np.quantile(public, [0.25, 0.5, 0.75])
    model = class_model(edges)
    values = np.array([public[_classes(public, edges) == c].mean() for c in range(CLASSES)])
    known = shares_by_day(_classes(public, edges))
    reference = dict(enumerate(known))
    releases = {
        r: offaxis.memoise(
            offaxis.fit(
                model, public.reshape(-1, 1)[::7], epsilon=epsilon / r, mechanism="class-response"
            ),
            draws=r,
            period=math.ceil(DAYS / r),
        )
        for r in DRAWS
    }
    heavy = private.mean(axis=1) > np.median(public.mean(axis=1))
    populations = {"like the public": np.ones(len(private)), "heavy users": 1 + 6.0 * heavy}
    rng = np.random.default_rng(1)
    print(f"total ε = {epsilon:g} per person, {DAYS} daily reports, {runs} runs")
    print(f"{'people':<16} {'n':>5}  {'method':<32} {'shares':>8} {'mean kWh':>9} {'coverage':>9}")
    for title, weights in populations.items():
        for size in sizes:
            rows: dict[str, list[tuple[float, float, float]]] = {}
            for _ in range(runs):
                chosen = rng.choice(len(private), size, replace=False, p=weights / weights.sum())
                energy = private[chosen]
                classes = _classes(energy, edges)
                truth = shares_by_day(classes)
                _add(rows, "public mean, nobody asked", known, truth, values)
                daily = daily_response(classes, epsilon, rng)
                _add(rows, "fresh reports, ε/365 per day", daily, truth, values)
                rival = Loloha(size, epsilon, rng)
                told = rival.shares(rival.reports(classes))
                _add(rows, "LOLOHA, its own guarantee", told, truth, values)
                for draws, release in releases.items():
                    days = sequence_reports(release, energy)
                    found = trend(release, days, reference=reference)
                    low, high = found.interval()
                    covered = float(((low <= truth) & (truth <= high)).mean())
                    plural = "s" * (draws > 1)
                    name = f"sequence, {draws} answer{plural} of ε = {epsilon / draws:g}"
                    _add(rows, name, found.estimate, truth, values, covered)
            for name, errors in rows.items():
                shares, mean, covered = np.mean(errors, axis=0)
                shown = "" if math.isnan(covered) else f"{covered:9.2f}"
                print(f"{title:<16} {size:>5}  {name:<32} {shares:8.3f} {mean:9.4f} {shown}")


def _classes(energy: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.searchsorted(edges, energy)


def _add(
    rows: dict[str, list[tuple[float, float, float]]],
    name: str,
    estimate: np.ndarray,
    truth: np.ndarray,
    values: np.ndarray,
    covered: float = math.nan,
) -> None:
    error = estimate - truth
    shares = math.sqrt((error**2).sum(axis=1).mean())
    mean = math.sqrt(((error @ values) ** 2).mean())
    rows.setdefault(name, []).append((shares, mean, covered))


# ---- Attacks


def print_attacks(epsilon: float, people: int = 50_000) -> None:
    """Print what averaging reveals of a sequence, and what change patterns reveal of LOLOHA."""
    randomizer = MemoisedResponse(2, epsilon, epsilon, draws=1, period=DAYS)
    print(f"averaging s reports of one permanent answer of ε = {epsilon:g}, two classes")
    print(f"{'s':>5} {'loss, closed form':>18} {'sampled at least':>17}")
    for count in (1, 2, 7, 30, DAYS):
        first, second = (_votes(randomizer, x, count, people) for x in (0, 1))
        bound = max(_shown(first <= c, second <= c) for c in range(count))
        print(f"{count:>5} {randomizer.loss_after(count):18.4f} {bound:17.3f}")
    print(
        f"\na history that never changes against one that alternates, {DAYS} days, total ε = "
        f"{epsilon:g} by each method's own accounting"
    )
    rng = np.random.default_rng(2)
    constant, alternating = np.zeros(DAYS, dtype=int), np.arange(DAYS) % 2
    for name, contrast, repeated in (
        ("LOLOHA", _loloha_contrast, 12),
        ("sequence", _sequence_contrast, 1),
    ):
        sides = [
            np.concatenate([contrast(epsilon, history, people // 5, rng) for _ in range(repeated)])
            for history in (constant, alternating)
        ]
        cuts = np.quantile(np.concatenate(sides), np.linspace(0, 1, 201))
        bound = max(_shown(sides[1] >= c, sides[0] >= c) for c in cuts)
        rate = max((np.mean(sides[1] >= c) + np.mean(sides[0] < c)) / 2 for c in cuts)
        print(f"{name:<10} told apart in {100 * rate:5.1f} % of cases, ε of at least {bound:.2f}")


def _votes(randomizer: MemoisedResponse, symbol: int, count: int, people: int) -> np.ndarray:
    """Return how many of a person's reports name symbol 1."""
    entropy = Entropy()
    held = randomizer.hold(np.full(people, symbol), entropy)
    votes = np.zeros(people, dtype=np.int64)
    for age in range(count):
        shown = randomizer.show(held, [age] * people, entropy)
        votes += randomizer.reported_symbols(shown)
    return votes


def _shown(event: np.ndarray, other: np.ndarray) -> float:
    """Return a lower bound on ε, wrong with probability at most ALPHA."""
    counts = (int(event.sum()), event.size, int(other.sum()), other.size)
    return float(epsilon_below(*counts, delta=0.0, alpha=ALPHA))


def _loloha_contrast(
    epsilon: float, history: np.ndarray, people: int, rng: np.random.Generator
) -> np.ndarray:
    """Return by how much reports of even and odd days differ, for people whose hashes differ."""
    rival = Loloha(people, epsilon, rng)
    reports = rival.reports(np.tile(history, (people, 1)))
    contrast = np.abs(reports[:, ::2].mean(axis=1) - reports[:, 1::2].mean(axis=1))
    contrast[rival.hashes[:, 0] == rival.hashes[:, 1]] = 0.0
    return contrast


def _sequence_contrast(
    epsilon: float, history: np.ndarray, people: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the same contrast for a sequence with four draws in the year."""
    public = rng.standard_normal((200, 2))
    single = offaxis.fit(np.eye(2), public, epsilon=epsilon / 4, mechanism="class-response")
    release = offaxis.memoise(single, draws=4, period=91)
    points = 5 * np.eye(2)
    states: list[Any] = [None] * people
    shown = np.empty((DAYS, people))
    for day in range(DAYS):
        vectors = dict.fromkeys(range(people), points[history[day]])
        reports, states = next_reports(release, states, day, vectors)
        shown[day] = release.observe(reports)[:, 0] > 0
    return np.abs(shown[::2].mean(axis=0) - shown[1::2].mean(axis=0))


if __name__ == "__main__":
    main()
