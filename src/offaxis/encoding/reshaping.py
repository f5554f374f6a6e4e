"""Reshaping: rotate the space to the directions of the task and rescale them.

With L = U Λ^{1/2}, λ is small where the task is sensitive and large where it is not. Encoding
applies L^{−1}, the decoder L, so isotropic noise in between becomes small along the directions the
task is sensitive to and large along the others. Both maps are public; the guarantee does not depend
on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from scipy.sparse.linalg import eigsh

from offaxis.encoding.encoders import Encoder, Frame
from offaxis.errors import InvalidInput
from offaxis.geometry.jacobian import Geometry
from offaxis.geometry.public import ArraySum, Mapped, PublicVectors, fold_again
from offaxis.geometry.spectrum import gap_rank, spectrum, water_filling
from offaxis.vectors import Order, Vectors, as_integer, as_number

Allocation = Literal["capped", "gap"]
"""Water-filling under a cap, or the fixed-threshold rule of the paper's public code."""

Settings = dict[str, str | float]
"""Settings of a fit that a release records."""


# ---- The ways to choose coordinates


@dataclass(frozen=True)
class Jacobian:
    """Reshape by the Jacobian alone: rotate to its directions, and stretch those the task ignores.

    Parameters
    ----------
    lambda_max : float
        Largest stretch of a direction the task ignores.
    order : float, optional
        p of the volume constraint; by default that of the randomizer's norm, 2 for a box. The
        published tables use 1 throughout.
    allocation : {"capped", "gap"}
        Water-filling under the cap, or the threshold rule of the paper's public code.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 6)), rng.standard_normal((500, 6))
    >>> gentle = offaxis.Jacobian(lambda_max=10)
    >>> offaxis.fit(
    ...     head, public, epsilon=5, reshaping=gentle, mechanism="laplace"
    ... ).provenance.settings["lambda_max"]
    10.0
    """

    lambda_max: float = 1000.0
    order: float | None = None
    allocation: Allocation = "capped"

    name: ClassVar[str] = "jacobian"
    uses_task: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        object.__setattr__(self, "lambda_max", as_number(self.lambda_max, "lambda_max"))
        if self.order is not None:
            object.__setattr__(self, "order", as_number(self.order, "order"))
        if self.allocation not in get_args(Allocation):
            raise InvalidInput(
                f"allocation must be 'capped' or 'gap', got allocation={self.allocation!r}"
            )

    def frame(
        self, order: Order, geometry: Geometry, public: PublicVectors
    ) -> tuple[Frame, Settings]:
        """Return the coordinates for a randomizer of this norm, and the settings to record."""
        # A box has no volume constraint; that of the ℓ2 ball works well.
        default = 2 if order == "inf" else order
        p = float(default if self.order is None else self.order)
        fitted = reshape(geometry, order=p, lambda_max=self.lambda_max, allocation=self.allocation)
        settings: Settings = {"order": p, "lambda_max": self.lambda_max}
        return fitted.frame, settings | {"allocation": self.allocation}


@dataclass(frozen=True)
class Optimal:
    """Reshape for the least noise in the task, given the Jacobian and the public covariance.

    Directions that the task does not see are left out.

    Parameters
    ----------
    rank : int, optional
        Number of directions in a report; by default all that vary and that the task sees. Fewer
        directions get less noise each; :func:`offaxis.evaluation.tune` chooses the number.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((3, 6)), rng.standard_normal((500, 6))
    >>> release = offaxis.fit(
    ...     head, public, epsilon=5, reshaping=offaxis.Optimal(rank=2), mechanism="laplace"
    ... )
    >>> release.encoder.output_dim
    2
    """

    rank: int | None = None

    name: ClassVar[str] = "optimal"
    uses_task: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.rank is not None:
            object.__setattr__(self, "rank", as_integer(self.rank, "rank", 1))

    def frame(
        self, order: Order, geometry: Geometry, public: PublicVectors
    ) -> tuple[Frame, Settings]:
        """Return the coordinates for a randomizer of this norm, and the settings to record."""
        frame = optimal_frame(geometry, public, order=order, rank=self.rank)
        return frame, {"rank": float(frame.dim)}


