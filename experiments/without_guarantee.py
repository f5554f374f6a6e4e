"""Published mechanisms without a valid local guarantee. For studies only.

Nothing here is a randomizer or a release: it declares no guarantee, makes no reports, and
:class:`~offaxis.release.Release` rejects it. Wherever its figures are shown they carry ``LABEL``.

- *Coordinate-wise noise without bounding*: the noise is scaled to percentiles of the coordinates,
  but vectors are not clipped to them, so the privacy loss of two distant vectors is unbounded.
- *PLAN with the classical calibration* σ = Δ √(2 ln(1.25/δ)) / ε. Its proof holds for ε <= 1. By
  the exact profile its noise suffices, and is more than needed, up to ε ≈ 8.4 (δ = 1e-5); beyond,
  its true ε is larger than it claims. Of the published budgets that is ε = 10 alone.
- *The task-aware mechanism of Cheng et al. (2022) for images*
  (:mod:`experiments.models.task_aware`): the noise is √2 times too small, and its scale comes from
  the private images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, NoReturn

import numpy as np
from scipy.optimize import brentq

from offaxis.decoding.decoders import back_from
from offaxis.encoding import Frame
from offaxis.errors import InvalidInput
from offaxis.mechanisms import find_mechanism
from offaxis.mechanisms.base import gather
from offaxis.mechanisms.literature import half_widths, scaled_frame
from offaxis.privacy.guarantee import exact_delta, exact_epsilon
from offaxis.randomizers.base import Ball
from offaxis.randomizers.gaussian import log_delta, noise_scale
from offaxis.vectors import Vectors, as_batch

__all__ = ["classical_plan", "task_aware_images", "unbounded_coordinatewise"]

LABEL: Final = "no guarantee"


@dataclass(frozen=True, eq=False)
class Unprotected:
    """Noise without a guarantee; it can be simulated and nothing else.

    Attributes
    ----------
    name : str
    why : str
        Why it has no guarantee.
    frame : Frame
        The coordinates in which the noise is added.
    noise : {"laplace", "gaussian"}
    scales : (r,) array
        Scale or standard deviation of every coordinate's noise.
    radius : float, optional
        Radius of the ℓ2 ball that vectors are clipped to; None if they are not clipped.
    """

    name: str
    why: str
    frame: Frame
    noise: Literal["laplace", "gaussian"]
    scales: Vectors
    radius: float | None = None

    @property
    def label(self) -> str:
        """The mark that its figures carry."""
        return LABEL

    @property
    def guarantee(self) -> NoReturn:
        """Always an error: no guarantee exists."""
        raise InvalidInput(f"{self.name} has no guarantee: {self.why}; it cannot be released")

    domain = guarantee

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors."""
        return int(self.frame.centre.size)

    def simulate(self, vectors: Any, rng: np.random.Generator) -> Vectors:
        """Return vectors (n, m) as the published comparison would have decoded them."""
        batch, _ = as_batch(vectors, self.input_dim)
        encoded = self.frame.encoder.encode(batch)
        if self.radius is not None:
            encoded = Ball(self.frame.dim, self.radius, 2).project(encoded)
        if self.noise == "laplace":
            noise = rng.laplace(size=encoded.shape)
        else:
            noise = rng.standard_normal(encoded.shape)
        return back_from(self.frame).decode(encoded + noise * self.scales)


