"""PrivateVectors: a scikit-learn transformer that replaces vectors by their decoded reports.

``fit`` sees public data only; ``transform`` is a real release of its input. If no model is given,
the task is a linear one, fitted to public targets (:func:`linear_task`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from offaxis.errors import InvalidInput
from offaxis.fitting import fit
from offaxis.geometry import Layers
from offaxis.geometry.public import MINIMUM
from offaxis.mechanisms import find_mechanism
from offaxis.vectors import Vectors, as_batch

DTYPES: Final = (np.float64, np.float32)

GUARANTEE_PARAMETERS: Final = ("epsilon", "delta", "unit")
"""Parameters of the guarantee. Not settings: a search must not choose them by their score."""


class NoisyTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer whose outputs are decoded reports, real or simulated."""

    def __sklearn_tags__(self) -> Any:
        """Declare that the output is random and keeps its dtype, and that y is optional."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = False
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        return tags


class PrivateVectors(NoisyTransformer):
    """Replace vectors by what a collector decodes from their private reports.

    **All data passed to ``fit`` are public**: the map and the radius learnt from them are published
    with the release, without any noise. In a pipeline that is the training set.

    **Every call of ``transform`` is a new release and spends the budget again.** Transforming the
    same private vectors n times costs n·ε. Call it once and keep the result.

    There is deliberately no ``random_state``: noise that can be repeated can be subtracted. For
    seeded research wrap it in :class:`~offaxis.integrations.sklearn.SimulatedVectors`.

    ``epsilon``, ``delta`` and ``unit`` are fixed at construction. ``set_params`` raises an error
    for a change, so no search can choose them by their score. A search that replaces the whole
    transformer, such as ``{"private": [PrivateVectors(epsilon=1), …]}`` in a pipeline, cannot be
    detected here: do not write such a grid. All other settings cost no privacy
    (:func:`~offaxis.integrations.sklearn.free_settings`).

    Parameters
    ----------
    epsilon : number
        Budget of one vector in one call of ``transform``, read exactly: 0.1 means 1/10.
    mechanism : str, optional
        See :func:`offaxis.fit`. By default the one for the goal "vectors", in the metric of the
        task if there is one. The settings below need a named mechanism.
    model : optional
        The public task, any model that :func:`offaxis.fit` accepts. A scikit-learn estimator that
        is not fitted is cloned and fitted to (X, y). ``clone``, and so every grid search, discards
        the weights of a fitted estimator: wrap it in ``sklearn.frozen.FrozenEstimator`` to keep
        them. None fits a linear task to y; without y, all directions matter equally.
    delta : number, optional
        For the Gaussian mechanism only.
    unit : {"item", "user"}, default="item"
        The unit that one report protects.
    reshaping : {"jacobian", "optimal", "centre", "none"}, Jacobian or Optimal, optional
        Reshape the space for the task (the default), or use the mechanism without reshaping.
    percentile : float, optional
        Public percentile of the encoded norms that becomes the radius; 90 by default.
    size : int, optional
        Number of codewords or of projected coordinates, for mechanisms that have them.
    statement : str, default=""
        Origin of the public data, in your words; stored in the release.

    Attributes
    ----------
    release_ : offaxis.Release
        The fitted release, to save and to publish. ``release_.summary`` states what it is expected
        to keep, and the most that any report of this ε could.
    n_features_in_ : int
        Dimension m of the vectors.
    feature_names_in_ : array of str
        Names of the columns, if ``fit`` received a data frame.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from offaxis.integrations.sklearn import PrivateVectors
    >>> X, y = load_iris(return_X_y=True)
    >>> private = PrivateVectors(epsilon=4).fit(X[::3], y[::3])      # public vectors and targets
    >>> private.transform(X[1::3]).shape                             # private ones, released once
    (50, 4)
    >>> print(private.release_.guarantee)
    ε = 4, pure
    >>> private.set_params(percentile=75).percentile                 # costs no privacy
    75
    >>> private.set_params(epsilon=8)
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: epsilon is promised to people ...
    """

    def __init__(
        self,
        *,
        epsilon: Any = None,
        mechanism: str | None = None,
        model: Any = None,
        delta: Any = None,
        unit: Any = "item",
        reshaping: Any = None,
        percentile: float | None = None,
        size: int | None = None,
        statement: str = "",
    ) -> None:
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.model = model
        self.delta = delta
        self.unit = unit
        self.reshaping = reshaping
        self.percentile = percentile
        self.size = size
        self.statement = statement

    def set_params(self, **params: Any) -> PrivateVectors:
        """Change settings that cost no privacy; raise for a change of the guarantee."""
        check_guarantee(self, params)
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None) -> PrivateVectors:
        """Fit the release to public vectors.

        Parameters
        ----------
        X : array (n, m)
            Public vectors, at least 10. Nothing here protects them.
        y : array (n,) or (n, k), optional
            Public targets, used if the task has to be fitted. With ``model=None``,
            integers, booleans and strings of shape (n,) are classes; floats, and anything of
            shape (n, k), are quantities, whose columns count by their scale.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the vectors are too few, not finite or all the same, y is constant, or a parameter
            is out of range.
        """
        if self.epsilon is None:
            raise InvalidInput(
                "epsilon is promised to people and has no default; pass it, for example "
                "PrivateVectors(epsilon=2)"
            )
        checks = {"dtype": DTYPES, "ensure_min_samples": MINIMUM}
        if y is None:
            public, targets = validate_data(self, X, **checks), None
        else:
            public, targets = validate_data(self, X, y, multi_output=True, **checks)
            targets = targets.toarray() if issparse(targets) else targets
        self.release_ = fit(
            self._task(public, targets),
            public,
            epsilon=self.epsilon,
            goal="vectors" if self.mechanism is None else None,
            mechanism=self.mechanism,
            delta=self.delta,
            unit=self.unit,
            reshaping=self.reshaping,
            percentile=self.percentile,
            size=self.size,
            statement=self.statement,
        )
        return self

    def _task(self, public: NDArray[Any], targets: NDArray[Any] | None) -> Any:
        """Return the task for which :func:`offaxis.fit` reshapes the space."""
        if self.mechanism is not None:
            mechanism = find_mechanism(self.mechanism)
            if not mechanism.read_reshaping(self.reshaping).uses_task and not mechanism.needs_task:
                return None
        elif self.model is None and targets is None:
            return None
        if self.model is None:
            # Checked again: sklearn.config_context(assume_finite=True) skips the check above.
            X, _ = as_batch(public, None, "public vectors")
            return identity_task(X) if targets is None else linear_task(X, targets)
        model = self.model.estimator if isinstance(self.model, FrozenEstimator) else self.model
        if isinstance(model, BaseEstimator) and targets is not None and not _is_fitted(model):
            return clone(model).fit(public, targets)
        return model

    def transform(self, X: Any) -> Any:
        """Release vectors: draw an exact report of each, and return the decoded reports.

        **Every call spends the budget again**, for every vector in X.

        Parameters
        ----------
        X : array (n, m)
            Private vectors; all finite values are accepted, including zero, tiny and huge ones.

        Returns
        -------
        array (n, m)
            float32 for float32, float64 otherwise; or as configured with ``set_output``.

        Raises
        ------
        ValueError
            If the vectors are not finite or have another dimension. Nothing is released then.
        """
        check_is_fitted(self)
        vectors = validate_data(self, X, reset=False, dtype=DTYPES)
        decoded = self.release_.decode(self.release_.privatize(vectors))
        return decoded.astype(vectors.dtype, copy=False)


def check_guarantee(current: PrivateVectors, params: Mapping[str, Any]) -> None:
    """Raise for parameters that change the guarantee.

    Raises
    ------
    InvalidInput
    """
    for name in GUARANTEE_PARAMETERS:
        old = getattr(current, name)
        new = params.get(name, old)
        if new is not old and (type(new) is not type(old) or new != old):
            raise InvalidInput(
                f"{name} is promised to people and not a setting to tune, got {name}={new!r} in "
                f"place of {old!r}; make a new PrivateVectors({name}=…), or find the smallest "
                f"ε for a target with offaxis.smallest_epsilon, on public vectors"
            )


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


# ---- The default task

PENALTIES: Final = np.logspace(-6, 2, 17)
"""Candidate penalties, in units of the mean variance of a public direction."""

_NULL: Final = 1e-12
"""Directions whose variance is below this fraction of the largest count as constant."""


_ALTERNATIVES: Final = (
    "pass other targets, a model, y=None to treat all directions equally, or reshaping='none'"
)

_Targets = tuple[Any, Vectors, float]
"""Target columns (n, k), their means, their total squared deviation from the means."""


def identity_task(X: Vectors) -> Layers:
    """Return z ↦ z: all directions matter equally, so reshaping only centres."""
    _require_variation(X)
    dim = X.shape[1]
    return Layers([np.eye(dim)], [np.zeros(dim)], name="identity")


def linear_task(X: Vectors, y: NDArray[Any]) -> Layers:
    """Fit a ridge regression with intercept of public targets on public vectors, weights (k, m).

    Classes are regressed as one-hot columns. Reshaping needs directions, not probabilities, and the
    one-hot least-squares weights span the discriminant directions of the classes (Hastie,
    Tibshirani, Friedman 2009, §4.3). This is one m×m eigen-decomposition; nothing has to converge.
    The penalty matters more than the loss: without one, a direction in which the public vectors
    hardly vary can get the largest weight of all and dominate the reshaping. It is chosen by
    generalised cross-validation (Golub, Heath, Wahba 1979), which is free given the decomposition.

    Parameters
    ----------
    X : (n, m) array
        Public vectors, finite.
    y : (n,) or (n, k) array
        Integers, booleans and strings of shape (n,) are classes. Floats, and anything of shape
        (n, k), are quantities; columns count by their scale.

    Raises
    ------
    InvalidInput
        If y or the vectors are constant, or y does not depend on the vectors in any direction.
    """
    _require_variation(X)
    targets, means, total = _targets(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)
    centre = X.mean(axis=0)
    centred = X - centre
    # In units of the peak, so that squares neither overflow nor vanish.
    peak = np.abs(centred).max()
    centred /= peak
    cross = np.asarray((targets.T @ centred).T)
    weight = _ridge(centred, cross, total) / peak
    if not weight.any():
        raise InvalidInput(
            f"y does not depend on the public vectors in any direction: the fitted weights are "
            f"all zero; {_ALTERNATIVES}"
        )
    return Layers([weight], [means - weight @ centre], name="ridge")


def _require_variation(X: Vectors) -> None:
    # Compared without centring: the rounding of a mean would make equal vectors look different.
    if (X[0] == X).all():
        raise InvalidInput(
            "all public vectors are the same, so nothing can be fitted to them; "
            "pass public vectors that differ from each other"
        )


def _targets(y: NDArray[Any]) -> _Targets:
    if y.ndim == 1 and y.dtype.kind in "iubOSUT":
        return _one_hot(y)
    if y.dtype.kind not in "iubf" or y.ndim not in (1, 2):
        raise InvalidInput(
            f"y must be classes (n,) or quantities (n,) or (n, k), got shape {y.shape} of dtype "
            f"{y.dtype}"
        )
    columns = y.reshape(len(y), -1).astype(np.float64)
    if (columns == columns[0]).all():
        raise InvalidInput(
            f"y is constant ({columns[0].tolist()}), so no direction matters to it; {_ALTERNATIVES}"
        )
    means = columns.mean(axis=0)
    columns -= means
    return columns, means, float((columns**2).sum())


def _one_hot(y: NDArray[Any]) -> _Targets:
    try:
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    except TypeError:
        raise InvalidInput(
            "y mixes labels that cannot be compared; make them all integers or all strings"
        ) from None
    n, k = len(y), len(classes)
    if k == 1:
        raise InvalidInput(
            f"y holds only one class ({classes[0]}), so no direction matters to it; {_ALTERNATIVES}"
        )
    if 2 * k > n:
        raise InvalidInput(
            f"y holds {k} classes for {n} public vectors, fewer than two vectors per class; "
            f"if y is a quantity, pass it as floats: y.astype(float)"
        )
    # Sparse and not centred: the vectors are centred, so the products are the same.
    columns = csr_array((np.ones(n), (np.arange(n), codes)), shape=(n, k))
    means = counts / n
    return columns, means, float(n * (means * (1 - means)).sum())


def _ridge(X: Vectors, cross: Vectors, total: float) -> Vectors:
    """Return the weights (k, m) for centred X, from XᵀY and ‖Y − mean‖²."""
    variance, basis = np.linalg.eigh(X.T @ X)
    varying = variance > _NULL * variance[-1]
    variance, basis = variance[varying], basis[:, varying]
    rotated = basis.T @ cross
    # How much of Y each direction explains, and how much none of them does. The residual is a
    # difference of large numbers and exactly zero when the directions can fit anything.
    explained = (rotated**2).sum(axis=1) / variance
    freedom = max(len(X) - 1 - variance.size, 0)
    residual = max(total - explained.sum(), 0.0) if freedom > 0 else 0.0
    penalties = PENALTIES * variance.sum() / X.shape[1]
    shrinkage = penalties[:, None] / (variance + penalties[:, None])
    scores = (residual + shrinkage**2 @ explained) / (freedom + shrinkage.sum(axis=1)) ** 2
    penalty = penalties[scores.argmin()]
    weight: Vectors = (basis @ (rotated / (variance + penalty)[:, None])).T
    return weight
