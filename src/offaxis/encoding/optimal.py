"""The reshaping that balances what noise does to the task against what the ball must hold.

A randomizer's noise grows with the radius of its ball, and the radius with the encoded vectors. For
w = A (z − μ) and back z = B w + μ the product of both is, up to the randomizer's own factor,

    ℓ2:  Tr(Bᵀ Ω̂ B) · E‖w‖₂²        ℓ1:  Tr(Bᵀ Ω̂ B) · (E‖w‖₁)²

Both are smallest along the same public directions: the uncorrelated coordinates x_i, of variance
one, whose effects on the task are orthogonal too. With f_i the size of the effect of x_i, w_i is
t_i x_i, t_i = f_i^{1/2} for ℓ2 and (f_i² / E|x_i|)^{1/3} for ℓ1. For ℓ2 the map is the optimum over
all maps, B Bᵀ = Ω^{-1} # C, the matrix geometric mean; for ℓ1 see docs/optimal-reshaping.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from scipy.sparse.linalg import eigsh

from offaxis.encoding.encoder import Encoder
from offaxis.encoding.frame import Frame
from offaxis.errors import InvalidInput
from offaxis.geometry.folding import ArraySum, Through
from offaxis.geometry.jacobian import Geometry
from offaxis.geometry.public import PublicVectors, fold_again
from offaxis.geometry.spectrum import spectrum
from offaxis.vectors import Order, Vectors, as_integer

_WIDE: Final = 1024


@dataclass(frozen=True, eq=False)
class ActiveDirections:
    """Everything that varies and that the task sees, as uncorrelated coordinates.

    x = A (z − μ) has the identity as its public covariance, and Bᵀ Ω̂ B = diag(f²). B is the public
    regression of z on x, so what x does not tell is filled with its best linear guess. A linear
    change of the vectors' units changes A and B accordingly, and neither x nor f.

    Attributes
    ----------
    centre : (m,) array
        μ, the public mean.
    forward, back : (n, m) and (m, n) arrays
        A and B, with A B = 1.
    effects : (n,) array
        f > 0, descending: the deviation of the task's outputs, to first order, due to each.

    Examples
    --------
    >>> from offaxis.encoding import ActiveDirections, active_directions
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 5.0, 0.0]
    >>> geometry = measure(as_task_model(np.eye(3)), PublicVectors(public))
    >>> found = active_directions(geometry)
    >>> isinstance(found, ActiveDirections), found.effects.round(1)  # the third never varies
    (True, array([4.8, 1. ]))
    >>> found.scaled(np.ones(2), np.array([0])).dim  # send the first only
    1
    """

    centre: Vectors
    forward: Vectors
    back: Vectors
    effects: Vectors

    def scaled(self, t: Vectors, kept: NDArray[np.intp]) -> Frame:
        """Return the frame of w_i = t_i x_i for the directions kept, in their order."""
        t = t[kept]
        return Frame(self.centre, self.forward[kept] * t[:, None], self.back[:, kept] / t)


def _root(matrix: Vectors) -> tuple[Vectors, float]:
    """Return R, (m, n), with R Rᵀ the given positive matrix, and its norm.

    What is but rounding is left out. Any root will do: wide ones are taken by Cholesky with
    pivots, which is thirty times faster than eigenvectors.
    """
    if len(matrix) > _WIDE:
        return _pivoted_root(matrix)
    found = spectrum(matrix)
    kept = found.values > 0
    root: Vectors = found.basis[:, kept] * np.sqrt(found.values[kept])
    return root, float(np.sqrt(found.values[0]))


def _pivoted_root(matrix: Vectors) -> tuple[Vectors, float]:
    tolerance = len(matrix) * np.finfo(float).eps * matrix.diagonal().max()
    factor, order, rank, _ = dpstrf(matrix, lower=1, tol=tolerance)
    root: Vectors = np.empty((len(matrix), rank))
    root[order - 1] = np.tril(factor[:, :rank])
    (largest,) = eigsh(matrix, k=1, v0=root[:, 0], return_eigenvectors=False)
    return root, float(np.sqrt(largest))


_FOUND: Final[WeakKeyDictionary[Geometry, ActiveDirections]] = WeakKeyDictionary()


def active_directions(geometry: Geometry) -> ActiveDirections:
    """Return the directions in which public vectors vary and the task sees it.

    They are found once for a geometry and kept as long as it: every budget and number of
    directions shares them.

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
    if geometry not in _FOUND:
        _FOUND[geometry] = _find(geometry)
    return _FOUND[geometry]


