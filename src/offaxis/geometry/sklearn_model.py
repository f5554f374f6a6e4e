"""Scikit-learn estimators, and objects with the same methods, as public tasks.

Contract: the largest output of a classifier is the class that it predicts, and ``answers`` are the
names of its classes. A linear model or an MLP, also behind transformers that are affine, becomes
:class:`~offaxis.geometry.Layers`, which a release can hold. Any other estimator becomes an
:class:`EstimatorModel`, which calls it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import (
    LONGEST_NAME,
    FiniteDifferences,
    ModelIdentity,
    TaskModel,
    check_differentiable,
    gram_of,
)
from offaxis.vectors import Vectors, to_numpy

__all__ = ["EstimatorModel"]

_PROBES: Final = 512
"""The number of probe vectors of an identity."""


def model_of(estimator: Any) -> TaskModel:
    """Return the adapter of a fitted estimator: layers if it is a network, else its outputs."""
    _check_fitted(estimator)
    estimator = _unwrapped(estimator)
    try:
        layers = _layers_of(estimator)
    except (InvalidInput, ValueError, TypeError, AttributeError, KeyError):
        layers = None  # attributes that mean something else
    return EstimatorModel(estimator) if layers is None else layers


def _check_fitted(estimator: Any) -> None:
    try:
        from sklearn.base import BaseEstimator
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:  # an estimator of another library
        return
    if not isinstance(estimator, BaseEstimator):
        return
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise InvalidInput(
            f"the {type(estimator).__name__} is not fitted; fit it on public data first"
        ) from None


def _unwrapped(estimator: Any) -> Any:
    """Return the estimator that a search found, or that was frozen."""
    while True:
        if hasattr(estimator, "best_estimator_") and hasattr(estimator, "cv_results_"):
            estimator = estimator.best_estimator_
        elif type(estimator).__name__ == "FrozenEstimator":
            estimator = estimator.estimator
        else:
            return estimator


def _name_of(estimator: Any) -> str:
    """Return the name of the type, or of those of a pipeline's steps."""
    steps = getattr(estimator, "steps", None)
    if steps is None or not hasattr(estimator, "named_steps"):
        return type(estimator).__name__[:LONGEST_NAME]
    parts = [step for _, step in steps if step is not None and not isinstance(step, str)]
    return " + ".join(_name_of(_unwrapped(part)) for part in parts)[:LONGEST_NAME]


# ---- Calls


