"""Populations, limits and rivals of ``python -m benchmarks.learning``.

Every rival gets the same public features, people and test set as offaxis. Its parameters are chosen
in its favour: of several settings, the one with the best mean accuracy on the test set counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from experiments.data import load
from experiments.features import load_features
from offaxis.encoding.pairs import simplex
from offaxis.learning import FeatureMap
from offaxis.learning.moments import posterior_mean
from offaxis.randomizers import KaryResponse, PrivUnit2, SubsetSelection
from offaxis.randomizers.gaussian import noise_scale
from offaxis.simulation.randomizers import draw_observations
from offaxis.vectors import Vectors

Labels = NDArray[np.int64]
Rng = np.random.Generator
Scores = dict[tuple[str, str], float]
"""Accuracies by rival and setting."""

CLASSES: Final = 10
PUBLIC: Final = 4_000
TEXT_PUBLIC: Final = 6_000
TEXT_PEOPLE: Final = 13_000
ANIMALS: Final = (2, 3, 4, 5, 6, 7)
DELTA: Final = 1e-6
RATES: Final = (10.0, 40.0, 160.0)
DISJOINT_ROUNDS: Final = (2, 5)
REPEATED_ROUNDS: Final = (2,)
PENALTIES: Final = (1e-4, 1e-2, 1.0)


# ---- Populations


@dataclass(frozen=True, eq=False)
class Population:
    """Public vectors without labels, the vectors and labels of people, and a test set."""

    public: Vectors
    people: Vectors
    labels: Labels
    test: Vectors
    test_labels: Labels
    classes: int

    def draw(self, count: int, rng: Rng) -> Labels:
        """Return the indices of people: all of them once, or a sample with replacement."""
        if count == len(self.people):
            return rng.permutation(count)
        return rng.integers(len(self.people), size=count)

    def right(self, predicted: Labels) -> float:
        """Return the accuracy of predictions for the test set."""
        return float((predicted == self.test_labels).mean())


@lru_cache(maxsize=1)
def _images() -> tuple[Vectors, Labels, Vectors, Labels]:
    held, test = (load_features("cifar10", part=part) for part in ("validation", "test"))
    return held.vectors.astype(float), held.labels, test.vectors.astype(float), test.labels


def images(seed: int) -> Population:
    """Return a split of the CIFAR-10 features."""
    vectors, labels, test, test_labels = _images()
    order = np.random.default_rng(seed).permutation(len(vectors))
    public, people = order[:PUBLIC], order[PUBLIC:]
    return Population(vectors[public], vectors[people], labels[people], test, test_labels, CLASSES)


@lru_cache(maxsize=1)
def _texts() -> tuple[Vectors, Labels]:
    from examples.text.ratings import load as load_ratings
    from examples.text.sentiment import embed

    rated = load_ratings()
    return embed(rated).astype(float), rated.classes


def texts(seed: int) -> Population:
    """Return a split of the rated texts."""
    vectors, labels = _texts()
    order = np.random.default_rng(seed).permutation(len(vectors))
    public, people, test = np.split(order, [TEXT_PUBLIC, TEXT_PUBLIC + TEXT_PEOPLE])
    return Population(
        vectors[public], vectors[people], labels[people], vectors[test], labels[test], 3
    )


def mnist(seed: int) -> Population:
    """Return a split of MNIST; a vector holds the 784 pixels."""
    found = load("mnist")
    vectors = found.train_images.reshape(60_000, -1) / 255.0
    order = np.random.default_rng(seed).permutation(60_000)
    public, people = order[:PUBLIC], order[PUBLIC:]
    labels = found.train_labels.astype(np.int64)
    test = found.test_images.reshape(10_000, -1) / 255.0
    test_labels = found.test_labels.astype(np.int64)
    return Population(vectors[public], vectors[people], labels[people], test, test_labels, CLASSES)


def small_digits(seed: int) -> Population:
    """Return a split of scikit-learn's digits; a vector holds the 64 pixels."""
    found = load("digits")
    images = np.concatenate([found.train_images, found.test_images])
    vectors = images.reshape(len(images), -1) / 16.0
    labels = np.concatenate([found.train_labels, found.test_labels]).astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(vectors))
    public, people, test = np.split(order, [400, 1_300])
    return Population(
        vectors[public], vectors[people], labels[people], vectors[test], labels[test], CLASSES
    )


