"""Covariances of people with standard errors, and their principal directions.

What is estimated is svec(Σ), the covariance of clipped coordinates w as a vector, with a normal
error of covariance V. Every number here is a smooth function of it, so its error is gᵀVg with g the
gradient (the delta method; docs/proofs.md, second moments). With eigenvalues λ_i of distinct size
and eigenvectors v_i, and E the error of Σ,

    λ̂_i = λ_i + v_iᵀEv_i + Σ_{j≠i} (v_iᵀEv_j)²/(λ_i − λ_j),
    v̂_i = v_i + Σ_{j≠i} v_iᵀEv_j/(λ_i − λ_j) v_j.

The last term of λ̂_i is a bias: large eigenvalues come out too large. It is estimated and
subtracted, and its variance, 2 Σ_j (Var e_ij)²/(λ_i − λ_j)², is part of the standard error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from offaxis.encoding.second_moments import matrix_of, places, products, svec
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.learning import figures
from offaxis.learning.trends import Change
from offaxis.vectors import Vectors, as_batch, as_integer, as_number

APART: Final = 4.0
"""Eigenvalues count as apart if they differ by this many standard deviations of their mixing."""

_MIXING: Final = 1.0
"""Where eigenvalues are not apart the estimate of the bias is damped: V g/(g² + V) for V/g."""


@dataclass(frozen=True, eq=False)
class Principal:
    """Principal directions of people; made by :meth:`SecondMoments.principal`.

    Attributes
    ----------
    values : (k,) array
        Variances along the directions, largest first, without the estimated bias. They may be
        negative where there is more noise than variance.
    standard_error : (k,) array
        Of the values, for eigenvalues that are apart.
    bias : (k,) array
        What was subtracted: noise makes large eigenvalues larger.
    directions : (k, m) array
        Of length one; the largest entry is positive.
    angle : (k,) array
        The standard error of each direction as an angle in radians, at most π/2.
    apart : (k,) array of bool
        Whether the eigenvalue differs clearly from all others. Where it does not, its direction may
        be any in the plane of both, and neither standard error holds.

    Examples
    --------
    >>> from offaxis.learning import fit_second_moments, second_moments
    >>> rng = np.random.default_rng(0)
    >>> people = rng.standard_normal((3000, 3)) * [4.0, 2.0, 1.0]
    >>> release = fit_second_moments(people[:1000], epsilon=8)
    >>> leading = second_moments(release, release.privatize(people[1000:])).principal(1)
    >>> leading.directions.shape, bool(leading.apart[0])
    ((1, 3), True)
    """

    values: Vectors
    standard_error: Vectors
    bias: Vectors
    directions: Vectors
    angle: Vectors
    apart: NDArray[np.bool_]
    count: int

    def __repr__(self) -> str:
        """Return for example ``Principal(6.11 ± 0.08, 3.72 ± 0.07)``."""
        pairs = zip(self.values, self.standard_error, strict=True)
        return f"Principal({', '.join(f'{value:.3g} ± {error:.2g}' for value, error in pairs)})"

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals of the variances, each by itself."""
        return _interval(self.values, self.standard_error, self.count, level)

    def figure(self, path: Any = None) -> Any:
        """Draw the variances with their 95 % intervals; return the matplotlib figure.

        Hollow points are variances that are not apart: neither their intervals nor their
        directions hold.

        Parameters
        ----------
        path : path, optional
            Where to save it, such as "variances.png".
        """
        low, high = self.interval(0.95)
        picture, axes = figures.new_figure(6.4, 4.0)
        order = np.arange(1, len(self.values) + 1)
        axes.vlines(order, low, high, color="C0", alpha=0.4, linewidth=5)
        axes.plot(order, self.values, "o", color="C0", markerfacecolor="none", markersize=6)
        axes.plot(order[self.apart], self.values[self.apart], "o", color="C0", markersize=6)
        axes.axhline(0, color="0.4", linewidth=1)
        axes.set_xticks(order if len(order) <= figures.MOST_LABELS else order[::8])
        axes.set_xlabel("principal direction")
        axes.set_ylabel("variance")
        if not self.apart.all():
            axes.set_title("hollow: not apart from others", size=8, color="0.3", loc="right")
        return figures.saved(picture, path)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Mean and covariance of the people who reported; made by :func:`second_moments`.

    All are about vectors *clipped* by the device, in the r coordinates w of the release. Standard
    errors hold for independent people of any law, for many reports; with a single coordinate and
    a large ε, for many more than e^ε.

    Attributes
    ----------
    count : int
        Number of reports.
    mean, mean_error : (r,) arrays
        E w, and its standard error.
    covariance, covariance_error : (r, r) arrays
        Unbiased, hence not always positive semidefinite (:meth:`positive`).
    back, centre : (m, r) and (m,) arrays
        z = B w + c.
    public_mean, public_covariance : arrays, or None
        Of the public vectors, clipped alike, where the release knows them.

    Examples
    --------
    >>> from offaxis.learning import SecondMoments, fit_second_moments, second_moments
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((1000, 2))
    >>> release = fit_second_moments(public, epsilon=4)
    >>> reports = release.privatize(rng.standard_normal((2000, 2)) + [1.0, 0.0])
    >>> found: SecondMoments = second_moments(release, reports)
    >>> low, high = found.interval(0.95)
    >>> low.shape, found.vector_covariance.shape
    ((2, 2), (2, 2))
    """

    count: int
    mean: Vectors
    mean_error: Vectors
    covariance: Vectors
    covariance_error: Vectors
    back: Vectors
    centre: Vectors
    public_mean: Vectors | None
    public_covariance: Vectors | None
    _errors: Vectors

    @classmethod
    def of(
        cls,
        count: int,
        second: Vectors,
        mean: Vectors,
        errors: Vectors,
        back: Vectors,
        centre: Vectors,
        public: tuple[Vectors, Vectors] | None = None,
    ) -> SecondMoments:
        """Return the estimates from unbiased means of svec(w wᵀ) and w with covariance ``errors``.

        Σ̂ = M̂ − m̂m̂ᵀ + Cov(m̂), which is exactly unbiased.
        """
        r = mean.size
        # The derivative of svec(m mᵀ) in m_k is svec(e_k mᵀ + m e_kᵀ).
        unit = np.eye(r)[:, :, None] * mean
        slope = svec(unit + unit.transpose(0, 2, 1)).T
        change = np.block([[np.eye(second.size), -slope], [np.zeros((r, second.size)), np.eye(r)]])
        covariance = matrix_of(second) - np.outer(mean, mean) + errors[-r:, -r:]
        moved = change @ errors @ change.T
        deviation = np.sqrt(np.maximum(np.diag(moved), 0.0))
        public_mean, public_covariance = None, None
        if public is not None:
            public_mean = public[0]
            public_covariance = public[1] - np.outer(public[0], public[0])
        return cls(
            count,
            mean,
            deviation[-r:],
            covariance,
            matrix_of(deviation[:-r]),
            back,
            centre,
            public_mean,
            public_covariance,
            moved,
        )

    def __repr__(self) -> str:
        """Return for example ``SecondMoments(9 coordinates, 20000 reports)``."""
        return f"SecondMoments({self.mean.size} coordinates, {self.count} reports)"

    @property
    def shift(self) -> Change:
        """How far the people's mean is from the public one, along every coordinate.

        For releases of :func:`fit_second_moments`, in public standard deviations along the public
        principal directions. Where the release knows no public mean, from its centre.
        """
        public = np.zeros(self.mean.size) if self.public_mean is None else self.public_mean
        return Change(self.mean - public, self.mean_error)

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals of the covariances, each by itself."""
        return _interval(self.covariance, self.covariance_error, self.count, level)

    def mean_interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return the ends of confidence intervals of the means, each by itself."""
        return _interval(self.mean, self.mean_error, self.count, level)

    def positive(self, floor: float = 0.0) -> Vectors:
        """Return the covariance with eigenvalues below the floor raised to it, (r, r).

        The nearest such matrix. It is biased: variances that are lost in noise come out too large.
        """
        values, vectors = np.linalg.eigh(self.covariance)
        raised: Vectors = (vectors * np.maximum(values, as_number(floor, "floor"))) @ vectors.T
        return raised

    @cached_property
    def vector_mean(self) -> Vectors:
        """The mean of vectors, (m,), as far as the coordinates tell it."""
        mean: Vectors = self.back @ self.mean + self.centre
        return mean

    @cached_property
    def vector_covariance(self) -> Vectors:
        """The covariance of vectors, (m, m), of rank r: within the release's directions."""
        covariance: Vectors = self.back @ self.covariance @ self.back.T
        return covariance

    def unclipped(self) -> SecondMoments:
        """Return the moments with what clipping did to the public vectors undone.

        Mean and covariance are mapped by W = C^{−1/2}, with C the covariance of the clipped public
        coordinates, so that the public vectors get back the identity. It is right for people from
        whom clipping takes what it takes from the public. That is an assumption: reports cannot
        show it, and errors do not contain it.

        Raises
        ------
        InvalidInput
            If the release knows no public moments: one with additive noise.
        """
        if self.public_mean is None or self.public_covariance is None:
            raise InvalidInput("only releases of fit_second_moments know what clipping does")
        values, vectors = np.linalg.eigh(self.public_covariance)
        if not values[0] > 0:
            raise InvalidInput("the clipped public vectors do not vary in all coordinates")
        root = (vectors / np.sqrt(values)) @ vectors.T
        r, size = self.mean.size, self._errors.shape[0] - self.mean.size
        # svec(W X W), column by column.
        turned = svec(root @ matrix_of(np.eye(size)) @ root).T
        change = np.zeros((size + r, size + r))
        change[:size, :size], change[size:, size:] = turned, root
        moved = change @ self._errors @ change.T
        deviation = np.sqrt(np.maximum(np.diag(moved), 0.0))
        return replace(
            self,
            mean=root @ (self.mean - self.public_mean),
            mean_error=deviation[size:],
            covariance=root @ self.covariance @ root,
            covariance_error=matrix_of(deviation[:size]),
            public_mean=np.zeros(r),
            public_covariance=np.eye(r),
            _errors=moved,
        )

    def along(self, directions: Any) -> Change:
        """Return the variances of vectors along given directions (k, m), with standard errors."""
        batch, _ = as_batch(directions, len(self.back))
        gradients = products(batch @ self.back)
        return Change(gradients @ svec(self.covariance), self._deviations(gradients))

    def principal(
        self, k: int | None = None, *, of: Literal["vectors", "coordinates"] = "vectors"
    ) -> Principal:
        """Return the k principal directions of the people, with standard errors.

        Parameters
        ----------
        k : int, optional
            By default all r.
        of : {"vectors", "coordinates"}
            Directions of vectors z, or of the whitened coordinates w, in which people who are like
            the public vary equally in all directions.
        """
        if of not in ("vectors", "coordinates"):
            raise InvalidInput(f"of must be 'vectors' or 'coordinates', got {of!r}")
        r = self.mean.size
        k = r if k is None else as_integer(k, "k", 1, r, meaning="of the release's coordinates")
        basis, factor = np.linalg.qr(self.back) if of == "vectors" else (np.eye(r), np.eye(r))
        values, turns = np.linalg.eigh(factor @ self.covariance @ factor.T)
        values, turns = values[::-1], turns[:, ::-1]
        y = factor.T @ turns  # v_iᵀEv_j in vectors is y_iᵀEy_j in coordinates
        first, second, scale = places(r)
        own_rows, rows = y.T[:k, None], y.T[None]
        gradients = own_rows[..., first] * rows[..., second]
        gradients += own_rows[..., second] * rows[..., first]
        gradients *= scale / 2
        mixing = self._deviations(gradients.reshape(k * r, -1)).reshape(k, r) ** 2
        own = np.eye(k, r, dtype=bool)
        gaps = values[:k, None] - values
        safe = np.where(own, 1.0, gaps**2 + _MIXING * mixing)
        pulled = np.where(own, 0.0, mixing * gaps / safe)
        with np.errstate(divide="ignore", invalid="ignore"):
            turned = np.where(own, 0.0, mixing / gaps**2).sum(axis=1)
        apart = (own | (gaps**2 > APART**2 * mixing)).all(axis=1)
        directions = (basis @ turns[:, :k]).T
        peaks = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
        return Principal(
            values[:k] - pulled.sum(axis=1),
            np.sqrt(mixing[own] + 2 * (pulled**2).sum(axis=1)),
            pulled.sum(axis=1),
            directions * np.where(peaks < 0, -1.0, 1.0),
            np.minimum(np.sqrt(turned), np.pi / 2),
            *(apart, self.count),
        )

    def to_frame(self) -> Any:
        """Return means and covariances as a pandas DataFrame, one row each.

        Columns are ``kind`` ("mean" or "covariance"), ``first``, ``second``, ``estimate`` and
        ``standard_error``.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(f"to_frame() needs pandas: {installing('pandas')}") from error
        r = self.mean.size
        i, j = np.triu_indices(r)
        return pandas.DataFrame(
            {
                "kind": ["mean"] * r + ["covariance"] * i.size,
                "first": np.concatenate([np.arange(r), i]),
                "second": np.concatenate([np.arange(r), j]),
                "estimate": np.concatenate([self.mean, self.covariance[i, j]]),
                "standard_error": np.concatenate([self.mean_error, self.covariance_error[i, j]]),
            }
        )

    def _deviations(self, gradients: Vectors) -> Vectors:
        """Return √(gᵀVg) of every gradient in svec(Σ), (q, r(r + 1)/2)."""
        size = gradients.shape[1]
        squares = ((gradients @ self._errors[:size, :size]) * gradients).sum(axis=1)
        deviations: Vectors = np.sqrt(np.maximum(squares, 0.0))
        return deviations


def _interval(
    estimate: Vectors, error: Vectors, count: int, level: float
) -> tuple[Vectors, Vectors]:
    level = as_number(level, "level")
    if not 0 < level < 1:
        raise InvalidInput(f"level must be between 0 and 1, got level={level!r}")
    reach = float(stdtrit(count - 1, (1 + level) / 2)) * error
    return estimate - reach, estimate + reach