def _called(estimator: Any, method: str, Z: Vectors) -> NDArray[Any]:
    """Return what a method returns for a batch, as NumPy."""
    with _quiet():
        result = getattr(estimator, method)(_as_fitted(estimator, Z))
        result = result.toarray() if hasattr(result, "toarray") else result
        return to_numpy(result, "model outputs")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about names of columns, and about unusual vectors."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _as_fitted(estimator: Any, Z: Vectors) -> Any:
    """Return the batch as a data frame if the estimator was fitted to one."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or len(names) != Z.shape[1]:
        return Z
    try:
        import pandas as pd
    except ImportError:
        return Z
    return pd.DataFrame(Z, columns=list(names))


def _probes(dim: int, rows: int = _PROBES) -> list[Vectors]:
    """Return fixed vectors of many sizes: of both signs, positive, and of zeros and ones."""
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-1, 3, (rows, 1))
    normal = size * rng.standard_normal((rows, dim))
    return [normal, np.abs(normal), (normal > 0).astype(np.float64)]


def _predictions(estimator: Any, dim: int) -> tuple[Vectors, NDArray[Any]] | None:
    """Return probes that the estimator accepts with its predictions, or None.

    Some estimators accept only counts or categories.
    """
    for probes in _probes(dim):
        try:
            predicted = _called(estimator, "predict", probes)
        except Exception:
            continue
        return probes, predicted
    return None


def _class_names(classes: Any) -> tuple[str, ...] | None:
    """Return the names of classes, or None if they make no different names."""
    names = tuple(str(label)[:LONGEST_NAME] or "(empty)" for label in np.asarray(classes))
    return names if len(set(names)) == len(names) >= 2 else None


def _is_classifier(estimator: Any) -> bool:
    """Whether the estimator predicts one of the classes that it lists."""
    classes = getattr(estimator, "classes_", None)
    return classes is not None and hasattr(estimator, "predict") and not _is_regressor(estimator)


def _is_regressor(estimator: Any) -> bool:
    try:
        from sklearn.base import is_regressor
    except ImportError:
        return False
    try:
        return bool(is_regressor(estimator))
    except (AttributeError, TypeError):
        return False


# ---- Networks


def _layers_of(estimator: Any) -> Layers | None:
    """Return the network of a linear or MLP estimator, also behind affine transformers."""
    estimator = _unwrapped(estimator)
    name = type(estimator).__name__
    steps = getattr(estimator, "steps", None)
    if steps is not None and hasattr(estimator, "named_steps"):
        final = estimator[-1]
        layers = None if isinstance(final, str) else _layers_of(final)
        # A step may be "passthrough" or None: the first real transformer knows the dimension.
        sizes = [size for _, step in steps[:-1] if (size := _dimension(step)) is not None]
        real = [step for _, step in steps[:-1] if step is not None and not isinstance(step, str)]
        if layers is None or not real:
            return layers
        folded = _folded(estimator[:-1], layers, sizes[0] if sizes else estimator.n_features_in_)
        return None if folded is None else replace(folded, name=_name_of(estimator))
    layers = _read_weights(estimator, name)
    if layers is None or not _agrees(layers, estimator):
        return None
    if _is_classifier(estimator):
        return _with_classes(layers, estimator)
    return layers


def _read_weights(estimator: Any, name: str) -> Layers | None:
    """Read documented fitted attributes."""
    if hasattr(estimator, "coefs_") and hasattr(estimator, "intercepts_"):
        return Layers(
            [np.asarray(w).T for w in estimator.coefs_],
            estimator.intercepts_,
            activation=estimator.activation,
            name=name,
        )
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        coef = estimator.coef_
        coef = coef.toarray() if hasattr(coef, "toarray") else coef
        weight = np.atleast_2d(np.asarray(coef, dtype=np.float64))
        bias = np.broadcast_to(np.ravel(estimator.intercept_), weight.shape[:1])
        return Layers([weight], [bias], name=name)
    return None


def _agrees(layers: Layers, estimator: Any) -> bool:
    """Compare with the estimator's predictions: in some, ``coef_`` means something else."""
    Z = np.random.default_rng(0).standard_normal((20, layers.input_dim))
    outputs = layers.outputs(Z)
    if hasattr(estimator, "decision_function"):
        expected = _called(estimator, "decision_function", Z)
    elif hasattr(estimator, "predict_proba"):
        squash = {"softmax": lambda values: softmax(values, axis=1), "logistic": expit}
        outputs = squash[estimator.out_activation_](outputs)
        expected = _called(estimator, "predict_proba", Z)[:, -outputs.shape[1] :]
    else:
        expected = _called(estimator, "predict", Z)
    return expected.size == outputs.size and np.allclose(
        expected.reshape(outputs.shape), outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max()
    )


def _with_classes(layers: Layers, estimator: Any) -> Layers | None:
    """Return the network of a classifier with the names of its classes.

    A classifier of several labels at once has no single answer; its network keeps its outputs.
    """
    predicted = _called(estimator, "predict", np.zeros((1, layers.input_dim)))
    if predicted.ndim == 2 and predicted.shape[1] > 1:
        return layers
    names = _class_names(estimator.classes_)
    if len(layers.biases[-1]) == 1:
        layers = layers.with_two_outputs(names)
    elif len(layers.biases[-1]) == len(estimator.classes_):
        layers = replace(layers, answers=names)
    else:
        return None
    probes = _probes(layers.input_dim)[0]
    answers = np.asarray(estimator.classes_)[layers.outputs(probes).argmax(axis=1)]
    same = answers == _called(estimator, "predict", probes).reshape(-1)
    return layers if same.all() else None  # None: decisions other than by the largest value