@cache
def animals(seed: int) -> Population:
    """Return the images as animals and machines, people and test images evenly divided."""
    whole = images(seed)
    rng = np.random.default_rng([seed, 10])
    labels, test_labels = (np.isin(part, ANIMALS) * 1 for part in (whole.labels, whole.test_labels))
    people, test = _evenly(labels, rng), _evenly(test_labels, rng)
    return Population(
        whole.public, whole.people[people], labels[people], whole.test[test], test_labels[test], 2
    )


def _evenly(labels: Labels, rng: Rng) -> Labels:
    """Return as many indices of each class as the rarest has."""
    count = np.bincount(labels).min()
    chosen = [rng.permutation(np.flatnonzero(labels == j))[:count] for j in np.unique(labels)]
    return np.concatenate(chosen)


# ---- Public features


@dataclass(frozen=True, eq=False)
class Linear:
    """Features of a population, and what linear models of them share."""

    features: FeatureMap
    population: Population

    @cached_property
    def people(self) -> Vectors:
        """Features of the people."""
        return self.features.of(self.population.people)

    @cached_property
    def test(self) -> Vectors:
        """Features of the test set."""
        return self.features.of(self.population.test)

    @cached_property
    def public_moments(self) -> tuple[Vectors, Vectors]:
        """E[x xᵀ] and E[x] of the public vectors."""
        x = self.features.of(self.features.sample)
        return x.T @ x / len(x), x.mean(axis=0)

    @property
    def has_constant(self) -> bool:
        """Whether the last feature is constant."""
        return bool(np.ptp(self.test[:, -1]) < 1e-12)

    def accuracy(self, cross: Vectors, variance: float) -> float:
        """Return the accuracy of the posterior mean from E[a(y) xᵀ] with noise, as in offaxis."""
        second, mean = self.public_moments
        level = None if self.has_constant else np.zeros(len(cross))
        found = posterior_mean(cross, second, mean, variance, level)
        corners = simplex(self.population.classes)
        scores = self.test @ (corners @ found.slopes).T + corners @ found.offset
        return self.population.right(scores.argmax(axis=1))

    def accuracy_by_class(self, blocks: Vectors, variance: float) -> float:
        """Return the same from E[1{y = j} x], (k, d), with noise of a variance per coordinate."""
        k = self.population.classes
        return self.accuracy(simplex(k).T @ blocks, variance * k / (k - 1))

    @cached_property
    def cross(self) -> Vectors:
        """E[a(y) xᵀ] of all people."""
        corners = simplex(self.population.classes)[self.population.labels]
        return corners.T @ self.people / len(corners)


@dataclass(frozen=True, eq=False)
class Cells:
    """Public cells of a population."""

    features: FeatureMap
    population: Population

    @cached_property
    def people(self) -> Labels:
        """Cells of the people."""
        return self.features.cells_of(self.population.people)

    @cached_property
    def test(self) -> Labels:
        """Cells of the test set."""
        return self.features.cells_of(self.population.test)

    def accuracy(self, table: Vectors) -> float:
        """Return the accuracy if each cell is named after its largest entry."""
        return self.population.right(table.argmax(axis=1)[self.test])

    @cached_property
    def table(self) -> Vectors:
        """Shares of cells by classes among all people."""
        table = np.zeros((self.features.size, self.population.classes))
        np.add.at(table, (self.people, self.population.labels), 1 / len(self.people))
        return table


# ---- Limits


def least_error(dimension: int, epsilon: float) -> float:
    """Return n times the least error of unbiased estimates of D means (docs/proofs.md §25.6)."""
    tanh, sinh = math.tanh(epsilon / 2) ** 2, math.sinh(epsilon / 2) ** 2
    return max(dimension**2 / sinh, dimension / tanh)


def limit_of_linear(linear: Linear, epsilon: float, n: int, rng: Rng) -> float:
    """Return the accuracy from unbiased moments with the least noise that ε allows.

    Noise of variance v in every coordinate of E[a(y) xᵀ] needs the shares s(u_i) = λ_i/(n v) of the
    functions u_i, where the λ_i, their variances, have the sum E‖a(y)‖²‖x‖² = 1. The shares add up
    to sinh²(ε/2) at most, so v is at least 1/(n sinh²(ε/2)).
    """
    dimension = linear.cross.size
    variance = least_error(dimension, epsilon) / dimension**2 / n
    noise = math.sqrt(variance) * rng.standard_normal(linear.cross.shape)
    return linear.accuracy(linear.cross + noise, variance)


