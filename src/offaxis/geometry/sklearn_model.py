"""scikit-learn estimators as public tasks: linear models and multi-layer perceptrons.

The task is what the estimator computes before any squashing: decision values or predictions. Only
documented fitted attributes are read.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry.layers import Layers


def layers_of(estimator: Any) -> Layers:
    """Read the weights off a fitted linear or MLP estimator."""
    name = type(estimator).__name__
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise InvalidInput(f"the {name} is not fitted; fit it on public data first") from None
    layers = _read(estimator, name)
    if layers is not None and _agrees(layers, estimator):
        return layers
    raise UnsupportedModel(
        f"no adapter for the scikit-learn estimator {name}: linear models and MLPs are read "
        f"directly; for others wrap a function of a batch, before any softmax, as "
        f"offaxis.geometry.FiniteDifferences(estimator.decision_function)"
    )


def _read(estimator: Any, name: str) -> Layers | None:
    if hasattr(estimator, "coefs_") and hasattr(estimator, "intercepts_"):
        return Layers(
            [np.asarray(w).T for w in estimator.coefs_],
            estimator.intercepts_,
            activation=estimator.activation,
            name=name,
        )
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        weight = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
        bias = np.broadcast_to(np.ravel(estimator.intercept_), weight.shape[:1])
        return Layers([weight], [bias], name=name)
    return None


def _agrees(layers: Layers, estimator: Any) -> bool:
    """Compare with the estimator's own answers: some have weights that mean something else."""
    Z = np.random.default_rng(0).standard_normal((20, layers.input_dim))
    outputs = layers.outputs(Z)
    with warnings.catch_warnings():
        # An estimator fitted to a data frame remarks that these rows have no column names.
        warnings.simplefilter("ignore", UserWarning)
        if hasattr(estimator, "decision_function"):
            wanted = estimator.decision_function(Z)
        elif hasattr(estimator, "predict_proba"):
            squash = {"softmax": partial(softmax, axis=1), "logistic": expit}
            outputs = squash[estimator.out_activation_](outputs)
            wanted = estimator.predict_proba(Z)[:, -outputs.shape[1] :]
        else:
            wanted = estimator.predict(Z)
    wanted = np.asarray(wanted)
    return wanted.size == outputs.size and np.allclose(
        wanted.reshape(outputs.shape), outputs, rtol=1e-4, atol=1e-4 * np.abs(outputs).max()
    )
