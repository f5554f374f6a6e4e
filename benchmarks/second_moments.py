"""Covariance and principal directions of people from private reports, next to other ways.

``python -m benchmarks.second_moments`` estimates the covariance of 20,000 people in the public
principal directions, with the release's own law, and compares it with the exact, *unclipped*
covariance of the population:

* ``offaxis``: fit_second_moments with its defaults;
* ``unclipped``: the same reports, with what clipping does to the public vectors undone;
* ``gaussian``: clipped coordinates with Gaussian noise, δ = 1e-6, its covariance subtracted;
* ``one pair each``: every person reports one product of two coordinates by PrivUnit2;
* ``naive``: the covariance of the noisy coordinates themselves;
* ``public``: the covariance of the public vectors, if people are taken to be like them;
* ``no privacy``: the sample covariance of the same people.

The rivals' radius is the best of several, on the true error. One pair each also gets the true mean.
Images: nine directions of the CIFAR-10 features; the public images are of all classes, people's are
animals. Households: four directions of the logarithm of a London household's mean daily energy in
the months of 2013; people are like the public.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import subspace_angles

from benchmarks.learning_rivals import ANIMALS
from benchmarks.learning_rivals import images as image_population
from experiments.data import load
from offaxis.encoding.second_moments import places
from offaxis.learning import SecondMomentSums, fit_second_moments, second_moments
from offaxis.randomizers import Gaussian, PrivUnit2
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors, row_norms

PEOPLE: Final = 20_000
DELTA: Final = "1e-6"
EPSILONS: Final = (1, 2, 4)
PERCENTILES: Final = (50.0, 75.0, 90.0, 99.0)
COVERED: Final = 150
LEADING: Final = 3


@dataclass(frozen=True, eq=False)
class Population:
    """Public vectors, people's vectors, and how many directions are reported."""

    name: str
    public: Vectors
    people: Vectors
    rank: int

    def release(self, epsilon: float, percentile: float | None = None) -> Release:
        """Return the release of second moments."""
        return fit_second_moments(self.public, self.rank, epsilon=epsilon, percentile=percentile)


def images() -> Population:
    """Return public images of all classes, and people whose images are of animals."""
    whole = image_population(0)
    people = whole.people[np.isin(whole.labels, ANIMALS)]
    return Population("images", whole.public, people, 9)


def households() -> Population:
    """Return the logarithms of mean daily energy in the months of 2013."""
    readings = load("lhsm")
    start = (np.datetime64("2013-01-01") - np.datetime64(readings.first_day)).astype(int)
    days = np.arange(np.datetime64("2013-01-01"), np.datetime64("2014-01-01"))
    month = days.astype("datetime64[M]").astype(int) % 12
    energy = readings.energy[:, start : start + 365].astype(float)
    enough = [(~np.isnan(energy[:, month == k])).sum(axis=1) >= 20 for k in range(12)]
    whole = energy[np.all(enough, axis=0)]
    vectors = np.stack([np.nanmean(whole[:, month == k], axis=1) for k in range(12)], axis=1)
    vectors = np.log(np.maximum(vectors, 0.02))
    order = np.random.default_rng(0).permutation(len(vectors))
    return Population("households", vectors[order[:1000]], vectors[order[1000:]], 4)


# ---- Estimates of the covariance of coordinates, (r, r)

Rng = np.random.Generator
Estimate = Callable[[Vectors, Rng], Vectors]
"""From people's unclipped coordinates."""


def direct(release: Release, *, unclipped: bool = False) -> Estimate:
    """Return the covariance by offaxis; it takes vectors, not coordinates."""

    def estimate(Z: Vectors, rng: Rng) -> Vectors:
        sums = SecondMomentSums(release)
        encoded = release.encoder.encode(Z)
        sums.add_observed(draw_observations(release.randomizer, encoded, rng))
        found = sums.estimate()
        return (found.unclipped() if unclipped else found).covariance

    return estimate


def noisy(radius: float, epsilon: float, *, subtract: bool) -> Estimate:
    """Return the covariance of coordinates with Gaussian noise."""

    def estimate(w: Vectors, rng: Rng) -> Vectors:
        randomizer = Gaussian(w.shape[1], radius, epsilon, DELTA)
        observed = draw_observations(randomizer, w, rng)
        noise = randomizer.expected_squared_error() / w.shape[1]
        return np.cov(observed.T) - subtract * noise * np.eye(w.shape[1])

    return estimate