def limit_of_cells(
    cells: Cells, epsilon: float, n: int, rng: Rng, labels_public: bool = False
) -> float:
    """Return the accuracy from unbiased shares with the least noise, for equally common symbols.

    With public labels, the shares of cells are estimated among the n/k people of each class.
    """
    size, k = cells.table.shape
    symbols, rows, weight = (size, k, 1 / k) if labels_public else (size * k, 1, 1.0)
    total = least_error(symbols - 1, epsilon) / symbols * rows / n
    noise = rng.standard_normal((rows, symbols)) * weight * math.sqrt(total / (symbols - 1))
    noise -= noise.mean(axis=1, keepdims=True)
    return cells.accuracy(cells.table + (noise.T if labels_public else noise.reshape(size, k)))


def people_needed(randomizer: Any, epsilon: float) -> float:
    """Return the people that a randomizer needs, relative to the limit (docs/proofs.md §25.6)."""
    if isinstance(randomizer, PrivUnit2):
        dimension = randomizer.dim
        return (
            dimension * (randomizer.radius / randomizer.mean) ** 2 / least_error(dimension, epsilon)
        )
    low, high = sorted(randomizer.levels)
    size, named = randomizer.size, randomizer.named
    second = named * high**2 + (size - named) * low**2
    return float((size * second - 1) / least_error(size - 1, epsilon))


# ---- Rivals


def rivals(linear: Linear, cells: Cells | None, epsilon: float, n: int, rng: Rng) -> Scores:
    """Return the accuracies of all rivals with n people."""
    population = linear.population
    chosen = population.draw(n, rng)
    x, labels = linear.people[chosen], population.labels[chosen]
    scores = _naive(linear, x, labels, epsilon, rng)
    scores["ε/2 each, linear", ""] = _half_each(linear, x, labels, epsilon, rng)
    if cells is not None:
        symbols = cells.people[chosen]
        scores["ε/2 each, cells", ""] = _half_each_cells(cells, symbols, labels, epsilon, rng)
    scores["block per class", ""] = _blocks(linear, x, labels, epsilon, rng)
    scores |= _gradients(linear, x, labels, epsilon, rng)
    scores |= _clear_vectors(linear, x, labels, epsilon, rng)
    scores["central", ""] = _central(linear, x, labels, epsilon, rng)
    corners = simplex(population.classes)[labels]
    exact = linear.accuracy(corners.T @ x / n, 1 / (x.shape[1] * corners.shape[1] * n))
    scores["no privacy, linear", ""] = exact
    return scores


@lru_cache(maxsize=64)
def _privunit(dim: int, epsilon: float) -> PrivUnit2:
    return PrivUnit2(dim, 1.0, Fraction(epsilon), target="vector")


