"""The heart of the method: rotate the space to the task's directions and rescale them.

L = U Λ^{1/2}: small λ where the task looks, large λ where it does not. Encoding applies L^{−1}, the
decoder L, so isotropic noise in between comes out small along the task's directions and large
across them. Both maps are public; the guarantee never depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from offaxis.encoding.frame import Frame
from offaxis.errors import InvalidInput
from offaxis.geometry.allocation import gap_rank, water_filling
from offaxis.geometry.jacobian import Geometry
from offaxis.geometry.spectrum import spectrum
from offaxis.vectors import Vectors

Rank = Literal["capped", "gap"]


@dataclass(frozen=True)
class Reshaping:
    """A fitted map.

    Attributes
    ----------
    basis : (m, r) array
        Orthonormal directions, the task's favourite first.
    stretch : (r,) array
        λ: how far noise is stretched (as a variance) along each.
    centre : (m,) array
        μ.
    sensitivities : (r,) array
        γ: how much the task looks along each.

    Examples
    --------
    >>> from offaxis.encoding import Reshaping, reshape
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.array([[0.0, 2.0, 0.0]])), PublicVectors(public))
    >>> fitted: Reshaping = reshape(geometry, gauge=1, lambda_max=100)
    >>> fitted.basis[:, 0], fitted.stretch.round(2)  # little noise along what the task reads
    (array([0., 1., 0.]), array([  0.13, 100.  , 100.  ]))
    >>> fitted.frame.encoder.output_dim
    3
    >>> fitted.along(np.eye(3), geometry.gram).sensitivities
    array([0., 4., 0.])
    """

    basis: Vectors
    stretch: Vectors
    centre: Vectors
    sensitivities: Vectors

    @property
    def frame(self) -> Frame:
        """Return w = Λ^{−1/2} Uᵀ (z − μ), and z = U Λ^{1/2} w + μ."""
        root = np.sqrt(self.stretch)
        return Frame(self.centre, (self.basis / root).T, self.basis * root)

    def along(self, basis: Vectors, gram: Vectors) -> Reshaping:
        """Return the same stretches, in the same order, along other orthonormal directions.

        Parameters
        ----------
        basis : (m, r) array
            The directions; column i gets stretch i.
        gram : (m, m) array
            Ω̂, which says how much the task looks along them.
        """
        sensitivities = np.einsum("ij,ij->j", basis, gram @ basis)
        return replace(self, basis=basis, sensitivities=sensitivities)


def reshape(
    geometry: Geometry, *, gauge: float, lambda_max: float = 1000.0, rank: Rank = "capped"
) -> Reshaping:
    """Fit the map to a task's geometry.

    Parameters
    ----------
    geometry : Geometry
    gauge : float
        p of the volume constraint; match it to the randomizer's norm, or 1 for the paper's setting.
    lambda_max : float
        Largest stretch.
    rank : {"capped", "gap"}
        Water-filling under the cap (default), or the fixed-threshold rule of the paper's code.

    Examples
    --------
    >>> from offaxis.encoding import reshape
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.diag([2.0, 1.0, 0.0])), PublicVectors(public))
    >>> reshape(geometry, gauge=2, lambda_max=100).stretch.round(2)
    array([  0.5,   1. , 100. ])
    """
    rules = {"capped": water_filling, "gap": gap_rank}
    if rank not in rules:
        raise InvalidInput(f"rank must be 'capped' or 'gap', got rank={rank!r}")
    found = spectrum(geometry.gram, geometry.covariance)
    stretch = rules[rank](found.values, lambda_max=lambda_max, order=gauge)
    return Reshaping(found.basis, stretch, geometry.mean, found.values)
