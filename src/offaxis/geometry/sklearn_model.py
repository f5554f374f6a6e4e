"""scikit-learn estimators as public tasks: linear models and multi-layer perceptrons.

The task is what the estimator computes before any squashing: decision values or predictions. Only
documented fitted attributes are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
    if hasattr(estimator, "coefs_") and hasattr(estimator, "intercepts_"):
        return Layers(
            [np.asarray(w).T for w in estimator.coefs_],
            estimator.intercepts_,
            activation=estimator.activation,
            name=name,
        )
    if hasattr(estimator, "coef_") and not hasattr(estimator, "support_vectors_"):
        weight = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
        bias = np.broadcast_to(np.ravel(getattr(estimator, "intercept_", 0.0)), weight.shape[:1])
        return Layers([weight], [bias], name=name)
    raise UnsupportedModel(
        f"no adapter for the scikit-learn estimator {name}: linear models and MLPs are read "
        f"directly; for others wrap its decision function as "
        f"offaxis.geometry.FiniteDifferences(estimator.decision_function)"
    )