@dataclass(frozen=True)
class Centre:
    """Subtract the public mean, nothing else; needs no model."""

    name: ClassVar[str] = "centre"
    uses_task: ClassVar[bool] = False


@dataclass(frozen=True)
class Plain:
    """Leave the vectors as they are; needs no model."""

    name: ClassVar[str] = "none"
    uses_task: ClassVar[bool] = False


Reshaping = Jacobian | Optimal | Centre | Plain

_NAMED: Final[dict[str, Reshaping]] = {
    reshaping.name: reshaping for reshaping in (Jacobian(), Optimal(), Centre(), Plain())
}


def as_reshaping(value: Any) -> Reshaping:
    """Return a reshaping given by name or as an object."""
    if isinstance(value, Reshaping):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    names = ", ".join(repr(name) for name in _NAMED)
    raise InvalidInput(
        f"reshaping must be one of {names}, a Jacobian(...) or an Optimal(...), got {value!r}"
    )


# ---- Reshaping by the Jacobian alone


@dataclass(frozen=True)
class FittedReshaping:
    """A fitted map L = U Λ^{1/2}.

    Attributes
    ----------
    basis : (m, r) array
        U: orthonormal directions, the one the task is most sensitive to first.
    stretch : (r,) array
        λ: the factor by which the variance of noise is stretched along each direction.
    centre : (m,) array
        μ, the public mean.
    sensitivities : (r,) array
        γ: the sensitivity of the task to each direction.

    Examples
    --------
    >>> from offaxis.encoding import FittedReshaping, reshape
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.array([[0.0, 2.0, 0.0]])), PublicVectors(public))
    >>> fitted: FittedReshaping = reshape(geometry, order=1, lambda_max=100)
    >>> fitted.basis[:, 0], fitted.stretch.round(2)  # little noise along what the task reads
    (array([0., 1., 0.]), array([  0.13, 100.  , 100.  ]))
    """

    basis: Vectors
    stretch: Vectors
    centre: Vectors
    sensitivities: Vectors

    @property
    def frame(self) -> Frame:
        """The coordinates w = Λ^{−1/2} Uᵀ (z − μ), with the inverse z = U Λ^{1/2} w + μ."""
        root = np.sqrt(self.stretch)
        return Frame(self.centre, (self.basis / root).T, self.basis * root)

    def along(self, basis: Vectors, gram: Vectors) -> FittedReshaping:
        """Return the same stretches, in the same order, along other orthonormal directions.

        Parameters
        ----------
        basis : (m, r) array
            The directions; column i gets stretch i.
        gram : (m, m) array
            Ω̂, which gives the sensitivity of the task to them.
        """
        sensitivities = np.einsum("ij,ij->j", basis, gram @ basis)
        return replace(self, basis=basis, sensitivities=sensitivities)


def reshape(
    geometry: Geometry,
    *,
    order: float,
    lambda_max: float = 1000.0,
    allocation: Allocation = "capped",
) -> FittedReshaping:
    """Fit the map to a task's geometry.

    Parameters
    ----------
    geometry : Geometry
    order : float
        p of the volume constraint; match it to the randomizer's norm, or 1 for the paper's setting.
    lambda_max : float
        Largest stretch.
    allocation : {"capped", "gap"}
        Water-filling under the cap (default), or the fixed-threshold rule of the paper's code.

    Examples
    --------
    >>> from offaxis.encoding import reshape
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.diag([2.0, 1.0, 0.0])), PublicVectors(public))
    >>> reshape(geometry, order=2, lambda_max=100).stretch.round(2)
    array([  0.5,   1. , 100. ])
    """
    rules = {"capped": water_filling, "gap": gap_rank}
    if allocation not in rules:
        raise InvalidInput(f"allocation must be 'capped' or 'gap', got allocation={allocation!r}")
    eigen = geometry.spectrum
    stretch = rules[allocation](eigen.values, lambda_max=lambda_max, order=order)
    return FittedReshaping(eigen.basis, stretch, geometry.mean, eigen.values)


# ---- Optimal reshaping

_WIDE: Final = 1024
"""Matrices with more rows are factored by pivoted Cholesky."""

