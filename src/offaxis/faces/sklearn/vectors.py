"""A scikit-learn transformer that replaces vectors by what their private reports say.

``fit`` sees public data only; ``transform`` is a real release of whatever it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from offaxis.errors import InvalidInput
from offaxis.faces.sklearn.linear_task import identity_task, linear_task
from offaxis.fitting import fit
from offaxis.geometry.public_hash import MINIMUM
from offaxis.recipes import recipe
from offaxis.vectors import as_batch

DTYPES: Final = (np.float64, np.float32)

PROMISES: Final = ("epsilon", "delta", "unit")
"""What is promised to people. Not settings: a search may not pick them by their score."""


class NoisyTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer whose output is decoded reports, drawn or simulated."""

    def __sklearn_tags__(self) -> Any:
        """Say that the output is random, keeps its precision, and that y may be left out."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = False
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        return tags


class PrivateVectors(NoisyTransformer):
    """Vectors as a collector sees them who only ever receives private reports.

    **Whatever you fit on is public**: the map and the radius learnt from it are published with the
    release, without any noise. In a pipeline that means the training set.

    **Every call of ``transform`` is a new release and spends the budget again.** Transforming the
    same private vectors n times costs n·ε. Call it once, keep the result.

    There is no ``random_state``, on purpose: noise that can be repeated can be subtracted. For
    seeded research wrap it as :class:`~offaxis.faces.sklearn.SimulatedVectors`.

    ``epsilon``, ``delta`` and ``unit`` are given once, at construction; ``set_params`` refuses to
    change them, and so no search can pick them by their score as parameters. A search that
    exchanges the whole transformer, as ``{"private": [PrivateVectors(epsilon=1), …]}`` does in a
    pipeline, cannot be refused from in here: do not write such a grid. All else costs no privacy
    (:func:`~offaxis.faces.sklearn.free_settings`).

    Parameters
    ----------
    epsilon : number
        Budget of one vector in one call of ``transform``, read exactly: 0.1 means 1/10.
    randomizer : str, default="laplace"
        As in :func:`offaxis.fit`.
    model : optional
        The public task, anything :func:`offaxis.fit` takes. A scikit-learn estimator that is not
        fitted is cloned and fitted to (X, y). Note that ``clone``, and so every grid search,
        forgets the weights of a fitted one: wrap it in ``sklearn.frozen.FrozenEstimator`` to keep
        them. None fits a linear task to y; without y, every direction matters alike.
    delta : number, optional
        For the Gaussian only.
    unit : {"item", "user"}, default="item"
        What one report stands for.
    reshaping : {"jacobian", "optimal", "centre", "none"}, default="jacobian"
        Shape the space to the task, or use the randomizer plainly.
    percentile : float, default=90.0
        Public percentile of the encoded norms that becomes the radius.
    lambda_max : float, default=1000.0
        Largest stretch of a direction the task ignores.
    gauge : float, optional
        p of the volume constraint; by default the randomizer's own norm.
    rank : {"capped", "gap"}, default="capped"
        Rule of the stretches.
    active : int, optional
        How many directions a report tells of, with ``reshaping="optimal"``.
    size : int, optional
        Number of codewords or of projected coordinates, for the randomizers that have such.
    statement : str, default=""
        Where the public data came from, in your words; kept in the release.

    Attributes
    ----------
    release_ : offaxis.Release
        The frozen release; save it, publish it, read its guarantee.
    n_features_in_ : int
        Dimension m of the vectors.
    feature_names_in_ : array of str
        Names of the columns, if ``fit`` was given a data frame.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from offaxis.faces.sklearn import PrivateVectors
    >>> X, y = load_iris(return_X_y=True)
    >>> private = PrivateVectors(epsilon=4).fit(X[::2], y[::2])      # public vectors and targets
    >>> private.transform(X[1::2]).shape                             # private ones, released once
    (75, 4)
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
        randomizer: str = "laplace",
        model: Any = None,
        delta: Any = None,
        unit: Any = "item",
        reshaping: Any = "jacobian",
        percentile: float = 90.0,
        lambda_max: float = 1000.0,
        gauge: float | None = None,
        rank: Any = "capped",
        active: int | None = None,
        size: int | None = None,
        statement: str = "",
    ) -> None:
        self.epsilon = epsilon
        self.randomizer = randomizer
        self.model = model
        self.delta = delta
        self.unit = unit
        self.reshaping = reshaping
        self.percentile = percentile
        self.lambda_max = lambda_max
        self.gauge = gauge
        self.rank = rank
        self.active = active
        self.size = size
        self.statement = statement

    def set_params(self, **params: Any) -> PrivateVectors:
        """Change settings that cost no privacy; refuse to change what is promised to people."""
        check_promises(self, params)
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None) -> PrivateVectors:
        """Fit the release to public vectors.

        Parameters
        ----------
        X : array (n, m)
            PUBLIC vectors, at least 10. Nothing here protects them.
        y : array (n,) or (n, k), optional
            Public targets, used when the task still has to be fitted. With ``model=None``,
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
                "epsilon is what people are promised, and has no default; give it, for example "
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
            randomizer=self.randomizer,
            delta=self.delta,
            unit=self.unit,
            reshaping=self.reshaping,
            percentile=self.percentile,
            lambda_max=self.lambda_max,
            gauge=self.gauge,
            rank=self.rank,
            active=self.active,
            size=self.size,
            statement=self.statement,
        )
        return self

    def _task(self, public: NDArray[Any], targets: NDArray[Any] | None) -> Any:
        """Return what :func:`offaxis.fit` shall shape the space for."""
        if self.reshaping in ("centre", "none") and not recipe(self.randomizer).needs_task:
            return None
        if self.model is None:
            # Checked once more: sklearn.config_context(assume_finite=True) skips the check above.
            X, _ = as_batch(public, None, "public vectors")
            return identity_task(X) if targets is None else linear_task(X, targets)
        model = self.model.estimator if isinstance(self.model, FrozenEstimator) else self.model
        if isinstance(model, BaseEstimator) and targets is not None and not _is_fitted(model):
            return clone(model).fit(public, targets)
        return model

    def transform(self, X: Any) -> Any:
        """Release vectors: draw an exact report of each, and return what the reports decode to.

        **Every call spends the budget again**, for every vector in X.

        Parameters
        ----------
        X : array (n, m)
            Private vectors; any finite ones, zero, tiny and huge ones included.

        Returns
        -------
        array (n, m)
            float32 for float32, float64 otherwise; or as ``set_output`` says.

        Raises
        ------
        ValueError
            If the vectors are not finite or of another dimension. Nothing is released then.
        """
        check_is_fitted(self)
        vectors = validate_data(self, X, reset=False, dtype=DTYPES)
        decoded = self.release_.decode(self.release_.privatize(vectors))
        return decoded.astype(vectors.dtype, copy=False)


def check_promises(current: PrivateVectors, wanted: Mapping[str, Any]) -> None:
    """Refuse parameters that promise something else to people than the current ones.

    Raises
    ------
    InvalidInput
    """
    for name in PROMISES:
        old = getattr(current, name)
        new = wanted.get(name, old)
        if new is not old and (type(new) is not type(old) or new != old):
            raise InvalidInput(
                f"{name} is promised to people and not a setting to tune, got {name}={new!r} in "
                f"place of {old!r}; make a new PrivateVectors({name}=…), or find the smallest "
                f"budget for a goal with offaxis.smallest_epsilon, on public vectors"
            )


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True