def _folded(transformers: Any, layers: Layers, dim: int) -> Layers | None:
    """Return the network behind affine transformers as one network, or None if they are not affine.

    The matrix is measured along the coordinates, in steps that move the result as far as the shift
    does, so that no digits cancel. Then the map is compared on random vectors, column by column: a
    map that clips, squares or divides by the norm differs there.
    """
    if not _affine_by_design(transformers):
        return None
    try:
        shift = _transformed(transformers, np.zeros((1, dim)))[0]
        steps = _steps(transformers, shift, dim)
        matrix = ((_transformed(transformers, np.diag(steps)) - shift) / steps[:, None]).T
        rng = np.random.default_rng(0)
        for size in (1.0, 1e3, 1e8):
            Z = size * np.maximum(steps, 1.0) * rng.standard_normal((20, dim))
            expected = _transformed(transformers, Z)
            error = np.abs(Z @ matrix.T + shift - expected).max(axis=0)
            if not (error <= 1e-6 * np.abs(expected).max(axis=0)).all():
                return None
    except Exception:
        return None  # a transformer that rejects such vectors
    weight = layers.weights[0]
    return replace(
        layers,
        weights=[weight @ matrix, *layers.weights[1:]],
        biases=[weight @ shift + layers.biases[0], *layers.biases[1:]],
    )


def _affine_by_design(transformers: Any) -> bool:
    """Whether no part can treat single values apart, which no probe would find.

    A function of the user can, and an imputer of a value other than NaN does.
    """
    steps = [step for _, step in transformers.steps if step is not None]
    parts = [*steps, *transformers.get_params(deep=True).values()]
    parts = [part for part in parts if hasattr(part, "transform")]
    for part in parts:
        known = type(part).__module__.startswith("sklearn.")
        missing = getattr(part, "missing_values", np.nan)
        finite = missing is not None and not (isinstance(missing, float) and np.isnan(missing))
        if not known or finite or getattr(part, "func", None) is not None:
            return False
    return True


def _steps(transformers: Any, shift: Vectors, dim: int) -> Vectors:
    """Return a step along every coordinate that moves the result about as far as the shift."""
    steps, largest = np.ones(dim), np.abs(shift).max()
    for exponent in range(3, 31, 3):
        moved = np.abs(_transformed(transformers, np.diag(steps)) - shift).max(axis=1)
        small = moved < largest
        if not small.any():
            break
        steps[small] = 10.0**exponent
    moved = np.abs(_transformed(transformers, np.diag(steps)) - shift).max(axis=1)
    return np.where(moved > 0, steps, 1.0)  # some coordinates are not used


def _transformed(transformers: Any, Z: Vectors) -> Vectors:
    result: Vectors = _called(transformers, "transform", Z).astype(np.float64)
    return result


# ---- Other estimators


