"""Task-aware, linear: whiten, turn to the task's directions, share the budget, decode by MMSE.

After Cheng, Tang and Chinchali (2022), with everything learnt from *public* vectors. With C = K Kᵀ
the public covariance, h = K^{−1}(z − μ) is white. In the eigenbasis Q of (W K)ᵀ(W K), W the task
(or Ω̂ in place of WᵀW where the task bends), with eigenvalues λ_1 >= λ_2 >= …, the encoder sends
σ_i (Qᵀh)_i for the first k coordinates,

    σ_i² = √λ_i / Σ_{j<=k} √λ_j · (1 + k a) − a,   a = 8 r²/ε²,

k as large as all of them stay positive, so that Σσ_i² = 1. For ‖h‖₂ <= r, the public percentile,
‖σ Qᵀh‖₁ <= ‖σ‖₂ ‖h‖₂ <= r: Laplace noise on the ℓ1 ball of radius r, of variance a. The decoder is
the linear one of least mean squared error under the public moments, so it shrinks towards μ.
The reshaping changes nothing here: whitening undoes it.
"""

from __future__ import annotations

import numpy as np

from offaxis.decoding import ShrinkageDecoder
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry.spectrum import spectrum
from offaxis.randomizers import make
from offaxis.recipes.ingredients import Ingredients, Parts, Recipe
from offaxis.vectors import Vectors


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
    # The last coordinate is the smallest: k is feasible as long as it stays positive.
    smallest = roots / np.cumsum(roots) * (1 + count * a) - a
    k = int(count[smallest > 0][-1])
    share: Vectors = roots[:k] / roots[:k].sum() * (1 + k * a) - a
    return share


def _prepare(given: Ingredients) -> Parts:
    if given.gram is None:
        raise InvalidInput("task-aware needs the model: pass it as the first argument")
    axes = spectrum(given.frame.covariance_of(given.covariance))
    kept = axes.values > axes.values[0] * 1e-12
    # K = V √c along the directions in which the public vectors vary at all.
    spread = axes.basis[:, kept] * np.sqrt(axes.values[kept])
    whitening = (axes.basis[:, kept] / np.sqrt(axes.values[kept])).T
    white = given.frame.then(whitening, spread, given.frame.mean_of(given.mean))
    radius = given.radius(white.encoder, 2)
    looks = spectrum(white.gram_of(given.gram))
    sigma = np.sqrt(shares(looks.values, 8 * radius**2 / float(given.epsilon) ** 2))
    directions = looks.basis[:, : sigma.size]
    randomizer = make("laplace", dim=sigma.size, radius=radius, epsilon=given.epsilon)
    variance = randomizer.expected_squared_error() / sigma.size
    assert white.forward is not None
    encoder = AffineEncoder((directions * sigma).T @ white.forward, white.centre)
    gain = sigma / (sigma**2 + variance)
    decoder = ShrinkageDecoder(white.lift(directions * gain), white.centre)
    return Parts(encoder, randomizer, decoder, settings={"percentile": float(given.percentile)})


TASK_AWARE = Recipe(_prepare, 1, needs_task=True)
