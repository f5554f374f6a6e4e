"""Plain NumPy, one vector or one batch at a time; its noise protects nobody."""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.maps import LinearParts, Noise
from offaxis.geometry import Layers
from offaxis.geometry.layers import POINTWISE
from offaxis.vectors import Vectors


def add_noise(W: Vectors, noise: Noise, rng: np.random.Generator) -> Vectors:
    """Add noise in floating point."""
    draw = rng.laplace if noise.order == 1 else rng.normal
    return W + draw(scale=noise.scale, size=W.shape)


def simulate(parts: LinearParts, Z: Vectors, rng: np.random.Generator) -> Vectors:
    """Pass a batch through a release."""
    W = (Z - parts.centre) @ parts.encode.T
    norms = np.linalg.norm(W, ord=parts.noise.order, axis=1, keepdims=True)
    W *= np.minimum(1.0, parts.noise.radius / np.maximum(norms, 1e-300))
    decoded: Vectors = add_noise(W, parts.noise, rng) @ parts.decode.T + parts.offset
    return decoded


def simulate_one_by_one(parts: LinearParts, Z: Vectors, rng: np.random.Generator) -> Vectors:
    """Pass vectors through a release, one at a time."""
    out = np.empty((len(Z), parts.offset.size))
    for i, z in enumerate(Z):
        w = parts.encode @ (z - parts.centre)
        norm = float(np.linalg.norm(w, ord=parts.noise.order))
        w *= min(1.0, parts.noise.radius / max(norm, 1e-300))
        out[i] = parts.decode @ add_noise(w, parts.noise, rng) + parts.offset
    return out


def gram_one_by_one(model: Layers, Z: Vectors) -> Vectors:
    """Return Σ JᵀJ by the chain rule, one vector at a time."""
    function, slope = POINTWISE[model.activation]
    total = np.zeros((Z.shape[1], Z.shape[1]))
    for z in Z:
        jacobian, hidden = np.eye(z.size), z
        for w, b in zip(model.weights[:-1], model.biases[:-1], strict=True):
            before = w @ hidden + b
            jacobian = slope(before)[:, None] * (w @ jacobian)
            hidden = function(before)
        jacobian = model.weights[-1] @ jacobian
        total += jacobian.T @ jacobian
    return total