class EstimatorModel:
    """A fitted estimator as a task: its scores for every class, or its predictions.

    For a classifier the largest output is the class that ``predict`` returns. The outputs are those
    of ``decision_function`` if its largest value is the predicted class on probe vectors, else of
    ``predict_joint_log_proba`` or ``predict_proba``; where they differ from ``predict``, and if
    there are none, 1 for the predicted class and 0 for the others. A binary classifier with one
    decision value t has the outputs (−t/2, t/2). For a regressor they are its predictions.

    Jacobians are central differences. An estimator that is piecewise constant, such as a forest, or
    one with discontinuous scores raises :class:`~offaxis.errors.UnsupportedModel` where one is
    required: its answer can be released, but it has no geometry.

    Parameters
    ----------
    estimator : fitted estimator
        With ``predict`` or ``predict_proba``; not necessarily of scikit-learn.
    dim : int, optional
        Dimension m of the vectors, if the estimator has no ``n_features_in_``.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from offaxis.geometry.sklearn_model import EstimatorModel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> labels = np.where(X[:, 0] > 0, "up", "down")
    >>> forest = RandomForestClassifier(10, random_state=0).fit(X, labels)
    >>> task = EstimatorModel(forest)
    >>> task.answers[task.outputs(np.array([[2.0, 0.0, 0.0]])).argmax()]
    'up'
    """

    def __init__(self, estimator: Any, dim: int | None = None) -> None:
        self._estimator = estimator
        self._name = _name_of(estimator)
        self._identity: ModelIdentity | None = None
        self._dim = _dimension(estimator) if dim is None else dim
        self.answers: tuple[str, ...] | None = None
        self._classes: NDArray[Any] | None = None
        self._differentiable = False
        self._probed: tuple[tuple[Vectors, NDArray[Any]] | None] | None = None
        self._source: str | None = None
        if _is_classifier(estimator):
            self._read_classes()
        elif not hasattr(estimator, "predict") and not hasattr(estimator, "predict_proba"):
            raise UnsupportedModel(f"the {self._name} has neither predict nor predict_proba")
        elif not hasattr(estimator, "predict_proba"):
            self._check_predictions()

    @property
    def estimator(self) -> Any:
        """The estimator."""
        return self._estimator

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, if the estimator states it."""
        return self._dim

    def _read_classes(self) -> None:
        classes = self._estimator.classes_
        if isinstance(classes, list) and any(np.ndim(part) for part in classes):
            raise self._several_answers()
        self._classes = np.asarray(classes)
        if self._classes.ndim != 1 or len(self._classes) < 2:
            raise InvalidInput(
                f"the {self._name} knows {self._classes.size} classes; a classifier needs two or "
                f"more: fit it on public data with different labels"
            )
        if self._dim is not None:
            probed = self._probe(self._dim)
            if probed is not None and probed[1].size != len(probed[1]):
                raise self._several_answers()
        self.answers = _class_names(self._classes)

    def _probe(self, dim: int) -> tuple[Vectors, NDArray[Any]] | None:
        """Return probes with the predictions for them, made once."""
        if self._probed is None:
            self._probed = (_predictions(self._estimator, dim),)
        return self._probed[0]

    def _several_answers(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"the {self._name} predicts several labels per vector; pass one model per label "
            f'(offaxis.recommend({{"first": …, "second": …}}, public, …)) or a function that '
            f"returns one score per combination"
        )

    def _check_predictions(self) -> None:
        """Reject an estimator that predicts labels but does not list them."""
        try:
            from sklearn.base import BaseEstimator
        except ImportError:
            return
        if isinstance(self._estimator, BaseEstimator) and not _is_regressor(self._estimator):
            raise UnsupportedModel(
                f"no adapter for the scikit-learn estimator {self._name}: it is neither a "
                f"classifier nor a regressor; pass a function of a batch that returns scores, "
                f"(n, k), such as its decision_function or −transform"
            )

    # -- Outputs

    def _scores(self, Z: Vectors) -> Vectors:
        """Return the outputs of the source, chosen at the first call."""
        if self._classes is None:
            is_proba = hasattr(self._estimator, "predict_proba")
            values = _called(self._estimator, "predict_proba" if is_proba else "predict", Z)
            return _as_columns(values)
        if self._source is None:
            self._source = self._choose_source(Z.shape[1])
        if self._source == "predict":
            return self._one_hot(self._predicted(Z))
        scores = _as_columns(_called(self._estimator, self._source, Z).astype(np.float64))
        return scores * np.array([-0.5, 0.5]) if scores.shape[1] == 1 else scores

    def _predicted(self, Z: Vectors) -> NDArray[Any]:
        return _called(self._estimator, "predict", Z).reshape(-1)

    def _one_hot(self, labels: NDArray[Any]) -> Vectors:
        assert self._classes is not None
        same: Vectors = (labels[:, None] == self._classes[None, :]).astype(np.float64)
        if not (same.sum(axis=1) == 1).all():
            raise InvalidInput(
                f"the {self._name} predicted a label that is not one of its classes_, "
                f"{', '.join(map(str, self._classes))[:200]}"
            )
        return same

    def _choose_source(self, dim: int) -> str:
        """Return the method whose largest output is the predicted class."""
        assert self._classes is not None
        # libsvm predicts the class with the most votes and breaks ties by its index; its scores
        # break them by confidence.
        votes = getattr(self._estimator, "break_ties", None) is False and len(self._classes) > 2
        probed = None if votes else self._probe(dim)
        if probed is None:
            return "predict"
        probes, predicted = probed
        for method in ("decision_function", "predict_joint_log_proba", "predict_proba"):
            try:
                if not hasattr(self._estimator, method):
                    continue
                scores = _as_columns(_called(self._estimator, method, probes))
            except Exception:
                continue  # offered, but not for these settings
            if scores.shape[1] == 1 and len(self._classes) == 2:
                scores = scores * np.array([-0.5, 0.5])
            if scores.shape == (len(probes), len(self._classes)) and np.isfinite(scores).all():
                answers = self._classes[scores.argmax(axis=1)]
                if (answers == predicted.reshape(-1)).all():
                    return method
        return "predict"

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the scores or predictions, (n, k)."""
        if self._dim is None:
            self._dim = int(Z.shape[1])
        scores = FiniteDifferences(self._scores, name=self._name).outputs(Z)
        if self._classes is None or self._source == "predict":
            return scores
        # A tuned threshold or a vote decides otherwise than the largest score.
        predicted = self._one_hot(self._predicted(Z))
        differ = scores.argmax(axis=1) != predicted.argmax(axis=1)
        return np.where(differ[:, None], predicted, scores) if differ.any() else scores

    # -- Identity

    def identity(self) -> ModelIdentity:
        """Hash the class name, the classes and the predictions on fixed probe vectors.

        Equal estimators have equal identities in every process, since neither parameters nor the
        library's version enter; predictions of a regressor are rounded to six digits. Two
        estimators that predict the same on all 512 probes have the same identity although they may
        differ elsewhere: it detects another model, a retrained one for example, but no deliberate
        forgery.
        """
        if self._identity is None:
            self._identity = ModelIdentity("sklearn", self._name, self._hash())
        return self._identity

    def _hash(self) -> str:
        if self._dim is None:
            raise InvalidInput(
                f"the dimension of the vectors of the {self._name} is unknown; pass "
                f"offaxis.geometry.sklearn_model.EstimatorModel(estimator, dim=m)"
            )
        classes = None if self._classes is None else [str(label) for label in self._classes]
        digest = hashlib.sha256(repr((self._name, self._dim, classes)).encode())
        if hasattr(self._estimator, "predict"):
            probed = self._probe(self._dim)
            digest.update(b"no predictions" if probed is None else self._summary(probed[1]))
        else:
            digest.update(self._summary(self._scores(_probes(self._dim)[0])))
        return digest.hexdigest()

    def _summary(self, predicted: NDArray[Any]) -> bytes:
        if self._classes is not None:
            return "\n".join(str(label) for label in predicted.reshape(-1)).encode()
        numbers = np.asarray(predicted, dtype=np.float64).reshape(-1)
        return "\n".join(f"{number:.5e}" for number in numbers).encode()

    # -- Derivatives

    def _differences(self, Z: Vectors) -> FiniteDifferences:
        """Return the scores as a function with differences, if they have a derivative."""
        function = FiniteDifferences(self._scores, name=self._name)
        if not self._differentiable:
            check_differentiable(function, Z)
            self._differentiable = True
        return function

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return central differences along every coordinate, (n, k, m)."""
        return self._differences(Z).jacobians(Z)

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector."""
        return self._differences(Z).vjp(Z, G)

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return gram_of(self.jacobians(Z))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim


def _dimension(estimator: Any) -> int | None:
    for name in ("n_features_in_", "n_features_", "n_features"):
        value = getattr(estimator, name, None)
        if isinstance(value, int | np.integer) and value > 0:
            return int(value)
    return None


def _as_columns(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, None] if values.ndim == 1 else values