def one_pair_each(clip: Vectors, epsilon: float, mean: Vectors) -> Estimate:
    """Return means of products, each reported by a part of the people, about the true mean."""

    def estimate(w: Vectors, rng: Rng) -> Vectors:
        i, j, _ = places(w.shape[1])
        own = rng.permutation(len(w)) % i.size
        centred, out = w - mean, np.empty((w.shape[1],) * 2)
        for pair in range(i.size):
            rows = centred[own == pair]
            product = (rows[:, i[pair]] * rows[:, j[pair]])[:, None]
            randomizer = PrivUnit2(1, float(clip[pair]), epsilon, target="vector")
            out[i[pair], j[pair]] = draw_observations(randomizer, product, rng).mean()
            out[j[pair], i[pair]] = out[i[pair], j[pair]]
        return out

    return estimate


# ---- Errors


@dataclass(frozen=True)
class Errors:
    """Means over seeds: of the covariance, of leading variances, and of directions in degrees."""

    covariance: float
    variances: float
    first: float
    leading: float

    @classmethod
    def of(cls, estimates: list[Vectors], truth: Vectors, back: Vectors) -> Errors:
        """Compare estimates with the truth."""
        true_values, true_vectors = _leading(truth, back)
        rows = []
        for found in estimates:
            values, vectors = _leading(found, back)
            angles = subspace_angles(vectors, true_vectors)
            first = subspace_angles(vectors[:, :1], true_vectors[:, :1])
            relative = values[:LEADING] / true_values[:LEADING] - 1
            rows.append(
                [
                    np.linalg.norm(found - truth) / np.linalg.norm(truth),
                    np.sqrt((relative**2).mean()),
                    np.degrees(first.max()),
                    np.degrees(angles.max()),
                ]
            )
        return cls(*np.mean(rows, axis=0).tolist())


def _leading(covariance: Vectors, back: Vectors) -> tuple[Vectors, Vectors]:
    """Return eigenvalues and the leading eigenvectors of the covariance of vectors."""
    basis, factor = np.linalg.qr(back)
    values, turns = np.linalg.eigh(factor @ covariance @ factor.T)
    return values[::-1], basis @ turns[:, ::-1][:, :LEADING]


def _best(
    candidates: list[Estimate], w: Vectors, seeds: int, truth: Vectors, back: Vectors
) -> Errors:
    """Return the errors of the candidate with the smallest error of the covariance."""
    errors = [Errors.of(_runs(one, w, seeds), truth, back) for one in candidates]
    return min(errors, key=lambda error: error.covariance)


def _runs(estimate: Estimate, rows: Vectors, seeds: int) -> list[Vectors]:
    out = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        out.append(estimate(rows[rng.integers(len(rows), size=PEOPLE)], rng))
    return out


def rows_of(population: Population, seeds: int) -> Iterator[tuple[str, float, Errors]]:
    """Yield the errors of every way."""
    for epsilon in EPSILONS:
        release = population.release(epsilon)
        encoder, back = release.encoder, release.decoder.back  # type: ignore[attr-defined]

        def coordinates(Z: Vectors, encoder=encoder) -> Vectors:  # type: ignore[no-untyped-def]
            found: Vectors = (Z - encoder.centre) @ encoder.matrix.T
            return found

        w, public = coordinates(population.people), coordinates(population.public)
        truth, mean = np.cov(w.T, bias=True), w.mean(axis=0)
        for name, unclipped in (("offaxis", False), ("unclipped", True)):
            runs = _runs(direct(release, unclipped=unclipped), population.people, seeds)
            yield name, epsilon, Errors.of(runs, truth, back)
        radii = np.percentile(row_norms(public, 2), PERCENTILES).tolist()
        for name, subtract in (("gaussian", True), ("naive", False)):
            candidates = [noisy(radius, epsilon, subtract=subtract) for radius in radii]
            yield name, epsilon, _best(candidates, w, seeds, truth, back)
        i, j, _ = places(population.rank)
        products = np.abs(public[:, i] * public[:, j])
        candidates = [
            one_pair_each(clip, epsilon, mean)
            for clip in np.percentile(products, [*PERCENTILES, 99.9], axis=0)
        ]
        yield "one pair each", epsilon, _best(candidates, w, seeds, truth, back)
    yield "public", np.inf, Errors.of([np.cov(public.T, bias=True)], truth, back)
    no_privacy = _runs(lambda part, _: np.cov(part.T), w, seeds)
    yield "no privacy", np.inf, Errors.of(no_privacy, truth, back)