def unbounded_coordinatewise(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    noise: Literal["laplace", "gaussian"] = "laplace",
    delta: Any = None,
    reshaping: Any = "jacobian",
    frame: Frame | None = None,
    **settings: Any,
) -> Unprotected:
    """Return coordinate-wise noise as published: scaled to percentiles, without clipping to them.

    ``frame`` replaces the coordinates of the reshaping. Other arguments are those of
    :func:`offaxis.fit`.

    Examples
    --------
    >>> from experiments.without_guarantee import unbounded_coordinatewise
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> made = unbounded_coordinatewise(np.eye(2, 3), public, epsilon=1)
    >>> made.label
    'no guarantee'
    >>> made.guarantee
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: coordinate-wise laplace without bounding has no guarantee: ...
    """
    mechanism = find_mechanism(f"coordinatewise-{noise}")
    inputs, _ = gather(
        model, public, mechanism, epsilon=epsilon, delta=delta, reshaping=reshaping, **settings
    )
    if frame is not None:
        inputs = replace(inputs, frame=frame)
    spans = 2 * half_widths(inputs)
    budget = float(inputs.epsilon)
    if noise == "laplace":
        scales = np.cbrt(spans) * (np.cbrt(spans) ** 2).sum() / budget
    else:
        unit = noise_scale(1.0, budget, float(exact_delta(delta)))
        scales = unit * np.sqrt(spans * spans.sum())
    why = "vectors are not clipped to the range that the noise is scaled to"
    return Unprotected(
        f"coordinate-wise {noise} without bounding", why, inputs.frame, noise, scales
    )


def classical_plan(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    delta: Any,
    reshaping: Any = "none",
    **settings: Any,
) -> Unprotected:
    """Return PLAN as published, with the classical Gaussian calibration.

    Other arguments are those of :func:`offaxis.fit`.

    Examples
    --------
    >>> from experiments.without_guarantee import classical_plan
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> classical_plan(np.eye(2, 3), public, epsilon=10, delta=1e-5).why
    'the classical calibration gives ε = 10.39, not 10'
    """
    inputs, _ = gather(
        model,
        public,
        find_mechanism("plan"),
        epsilon=epsilon,
        delta=delta,
        reshaping=reshaping,
        **settings,
    )
    frame = scaled_frame(inputs)
    radius = inputs.radius(frame.encoder, 2)
    sigma = classical_noise_scale(2 * radius, epsilon, delta)
    true = classical_true_epsilon(epsilon, delta)
    why = f"the classical calibration gives ε = {true:.4g}, not {float(inputs.epsilon):.4g}"
    if true <= inputs.epsilon:
        why = "its proof does not reach this budget, although the exact profile does"
    return Unprotected(
        "PLAN, classical calibration", why, frame, "gaussian", np.full(frame.dim, sigma), radius
    )


TASK_AWARE_IMAGES: Final = "task-aware images"
"""The kind of the method below."""


def task_aware_images(epsilons: Sequence[float], seeds: int) -> dict[float, tuple[float, ...]]:
    """Return the accuracies of the task-aware mechanism on MNIST images, one per seed.

    Each is the mean over the trained starts on the first 1,000 test images. Needs torch.
    """
    scores = _task_aware_scores(seeds)
    return {epsilon: scores[epsilon] for epsilon in epsilons}


@cache
def _task_aware_scores(seeds: int) -> dict[float, tuple[float, ...]]:
    from experiments.data import load
    from experiments.models import load_model
    from experiments.models.task_aware import task_aware_scores
    from experiments.models.weights import TASK_AWARE

    reader, pairs = load_model(TASK_AWARE)
    images = load("mnist")
    scores = task_aware_scores(reader, pairs, images.test_images, images.test_labels, seeds)
    budgets = pairs.epsilons.flatten().tolist()
    return {
        epsilon: tuple(map(float, scores[[e == epsilon for e in budgets]].mean(axis=0)))
        for epsilon in dict.fromkeys(budgets)
    }


def classical_noise_scale(sensitivity: float, epsilon: Any, delta: Any) -> float:
    """Return Δ √(2 ln(1.25/δ)) / ε."""
    budget, chance = float(exact_epsilon(epsilon)), float(exact_delta(delta))
    return sensitivity * math.sqrt(2 * math.log(1.25 / chance)) / budget


def classical_true_epsilon(epsilon: Any, delta: Any) -> float:
    """Return the true ε of the classical calibration at δ, by the exact privacy profile."""
    h = 1 / classical_noise_scale(1.0, epsilon, delta)
    target = math.log(float(exact_delta(delta)))

    def excess(true: float) -> float:
        return log_delta(h, true) - target

    low, high = 1e-9, 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, low, high, xtol=1e-12)) if excess(low) > 0 else 0.0