def _naive(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> Scores:
    """Train on decoded reports of the features and of the label, with ε/2 each."""
    k = linear.population.classes
    named = draw_observations(KaryResponse(k, Fraction(epsilon) / 2), labels, rng).argmax(axis=1)
    randomizer = _privunit(x.shape[1], epsilon / 2)
    decoded = randomizer.mean * draw_observations(randomizer, x, rng)
    return {
        ("naive training", f"C = {penalty:g}"): _trained(linear, decoded, named, penalty)
        for penalty in PENALTIES
    }


def _trained(linear: Linear, x: Vectors, labels: Labels, penalty: float) -> float:
    """Return the accuracy of logistic regression; without an intercept, classes count alike."""
    model = LogisticRegression(C=penalty, fit_intercept=linear.has_constant).fit(x, labels)
    return linear.population.right(model.predict(linear.test))


def _half_each(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> float:
    """Multiply unbiased reports of the vector and of the label, with ε/2 each."""
    v = draw_observations(_privunit(x.shape[1], epsilon / 2), x, rng)
    o = draw_observations(
        SubsetSelection(linear.population.classes, Fraction(epsilon) / 2), labels, rng
    )
    blocks, variance = _products(o, v)
    return linear.accuracy_by_class(blocks, variance)


def _products(o: Vectors, v: Vectors) -> tuple[Vectors, float]:
    """Return the means of o_i v_iᵀ, and the mean variance of their entries."""
    n = len(o)
    blocks = o.T @ v / n
    variance = ((o**2).T @ v**2 / n - blocks**2).mean() / n
    return blocks, float(variance)


def _half_each_cells(
    cells: Cells, symbols: Labels, labels: Labels, epsilon: float, rng: Rng
) -> float:
    """Multiply unbiased reports of the cell and of the label, with ε/2 each."""
    first = draw_observations(
        SubsetSelection(cells.features.size, Fraction(epsilon) / 2), symbols, rng
    )
    second = draw_observations(
        SubsetSelection(cells.population.classes, Fraction(epsilon) / 2), labels, rng
    )
    return cells.accuracy(first.T @ second)


def _blocks(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> float:
    """Report e_y ⊗ x in k d dimensions."""
    k, d = linear.population.classes, x.shape[1]
    randomizer = _privunit(k * d, epsilon)
    moments = (np.eye(k)[labels][:, :, None] * x[:, None]).reshape(len(x), k * d)
    observed = draw_observations(randomizer, moments, rng)
    variance = 1 / randomizer.mean**2 / (k * d) / len(x)
    return linear.accuracy_by_class(observed.mean(axis=0).reshape(k, d), variance)


def _gradients(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> Scores:
    """Descend along reported gradients of the logistic loss, (p − e_y) ⊗ x clipped to length one.

    Either other people report in every round, with ε, or all of them with ε/rounds. More rounds
    than these did worse. One round from zero is the report of :func:`_blocks`, centred.
    """
    scores: Scores = {}
    k, n = linear.population.classes, len(x)
    ways = [(rounds, True) for rounds in DISJOINT_ROUNDS]
    ways += [(rounds, False) for rounds in REPEATED_ROUNDS]
    for rounds, disjoint in ways:
        randomizer = _privunit(k * x.shape[1], epsilon if disjoint else epsilon / rounds)
        for rate in RATES:
            weights = np.zeros((k, x.shape[1]))
            average = np.zeros_like(weights)
            for step in range(rounds):
                part = np.arange(step, n, rounds) if disjoint else np.arange(n)
                mine, own = x[part], labels[part]
                errors = mine @ weights.T
                errors = np.exp(errors - errors.max(axis=1, keepdims=True))
                errors /= errors.sum(axis=1, keepdims=True)
                errors[np.arange(len(own)), own] -= 1
                gradients = (errors[:, :, None] * mine[:, None]).reshape(len(own), -1)
                reported = draw_observations(randomizer, gradients, rng).mean(axis=0)
                weights = weights - rate * reported.reshape(weights.shape)
                average += weights / rounds
            who = "other people in each" if disjoint else "ε/rounds"
            name = f"{rounds} rounds, {who}, rate {rate:g}"
            for suffix, model in (("", weights), (", averaged", average)):
                predicted = (linear.test @ model.T).argmax(axis=1)
                scores["gradients", name + suffix] = linear.population.right(predicted)
    return scores


def _clear_vectors(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> Scores:
    """Learn from vectors in the clear and labels by k-ary response: this protects labels only."""
    observed = draw_observations(
        KaryResponse(linear.population.classes, Fraction(epsilon)), labels, rng
    )
    blocks, variance = _products(observed, x)
    return {
        ("clear vectors", "moments"): linear.accuracy_by_class(blocks, variance),
        ("clear vectors", "logistic"): _trained(linear, x, observed.argmax(axis=1), 1.0),
    }


def _central(linear: Linear, x: Vectors, labels: Labels, epsilon: float, rng: Rng) -> float:
    """Add Gaussian noise to the sum of a(y) ⊗ x: a curator sees all pairs, and (ε, δ)."""
    cross = simplex(linear.population.classes)[labels].T @ x / len(x)
    scale = noise_scale(2.0, epsilon, DELTA) / len(x)
    return linear.accuracy(cross + scale * rng.standard_normal(cross.shape), scale**2)


LINES: Final = ("clear vectors", "central", "no privacy, linear")
"""What protects less than a local guarantee for vectors and labels: shown, not a rival."""