def percentiles(population: Population, seeds: int) -> Iterator[tuple[float, list[float]]]:
    """Yield the relative error of the covariance for several radii, per ε."""
    for percentile in (50.0, 75.0, 90.0, 95.0, 99.0, 100.0):
        errors = []
        for epsilon in EPSILONS:
            release = population.release(epsilon, percentile=percentile)
            encoder = release.encoder
            plain = (population.people - encoder.centre) @ encoder.matrix.T  # type: ignore[attr-defined]
            truth = np.cov(plain.T, bias=True)
            runs = _runs(direct(release), population.people, seeds)
            found = Errors.of(runs, truth, release.decoder.back)  # type: ignore[attr-defined]
            errors.append(found.covariance)
        yield percentile, errors


# ---- Intervals


def coverage(population: Population, epsilon: float, rounds: int) -> tuple[float, float, float]:
    """Return how often 95 % intervals cover moments of clipped vectors.

    Of covariances, of means, and of the leading variances.
    """
    release = population.release(epsilon)
    encoder, back = release.encoder, release.decoder.back  # type: ignore[attr-defined]
    w = encoder.coordinates(population.people)  # type: ignore[attr-defined]
    truth, mean = np.cov(w.T, bias=True), w.mean(axis=0)
    values = _leading(truth, back)[0][:LEADING]
    entries = np.triu_indices(len(truth))
    hits: list[list[float]] = []
    for seed in range(rounds):
        rng = np.random.default_rng([seed, 2])
        Z = population.people[rng.integers(len(population.people), size=PEOPLE)]
        sums = SecondMomentSums(release)
        sums.add_observed(draw_observations(release.randomizer, encoder.encode(Z), rng))
        found = sums.estimate()
        low, high = found.interval()
        mean_low, mean_high = found.mean_interval()
        first, last = found.principal(LEADING).interval()
        hits.append(
            [
                ((low <= truth) & (truth <= high))[entries].mean(),
                ((mean_low <= mean) & (mean <= mean_high)).mean(),
                ((first <= values) & (values <= last)).mean(),
            ]
        )
    covered = np.mean(hits, axis=0)
    return float(covered[0]), float(covered[1]), float(covered[2])


def exact(population: Population, epsilon: float) -> Errors:
    """Return the errors of one round of exact reports."""
    release = population.release(epsilon)
    encoder, back = release.encoder, release.decoder.back  # type: ignore[attr-defined]
    plain = (population.people - encoder.centre) @ encoder.matrix.T  # type: ignore[attr-defined]
    chosen = np.random.default_rng(0).integers(len(plain), size=PEOPLE)
    reports = release.privatize(population.people[chosen])
    found = second_moments(release, reports).covariance
    return Errors.of([found], np.cov(plain.T, bias=True), back)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=COVERED)
    arguments = parser.parse_args()
    populations = (images(), households())
    for population in populations:
        print(f"\n{population.name}: {len(population.people):,} different people")
        print("| | ε | covariance | leading variances | first direction | three directions |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, epsilon, errors in rows_of(population, arguments.seeds):
            print(_row(name, epsilon, errors), flush=True)
        print(_row("offaxis, exact reports", 4, exact(population, 4)), flush=True)
        print("\n| clips all but | " + " | ".join(f"ε = {epsilon}" for epsilon in EPSILONS) + " |")
        print("|---:|" + "---:|" * len(EPSILONS))
        for percentile, found in percentiles(population, max(1, arguments.seeds // 2)):
            cells = " | ".join(f"{error:.3f}" for error in found)
            print(f"| {percentile:g} % | {cells} |", flush=True)
        print("\n| intervals of 95 %, ε | covariances | means | leading variances |")
        print("|---:|---:|---:|---:|")
        for epsilon in EPSILONS:
            shares = coverage(population, epsilon, arguments.rounds)
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {epsilon} | {cells} |", flush=True)


def _row(name: str, epsilon: float, errors: Errors) -> str:
    shown = "" if np.isinf(epsilon) else f"{epsilon:g}"
    return (
        f"| {name} | {shown} | {errors.covariance:.3f} | {errors.variances:.3f} | "
        f"{errors.first:.1f}° | {errors.leading:.1f}° |"
    )


if __name__ == "__main__":
    main()
