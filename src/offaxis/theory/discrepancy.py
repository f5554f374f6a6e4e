"""How much the noise risk changes when people's vectors are not like the public ones.

The map was fitted to Ω̂ of public vectors. On other vectors, with Ω, the noise risk differs by

    |σ² Tr(Bᵀ(Ω − Ω̂)B)|  ≤  σ² ‖Ω − Ω̂‖_op Tr(BᵀB)          (Tr BᵀB = Tr Λ after reshaping)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.release import Release
from offaxis.theory.conditions import AdditiveNoise
from offaxis.theory.risk import noise_risk
from offaxis.vectors import Vectors, as_array, check_finite


@dataclass(frozen=True)
class Discrepancy:
    """The gap between the noise risks on two sets of vectors.

    Attributes
    ----------
    exact : float
        |σ² Tr(Bᵀ(Ω − Ω̂)B)|, the gap itself.
    bound : float
        σ² ‖Ω − Ω̂‖_op Tr(BᵀB), for who knows only how far apart the Grams are.
    operator_norm : float
        ‖Ω − Ω̂‖_op.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import Discrepancy, discrepancy, mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> gram = mean_gram(task, public)
    >>> discrepancy(release, gram, gram) == Discrepancy(exact=0.0, bound=0.0, operator_norm=0.0)
    True
    """

    exact: float
    bound: float
    operator_norm: float


def _gram(value: Any, dim: int, name: str) -> Vectors:
    gram = as_array(value, name)
    check_finite(gram, name)
    if gram.shape != (dim, dim) or not np.allclose(gram, gram.T, rtol=1e-9, atol=0):
        raise InvalidInput(f"{name} must be symmetric ({dim}, {dim}), got shape {gram.shape}")
    return gram


def discrepancy(release: Release, public_gram: Any, private_gram: Any) -> Discrepancy:
    """Return how far the noise risk on private vectors is from the one on public vectors.

    Holds for additive noise of mean zero between affine maps. It is about noise only: clipping may
    differ as well. The bound pays for the stretch of all directions, those too in which the Grams
    agree, so it is loose whenever lambda_max is large. Nothing here is private: a Gram of people's
    vectors must not be computed from vectors that are to stay secret.

    Parameters
    ----------
    public_gram, private_gram : (m, m) arrays
        Ω̂ and Ω, as :func:`~offaxis.theory.mean_gram` gives them.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import discrepancy, mean_gram
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> gram = mean_gram(task, public)
    >>> gap = discrepancy(release, gram, 1.1 * gram)  # people's model answers a little steeper
    >>> 0 < gap.exact < gap.bound, round(gap.operator_norm, 2)
    (True, 1.06)
    """
    noise = AdditiveNoise.of(release)
    dim = release.input_dim
    gap = _gram(private_gram, dim, "private_gram") - _gram(public_gram, dim, "public_gram")
    norm = float(np.linalg.norm(gap, 2))
    return Discrepancy(
        exact=abs(noise_risk(release, gap)),
        bound=norm * noise.variance * float(np.sum(noise.matrix**2)),
        operator_norm=norm,
    )


def sampling_rate(dim: int, count: int) -> float:
    """Return √(log m / N), the rate at which Ω̂ of N independent vectors tends to its mean.

    Holds for independent vectors of one law and a bounded Jacobian. A rate without its constant:
    four times the vectors halve it.

    Examples
    --------
    >>> from offaxis.theory import sampling_rate
    >>> sampling_rate(64, 1000) / sampling_rate(64, 4000)
    2.0
    """
    return math.sqrt(math.log(dim) / count)
