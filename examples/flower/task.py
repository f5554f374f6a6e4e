"""The task: softmax regression on scikit-learn's digits, distributed over clients.

Public: 297 digits (for the sixteen directions of the features, and to fit the local releases) and
300 for testing. Private: 1,200 digits, the same number on every client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

DIRECTIONS = 16
CLASSES = 10
PUBLIC, TEST, PRIVATE = slice(0, 297), slice(297, 597), slice(597, 1797)
LOCAL_STEPS, LOCAL_RATE = 20, 4.0
BIAS = 0.3


@dataclass(frozen=True)
class Digits:
    """Features (n, 17) and one-hot targets (n, 10), in one fixed shuffled order."""

    features: np.ndarray
    targets: np.ndarray

    @classmethod
    def load(cls) -> Digits:
        """Load the digits and project them on public principal directions."""
        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))
        images, labels = images[order] / 16, labels[order]
        centre = images[PUBLIC].mean(axis=0)
        directions = np.linalg.svd(images[PUBLIC] - centre, full_matrices=False)[2][:DIRECTIONS]
        projected = (images - centre) @ directions.T
        projected /= np.sqrt((projected[PUBLIC] ** 2).sum(axis=1).mean())
        features = np.column_stack([projected, np.full(len(projected), BIAS)])
        return cls(features, np.eye(CLASSES)[labels])

    def part(self, rows: slice | np.ndarray) -> Digits:
        """Return these rows."""
        return Digits(self.features[rows], self.targets[rows])

    def client(self, place: int, clients: int) -> Digits:
        """Return the digits of one client out of this many."""
        return self.part(np.array_split(np.arange(PRIVATE.start, PRIVATE.stop), clients)[place])

    def accuracy(self, weights: np.ndarray) -> float:
        """Return the accuracy of the model."""
        correct = (self.features @ weights).argmax(axis=1) == self.targets.argmax(axis=1)
        return float(correct.mean())

    def gradients(self, weights: np.ndarray) -> np.ndarray:
        """Return the gradient of the loss at every digit, (n, 170)."""
        scores = np.exp(self.features @ weights)
        errors = scores / scores.sum(axis=1, keepdims=True) - self.targets
        return (self.features[:, :, None] * errors[:, None, :]).reshape(len(errors), -1)

    def trained(self, weights: np.ndarray) -> np.ndarray:
        """Return the model after a few steps on these digits."""
        for _ in range(LOCAL_STEPS):
            step = self.gradients(weights).mean(axis=0).reshape(weights.shape)
            weights = weights - LOCAL_RATE * step
        return weights


def start() -> np.ndarray:
    """Return the model before training."""
    return np.zeros((DIRECTIONS + 1, CLASSES))


def public_updates(digits: Digits, samples: int, groups: int = 60) -> np.ndarray:
    """Return first-round updates of clients with this many public digits, (groups, 170)."""
    rng = np.random.default_rng(0)
    chosen = [rng.choice(PUBLIC.stop, size=samples, replace=False) for _ in range(groups)]
    parts = [digits.part(rows) for rows in chosen]
    return np.array([(part.trained(start()) - start()).reshape(-1) for part in parts])