_DIRECTIONS: Final[WeakKeyDictionary[Geometry, ActiveDirections]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class ActiveDirections:
    """The directions that vary and that the task sees, as uncorrelated coordinates.

    x = A (z − μ) has the identity as its public covariance, and Bᵀ Ω̂ B = diag(f²). B is the public
    regression of z on x, so everything else decodes to its best linear prediction from x. A linear
    change of the vectors' units changes A and B accordingly, but neither x nor f.

    Attributes
    ----------
    centre : (m,) array
        μ, the public mean.
    forward, back : (n, m) and (m, n) arrays
        A and B, with A B = 1.
    effects : (n,) array
        f > 0, descending: to first order, the standard deviation of the task's outputs due to each
        coordinate.

    Examples
    --------
    >>> from offaxis.encoding import active_directions
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 5.0, 0.0]
    >>> geometry = measure(as_task_model(np.eye(3)), PublicVectors(public))
    >>> directions = active_directions(geometry)
    >>> directions.effects.round(1)  # the third coordinate never varies
    array([4.8, 1. ])
    >>> directions.scaled(np.ones(2), np.array([0])).dim  # keep the first only
    1
    """

    centre: Vectors
    forward: Vectors
    back: Vectors
    effects: Vectors

    def scaled(self, t: Vectors, kept: NDArray[np.intp]) -> Frame:
        """Return the frame of w_i = t_i x_i for the kept directions, in their order."""
        t = t[kept]
        return Frame(self.centre, self.forward[kept] * t[:, None], self.back[:, kept] / t)


def active_directions(geometry: Geometry) -> ActiveDirections:
    """Return the directions in which public vectors vary and that the task sees.

    They are computed once per geometry and cached as long as it exists: every budget and every
    number of directions shares them.

    Raises
    ------
    InvalidInput
        If the task ignores its input, or sees nothing of what varies among the public vectors.

    Examples
    --------
    >>> from offaxis.encoding import active_directions
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> geometry = measure(as_task_model(np.array([[1.0, 1.0, 0.0]])), PublicVectors(public))
    >>> active_directions(geometry).effects.size  # a task of one output sees one direction
    1
    """
    if geometry not in _DIRECTIONS:
        _DIRECTIONS[geometry] = _compute_directions(geometry)
    return _DIRECTIONS[geometry]


def _compute_directions(geometry: Geometry) -> ActiveDirections:
    """Return the directions in which public vectors vary and that the task sees.

    Neither Ω̂ nor the covariance need be invertible, and coordinates may differ in size: each is
    first divided by its public standard deviation. A coordinate that is constant in public is left
    out and decodes to its constant.
    """
    deviation = np.sqrt(np.diag(geometry.covariance).clip(min=0.0))
    used = np.flatnonzero(deviation)
    unit, block = deviation[used], np.ix_(used, used)
    gram = geometry.gram[block] * np.outer(unit, unit)
    if not gram.any():
        raise InvalidInput(
            "the model's Jacobian is zero along everything that varies among the public vectors, "
            "so there is nothing to reshape for; check the model, or use reshaping='centre'"
        )
    gram_root, gram_norm = _root(gram)
    spread, spread_norm = _root(geometry.covariance[block] / np.outer(unit, unit))
    q, f, v = np.linalg.svd(gram_root.T @ spread, full_matrices=False)
    # Both roots are accurate to the square root of rounding, and so is their product.
    rounding = np.sqrt(unit.size * np.finfo(float).eps)
    seen = f > rounding * gram_norm * spread_norm
    if not seen.any():
        raise InvalidInput(
            "the public vectors do not vary along any direction the model is sensitive to; "
            "use other public vectors, or reshaping='jacobian'"
        )
    regression = spread @ v[seen].T
    # Singular vectors are unique up to sign: make the largest entry positive, for reproducible
    # fits.
    peaks = np.take_along_axis(regression, np.abs(regression).argmax(axis=0)[None], axis=0)[0]
    sign = np.where(peaks < 0, -1.0, 1.0)
    forward = np.zeros((sign.size, deviation.size))
    forward[:, used] = (q[:, seen] * (sign / f[seen])).T @ gram_root.T / unit
    back = np.zeros(forward.shape[::-1])
    back[used] = unit[:, None] * regression * sign
    return ActiveDirections(geometry.mean, forward, back, f[seen])


def _root(matrix: Vectors) -> tuple[Vectors, float]:
    """Return R, (m, n), with R Rᵀ the given positive semidefinite matrix, and the norm of R.

    Directions at the level of rounding error are left out. Any root can be used: large matrices
    are factored by pivoted Cholesky, which is thirty times faster than eigenvectors.
    """
    if len(matrix) > _WIDE:
        return _pivoted_root(matrix)
    eigen = spectrum(matrix)
    kept = eigen.values > 0
    root: Vectors = eigen.basis[:, kept] * np.sqrt(eigen.values[kept])
    return root, float(np.sqrt(eigen.values[0]))


def _pivoted_root(matrix: Vectors) -> tuple[Vectors, float]:
    tolerance = len(matrix) * np.finfo(float).eps * matrix.diagonal().max()
    factor, order, rank, _ = dpstrf(matrix, lower=1, tol=tolerance)
    root: Vectors = np.empty((len(matrix), rank))
    root[order - 1] = np.tril(factor[:, :rank])
    (largest,) = eigsh(matrix, k=1, v0=root[:, 0], return_eigenvectors=False)
    return root, float(np.sqrt(largest))


def optimal_frame(
    geometry: Geometry, public: PublicVectors, *, order: Order, rank: int | None = None
) -> Frame:
    """Return the optimal coordinates for a randomizer of the given norm.

    The noise of a randomizer grows with the radius of its ball, and the radius with the encoded
    vectors. For w = A (z − μ) with the inverse z = B w + μ, the product of both is, up to a factor
    of the randomizer,

        ℓ2:  Tr(Bᵀ Ω̂ B) · E‖w‖₂²        ℓ1:  Tr(Bᵀ Ω̂ B) · (E‖w‖₁)²

    Both are smallest along the same public directions: the uncorrelated coordinates x_i of
    variance one whose effects on the task are orthogonal too (:class:`ActiveDirections`). With f_i
    the size of the effect of x_i, w_i is t_i x_i with t_i = f_i^{1/2} for ℓ2 and
    (f_i² / E|x_i|)^{1/3} for ℓ1. For ℓ2 the map is the optimum over all maps,
    B Bᵀ = Ω^{-1} # C, the matrix geometric mean; for ℓ1 see docs/optimal-reshaping.md.

    Parameters
    ----------
    geometry : Geometry
        The geometry of the task on ``public``.
    public : PublicVectors
        Read once more for ℓ1, which needs more than moments.
    order : {1, 2, "inf"}
        The randomizer's norm; a box uses the ℓ2 form.
    rank : int, optional
        Number of directions to send, those with the largest share of the minimum; by default all
        that vary and that the task sees. The others decode to their linear prediction from the
        directions that are sent.

    Examples
    --------
    >>> from offaxis.encoding import optimal_frame
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((500, 3)))
    >>> geometry = measure(as_task_model(np.diag([3.0, 1.0, 0.1])), public)
    >>> optimal_frame(geometry, public, order=1, rank=2).dim
    2
    """
    directions = active_directions(geometry)
    kept = np.arange(directions.effects.size)
    if order == 1:
        magnitudes = mean_magnitudes(directions.scaled(np.ones(kept.size), kept), geometry, public)
        t = (directions.effects**2 / magnitudes) ** (1 / 3)
        # The minimum is (Σ f^{2/3} a^{2/3})³: each direction's share of the root is t a.
        kept = np.argsort(-t * magnitudes, kind="stable")
    else:
        t = np.sqrt(directions.effects)
    if rank is not None:
        meaning = "of the directions that vary and that the model sees"
        kept = kept[: as_integer(rank, "rank", 1, kept.size, meaning=meaning)]
    return directions.scaled(t, kept)


def mean_magnitudes(frame: Frame, geometry: Geometry, public: PublicVectors) -> Vectors:
    """Return E|x_i| of every coordinate over the public vectors, (r,), in one pass."""
    total = fold_again(public, geometry.public, partial(_magnitudes, frame)).into.total
    return total / geometry.public.count


def _magnitudes(frame: Frame) -> Mapped[ArraySum]:
    return Mapped(partial(_summed_magnitudes, frame.encoder), ArraySum(frame.dim))


def _summed_magnitudes(encoder: Encoder, batch: Vectors) -> Vectors:
    total: Vectors = np.abs(encoder.encode(batch)).sum(axis=0)
    return total