def _find(geometry: Geometry) -> ActiveDirections:
    """Return the directions in which public vectors vary and the task sees it.

    Neither Ω̂ nor the covariance need be invertible, nor the coordinates of comparable size: every
    coordinate is measured in its own public deviation first. One that is constant in public is
    left out, and decodes to its constant.
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
    look, looked = _root(gram)
    spread, spanned = _root(geometry.covariance[block] / np.outer(unit, unit))
    q, f, v = np.linalg.svd(look.T @ spread, full_matrices=False)
    # Both roots are known to the square root of rounding, and so is what they have in common.
    rounding = np.sqrt(unit.size * np.finfo(float).eps)
    seen = f > rounding * looked * spanned
    if not seen.any():
        raise InvalidInput(
            "the public vectors do not vary along any direction the model looks at; "
            "use other public vectors, or reshaping='jacobian'"
        )
    regression = spread @ v[seen].T
    # Singular vectors are known up to sign: make the largest entry positive, so that fits repeat.
    peaks = np.take_along_axis(regression, np.abs(regression).argmax(axis=0)[None], axis=0)[0]
    sign = np.where(peaks < 0, -1.0, 1.0)
    forward = np.zeros((sign.size, deviation.size))
    forward[:, used] = (q[:, seen] * (sign / f[seen])).T @ look.T / unit
    back = np.zeros(forward.shape[::-1])
    back[used] = unit[:, None] * regression * sign
    return ActiveDirections(geometry.mean, forward, back, f[seen])


def mean_magnitudes(frame: Frame, geometry: Geometry, public: PublicVectors) -> Vectors:
    """Return E|x_i| of every coordinate over the public vectors, (r,), in one pass."""
    total = fold_again(public, geometry.public, partial(_magnitudes, frame)).into.total
    return total / geometry.public.count


def _magnitudes(frame: Frame) -> Through[ArraySum]:
    return Through(partial(_summed_magnitudes, frame.encoder), ArraySum(frame.dim))


def _summed_magnitudes(encoder: Encoder, batch: Vectors) -> Vectors:
    total: Vectors = np.abs(encoder.encode(batch)).sum(axis=0)
    return total


def optimal_frame(
    geometry: Geometry, public: PublicVectors, *, order: Order, active: int | None = None
) -> Frame:
    """Return the optimal coordinates for a randomizer of the given norm.

    Parameters
    ----------
    geometry : Geometry
        Of the task on ``public``.
    public : PublicVectors
        Walked through once more for ℓ1, which needs more than moments.
    order : {1, 2, "inf"}
        The randomizer's norm; a box is served by the ℓ2 form.
    active : int, optional
        How many directions are sent, those that weigh most in the minimum; by default all that
        vary and that the task sees. The others decode to their public mean given the sent ones.

    Examples
    --------
    >>> from offaxis.encoding import optimal_frame
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> public = PublicVectors(np.random.default_rng(0).standard_normal((500, 3)))
    >>> geometry = measure(as_task_model(np.diag([3.0, 1.0, 0.1])), public)
    >>> optimal_frame(geometry, public, order=1, active=2).dim
    2
    """
    found = active_directions(geometry)
    kept = np.arange(found.effects.size)
    if order == 1:
        magnitudes = mean_magnitudes(found.scaled(np.ones(kept.size), kept), geometry, public)
        t = (found.effects**2 / magnitudes) ** (1 / 3)
        # The minimum is (Σ f^{2/3} a^{2/3})³: each direction's share of the root is t a.
        kept = np.argsort(-t * magnitudes, kind="stable")
    else:
        t = np.sqrt(found.effects)
    if active is not None:
        meaning = "of the directions that vary and that the model sees"
        kept = kept[: as_integer(active, "active", 1, kept.size, meaning=meaning)]
    return found.scaled(t, kept)
