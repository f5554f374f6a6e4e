"""Mechanisms around an additive or direct randomizer: the plain one, and those of the literature.

In each, published public maps surround an exact randomizer of this package, and vectors are clipped
to its ball, so the guarantee is the randomizer's even where a published form had none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

import numpy as np
from scipy.linalg import hadamard

from offaxis import randomizers
from offaxis.decoding import ShrinkageDecoder
from offaxis.decoding.decoders import back_from
from offaxis.encoding import AffineEncoder, BoxEncoder, Encoder, Frame
from offaxis.encoding.radius import check_percentile
from offaxis.errors import InvalidInput
from offaxis.geometry.spectrum import spectrum
from offaxis.mechanisms.base import Mechanism, Parts, PublicInputs
from offaxis.privacy.guarantee import exact_delta
from offaxis.randomizers import Randomizer, custom, make
from offaxis.randomizers.base import LARGEST_DIM
from offaxis.randomizers.gaussian import noise_scale
from offaxis.vectors import Vectors, row_norms


def randomizer_behind(encoder: Encoder, name: str, inputs: PublicInputs) -> Randomizer:
    """Return the randomizer whose radius is the percentile of the encoded public norms."""
    size = {} if inputs.size is None else {"projected": inputs.size}
    return randomizers.make(
        name,
        dim=encoder.output_dim,
        radius=inputs.radius(encoder, randomizers.norm(name)),
        epsilon=inputs.epsilon,
        delta=inputs.delta,
        **size,
    )


def direct(name: str) -> Mechanism:
    """Return the mechanism that applies a named randomizer in the coordinates of the frame."""
    return Mechanism(
        name,
        lambda inputs: _around(inputs, lambda encoder: randomizer_behind(encoder, name, inputs)),
        randomizers.norm(name),
        needs_delta=randomizers.takes(name, "delta"),
        size="projected coordinates" if randomizers.takes(name, "projected") else "",
    )


def mechanism_of(cls: type[Any], **settings: Any) -> Mechanism:
    """Return the mechanism that applies a randomizer of your own in the coordinates of the frame.

    Parameters
    ----------
    cls : class
        A subclass of :class:`offaxis.randomizers.CustomRandomizer`.
    settings
        Its own fields, besides ``dim``, ``radius`` and ``epsilon``. ``delta`` is given to ``fit``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from offaxis.mechanisms import mechanism_of
    >>> from offaxis.randomizers import CustomRandomizer
    >>> @dataclass(frozen=True)
    ... class Constant(CustomRandomizer):
    ...     kind = "acme.constant"
    ...     value: float = 0.0
    ...
    ...     def simulate(self, W, rng):
    ...         return np.full_like(W, self.value)
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((100, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none",
    ...     mechanism=mechanism_of(Constant, value=2.0))
    >>> release.randomizer.value
    2.0
    """
    custom.check_class(cls)
    own = {field.name for field in fields(cls)}
    taken = {"dim", "radius", "epsilon", "delta"}
    unknown = sorted(set(settings) - (own - taken))
    if unknown:
        fix = f"it has: {', '.join(sorted(own - taken)) or 'none'}"
        if unknown[0] in taken:
            fix = f"fit sets it: leave out {unknown[0]}"
        elif unknown[0] in getattr(cls, "__annotations__", {}):
            fix = "decorate the class with @dataclass(frozen=True)"
        raise InvalidInput(f"{cls.__name__} has no setting {unknown[0]!r}; {fix}")

    def build(inputs: PublicInputs, encoder: Encoder) -> Randomizer:
        given: dict[str, Any] = {"epsilon": inputs.epsilon, **settings}
        if inputs.delta is not None:
            given["delta"] = exact_delta(inputs.delta)
        radius = inputs.radius(encoder, cls.order)
        return randomizers.built(cls, {"dim": encoder.output_dim, "radius": radius, **given})

    return Mechanism(
        cls.kind,
        lambda inputs: _around(inputs, lambda encoder: build(inputs, encoder)),
        cls.order,
        needs_delta="delta" in own,
    )


def _around(inputs: PublicInputs, build: Callable[[Encoder], Randomizer]) -> Parts:
    encoder = inputs.frame.encoder
    settings = {"percentile": float(inputs.percentile)}
    return Parts(encoder, build(encoder), back_from(inputs.frame), settings=settings)


# ---- Coordinate-wise noise


def half_widths(inputs: PublicInputs) -> Vectors:
    """Return h: the public percentile of every coordinate's magnitude, (r,)."""
    percentile = check_percentile(inputs.percentile)
    magnitudes = np.abs(inputs.frame.encoder.encode(inputs.sample))
    widths: Vectors = np.quantile(magnitudes, percentile / 100, axis=0)
    return widths


def coordinatewise(noise: Literal["laplace", "gaussian"]) -> Mechanism:
    """Return the mechanism with coordinate-wise noise: each coordinate gets a share of the budget.

    After Muthukrishnan and Kalyani (2025), with Δ_i = 2 h_i, h_i the public percentile of |w_i|:
    Laplace noise of scale β_i = Δ_i^{1/3} Σ_j Δ_j^{2/3} / ε, or Gaussian noise of deviation
    σ_i = σ(1) √(Δ_i Σ_j Δ_j), minimises the summed error of a vector in the box ``|w_i| <= h_i``.

    Dividing w_i by Δ_i^{1/3} (by √Δ_i) makes the noise the same in every coordinate, and the box a
    part of the ℓ1 ball of radius Σ_i h_i / Δ_i^{1/3} (of the ℓ2 ball of radius √(Σ Δ_i) / 2). So
    the plain randomizer of that ball gives exactly this noise, and its guarantee: here vectors
    *are* clipped, which the published form leaves out.
    """
    order: Literal[1, 2] = 1 if noise == "laplace" else 2

    def prepare(inputs: PublicInputs) -> Parts:
        widths = half_widths(inputs)
        used = np.flatnonzero(widths > 0)  # the others are constant and need no noise
        if not used.size:
            raise InvalidInput(
                f"the {inputs.percentile:g}th percentile of every coordinate is zero; "
                f"use a higher percentile or public vectors that differ from each other"
            )
        unit = (2 * widths[used]) ** (1 / 3 if order == 1 else 1 / 2)
        axes = np.eye(inputs.frame.dim)[:, used]
        frame = inputs.frame.then((axes / unit).T, axes * unit, np.zeros(inputs.frame.dim))
        assert frame.forward is not None
        limits = widths[used] / unit
        randomizer = make(
            noise,
            dim=used.size,
            radius=float(limits.sum() if order == 1 else np.linalg.norm(limits)),
            epsilon=inputs.epsilon,
            delta=inputs.delta,
        )
        encoder = BoxEncoder(frame.forward, frame.centre, limits)
        settings = {"percentile": float(inputs.percentile)}
        return Parts(encoder, randomizer, back_from(frame), settings=settings)

    return Mechanism(f"coordinatewise-{noise}", prepare, order, needs_delta=noise == "gaussian")


# ---- Instance-optimal

_LARGEST: int = min(LARGEST_DIM, 1 << 13)
"""The rotation is a dense matrix: more coordinates would take gigabytes."""


def rotation(dim: int, seed: int) -> Vectors:
    """Return H D / √d, (d, dim): a Hadamard matrix with random signs, d a power of two."""
    size = 1 << (dim - 1).bit_length()
    if size > _LARGEST:
        raise InvalidInput(f"instance-optimal takes at most {_LARGEST} coordinates, got {dim}")
    signs = 2.0 * np.random.default_rng(seed).integers(0, 2, dim) - 1
    matrix: Vectors = hadamard(size, dtype=np.float64)[:, :dim] * (signs / math.sqrt(size))
    return matrix


def kept_share(inputs: PublicInputs, dim: int) -> float:
    """Return the share of public vectors in the ball."""
    noise = noise_scale(2.0, float(inputs.epsilon), float(exact_delta(inputs.delta)))
    return float(np.clip(1 - noise * math.sqrt(dim / inputs.identity.count), 0.0, 1.0))


def _prepare_instance_optimal(inputs: PublicInputs) -> Parts:
    """Return a rotation that flattens every vector, clipping around the median, Gaussian noise.

    After Huang, Liang and Yi (2021). A Hadamard matrix with random signs spreads every vector over
    all coordinates, which are centred at the public median. The radius is the public quantile
    1 − σ √(r/n), where σ is the noise on the unit ball, r the dimension and n the number of public
    vectors: clipping then loses no more than the noise hides.
    """
    turn = rotation(inputs.frame.dim, inputs.seed)
    rotated = inputs.frame.encoder.encode(inputs.sample) @ turn.T
    median = np.median(rotated, axis=0)
    # Padding adds coordinates that no vector reaches; that part of the median is dropped.
    frame = inputs.frame.then(turn, turn.T, turn.T @ median)
    encoder = frame.encoder
    share = kept_share(inputs, frame.dim)
    radius = float(np.quantile(row_norms(encoder.encode(inputs.sample), 2), share))
    if radius <= 0:
        raise InvalidInput(
            "the public vectors are too close to their median for an instance-optimal release; "
            "use more public vectors, or a larger epsilon"
        )
    randomizer = make(
        "gaussian", dim=frame.dim, radius=radius, epsilon=inputs.epsilon, delta=inputs.delta
    )
    return Parts(encoder, randomizer, back_from(frame), settings={"kept_share": share})


INSTANCE_OPTIMAL = Mechanism(
    "instance-optimal", _prepare_instance_optimal, 2, needs_delta=True, uses_percentile=False
)


# ---- PLAN


def scaled_frame(inputs: PublicInputs) -> Frame:
    """Return the coordinates (z − μ)/s; constant ones are left out."""
    variance: Vectors = np.diag(inputs.frame.covariance_of(inputs.covariance)).copy()
    used = np.flatnonzero(variance > 0)
    if not used.size:
        raise InvalidInput("the public vectors do not vary along any coordinate")
    scale = variance[used] ** 0.25
    axes = np.eye(inputs.frame.dim)[:, used]
    return inputs.frame.then((axes / scale).T, axes * scale, inputs.frame.mean_of(inputs.mean))


def _prepare_plan(inputs: PublicInputs) -> Parts:
    """Return Gaussian noise on coordinates divided by a power of their public deviation.

    After Aumüller, Lebeda, Nelson and Pagh (2024), for the mean squared error (p = 2):
    w = (z − μ)/s with s_i = var_i^{1/4}. The radius is a public percentile. The noise has the exact
    Gaussian calibration; the published comparison used one that promises too much at large budgets.
    """
    frame = scaled_frame(inputs)
    encoder = frame.encoder
    randomizer = make(
        "gaussian",
        dim=frame.dim,
        radius=inputs.radius(encoder, 2),
        epsilon=inputs.epsilon,
        delta=inputs.delta,
    )
    settings = {"percentile": float(inputs.percentile)}
    return Parts(encoder, randomizer, back_from(frame), settings=settings)


PLAN = Mechanism("plan", _prepare_plan, 2, needs_delta=True)


# ---- Task-aware


def shares(eigenvalues: Vectors, a: float) -> Vectors:
    """Return σ² of the coordinates that are sent, the first ones; they sum to one.

    Parameters
    ----------
    eigenvalues : (r,) array
        λ, descending, not all zero.
    a : float
        Variance of the noise.
    """
    roots = np.sqrt(np.maximum(eigenvalues, 0.0))
    count = np.arange(1, roots.size + 1)
    # The last coordinate has the smallest share: k is feasible as long as that stays positive.
    smallest = roots / np.cumsum(roots) * (1 + count * a) - a
    k = int(count[smallest > 0][-1])
    share: Vectors = roots[:k] / roots[:k].sum() * (1 + k * a) - a
    return share


def _prepare_task_aware(inputs: PublicInputs) -> Parts:
    """Return the linear task-aware mechanism: whiten, rotate, share the budget, decode by MMSE.

    After Cheng, Tang and Chinchali (2022), with everything learnt from *public* vectors. With
    C = K Kᵀ the public covariance, h = K^{−1}(z − μ) is white. In the eigenbasis Q of (W K)ᵀ(W K),
    W the task (or Ω̂ in place of WᵀW for a nonlinear task), with eigenvalues λ_1 >= λ_2 >= …, the
    encoder sends σ_i (Qᵀh)_i for the first k coordinates,

        σ_i² = √λ_i / Σ_{j<=k} √λ_j · (1 + k a) − a,   a = 8 r²/ε²,

    with k as large as all of them stay positive, so that Σσ_i² = 1. For ‖h‖₂ <= r, the public
    percentile, ‖σ Qᵀh‖₁ <= ‖σ‖₂ ‖h‖₂ <= r: Laplace noise on the ℓ1 ball of radius r, of variance a.
    The decoder is the linear one of least mean squared error under the public moments, so it
    shrinks towards μ. A reshaping has no effect here, because whitening undoes it.
    """
    if inputs.gram is None:
        raise InvalidInput("task-aware needs the model: pass it as the first argument")
    axes = spectrum(inputs.frame.covariance_of(inputs.covariance))
    kept = axes.values > axes.values[0] * 1e-12
    # K = V √c along the directions in which the public vectors vary.
    spread = axes.basis[:, kept] * np.sqrt(axes.values[kept])
    whitening = (axes.basis[:, kept] / np.sqrt(axes.values[kept])).T
    white = inputs.frame.then(whitening, spread, inputs.frame.mean_of(inputs.mean))
    radius = inputs.radius(white.encoder, 2)
    task = spectrum(white.gram_of(inputs.gram))
    sigma = np.sqrt(shares(task.values, 8 * radius**2 / float(inputs.epsilon) ** 2))
    directions = task.basis[:, : sigma.size]
    randomizer = make("laplace", dim=sigma.size, radius=radius, epsilon=inputs.epsilon)
    variance = randomizer.expected_squared_error() / sigma.size
    assert white.forward is not None
    encoder = AffineEncoder((directions * sigma).T @ white.forward, white.centre)
    gain = sigma / (sigma**2 + variance)
    decoder = ShrinkageDecoder(white.lift(directions * gain), white.centre)
    return Parts(encoder, randomizer, decoder, settings={"percentile": float(inputs.percentile)})


TASK_AWARE = Mechanism("task-aware", _prepare_task_aware, 1, needs_task=True, reshaping="none")
