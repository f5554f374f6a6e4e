"""Learn a public model from reports of vectors and private answers.

Contract: a model is a function of reports and public vectors, so it costs no privacy beyond that of
the reports. Everything that reports tell about the answers is in sums (:class:`PairSums`).

* *Cells*: the reported table of cells by answers; a model answers with the largest of a row.
* *Moments*: M = E[a(y) xᵀ], estimated without bias with noise of a known size, s²I/n. With C =
  E[x xᵀ] of the public vectors the coefficients of least squares are M C⁻¹. The model uses their
  posterior mean under the prior N(0, τ²I) (docs/proofs.md §25),

      B = τ² M C (τ² C² + s²/n I)⁻¹,

  averaged over the posterior of τ, which is zero with probability one half before the reports.
  ``method="logistic"`` fits a logistic model to the same moments; it is convex, and needs the
  public vectors.

The model is linear in public features, and so can be no better than the best such model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, softmax

from offaxis.encoding.encoders import NetworkMap, tame
from offaxis.encoding.pairs import (
    Asked,
    CellsEncoder,
    Classes,
    MomentsEncoder,
    Number,
)
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.geometry.public import evenly
from offaxis.learning.moments import ExpectedAccuracy, Moments, constant_feature, logistic
from offaxis.learning.sums import none_missing, pair_encoder_of, pair_sums
from offaxis.learning.tables import Table, projected
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_batch, as_number

Method = Literal["least squares", "logistic"]

_PUBLIC: Final = 4_000
"""Public vectors that a logistic model is fitted on."""

_CONVINCING: Final = 0.95
"""The least posterior probability that there is anything to learn, to call it evidence."""

_STEEP: Final = 1e4
_MOST_EXPORTED: Final = 128
"""The most cells of a model that is exported as a network."""


def learn(
    release: Release,
    reports: Any,
    *,
    labels: Any = None,
    answers: Any = None,
    answer: str | None = None,
    method: Method | None = None,
    public: Any = None,
) -> ReportClassifier | ReportRegressor:
    """Learn a model from reports: a classifier, or a regressor if the answer is a number.

    Parameters
    ----------
    release : Release
        Of pairs: that of a plan (:func:`offaxis.plan_learning`), or of
        :func:`~offaxis.learning.fit_pairs`.
    reports : iterable of bytes, or PairSums
        One report per person, or their sums.
    labels : sequence, optional
        Public labels, one per report, if the release asks for no answer.
    answers : Classes or Number, optional
        What the public labels are; by default their classes.
    answer : str, optional
        Which answer to predict, if people gave several.
    method : {"least squares", "logistic"}, optional
        For moments; least squares by default.
    public : array (n, m), optional
        Public vectors, for "logistic".

    Returns
    -------
    ReportClassifier or ReportRegressor

    The same report given twice counts as two people: collectors store each report once, but this
    function cannot know whether two equal ones come from one person.

    Raises
    ------
    InvalidInput
        If the reports or labels do not belong to the release.
    InvalidReport
        If a report is damaged or of another release.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.learning import fit_pairs, principal
    >>> rng = np.random.default_rng(0)
    >>> people, public = rng.standard_normal((4000, 5)), rng.standard_normal((1000, 5))
    >>> answers = np.where(people[:, 0] > 0, "yes", "no")
    >>> release = fit_pairs(principal(public), ["no", "yes"], epsilon=2)
    >>> reports = release.privatize(people, answers=answers)  # on each person's device
    >>> model = offaxis.learn(release, reports)
    >>> bool(model.score(people, answers) > 0.85)
    True
    >>> model.layers_  # a public network, for devices or as the head of another release
    Layers(5→5→2, normalise)
    """
    if not isinstance(release, Release):
        raise InvalidInput(f"a release is needed, got an object of type {type(release).__name__}")
    sums = pair_sums(release, reports, labels, answers)
    asked = _answer_of(release, sums.labels, answer)
    if isinstance(asked, Number):
        if method not in (None, "least squares"):
            raise InvalidInput("numbers are learnt by least squares: leave out the method")
        return ReportRegressor(release, answer=answer).fit(sums)
    return ReportClassifier(release, answer=answer, method=method, public=public).fit(sums)


def _answer_of(release: Release, labels: Asked | None, name: str | None) -> Asked:
    """Return what is predicted."""
    pair_encoder_of(release)
    listed = (labels,) if labels is not None else release.asked
    if not listed:
        raise InvalidInput(
            "the reports of this release hold vectors and no answers: pass public labels"
        )
    if name is None:
        if len(listed) > 1:
            names = ", ".join(repr(part.name) for part in listed)
            raise InvalidInput(f"people gave several answers: pass answer=..., one of {names}")
        return listed[0]
    for part in listed:
        if part.name == name:
            return part
    raise InvalidInput(f"the release asks for no answer named {name!r}")


# ---- Estimators


class _Estimator:
    """What the estimators share, in the manner of scikit-learn."""

    _settings: ClassVar[tuple[str, ...]] = ("release", "answer")
    release: Release
    layers_: Layers
    report_count_: int

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, as scikit-learn's ``clone`` reads them."""
        return {name: getattr(self, name) for name in self._settings}

    def set_params(self, **settings: Any) -> Self:
        """Change settings."""
        for name, value in settings.items():
            if name not in self._settings:
                raise InvalidInput(f"{type(self).__name__} has no setting {name!r}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the model has been learnt."""
        return hasattr(self, "report_count_")

    @property
    def n_features_in_(self) -> int:
        """Dimension of a vector."""
        return pair_encoder_of(self.release).vector_dim

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise InvalidInput("this model has not been learnt yet: call fit(reports)")

    def _batch(self, vectors: Any) -> Vectors:
        self._require_fitted()
        return tame(as_batch(vectors, self.n_features_in_)[0])

    def _public(self, public: Any) -> Vectors:
        sample = evenly(public, _PUBLIC)
        if sample.shape[1] != self.n_features_in_:
            raise InvalidInput(
                f"public vectors have {sample.shape[1]} dimensions, the model takes "
                f"{self.n_features_in_}"
            )
        return tame(sample)

    def save(self, path: str | Path) -> None:
        """Write the model to a weights file that :meth:`offaxis.geometry.Layers.load` reads."""
        self._require_fitted()
        if not hasattr(self, "layers_"):
            raise InvalidInput(
                f"a model of more than {_MOST_EXPORTED} cells is not written as a network; "
                f"offaxis.integrations.onnx.model_to_onnx writes it as a table"
            )
        self.layers_.save(path)


class ReportClassifier(_Estimator):
    """A classifier learnt from reports.

    Parameters
    ----------
    release, answer, method, public
        As in :func:`learn`.

    Attributes
    ----------
    classes_ : array
    layers_ : Layers
        The public model: vectors to one output per class. The largest output is the answer.
    report_count_ : int
    evidence_ : bool
        Whether the reports show that there is anything to learn.

    Examples
    --------
    >>> from offaxis.learning import ReportClassifier, cells, fit_pairs
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(3, size=5000)
    >>> people = 6 * np.eye(3)[group] + rng.standard_normal((5000, 3))
    >>> release = fit_pairs(cells(people[:500]), 3, epsilon=2)
    >>> reports = release.privatize(people[500:], answers=group[500:])
    >>> model = ReportClassifier(release).fit(reports)
    >>> model.predict(6 * np.eye(3))
    array([0, 1, 2])
    >>> bool(model.expected_accuracy().high > 0.9)
    True
    """

    _settings = ("release", "answer", "method", "public")
    _estimator_type = "classifier"

    def __init__(
        self,
        release: Release,
        *,
        answer: str | None = None,
        method: Method | None = None,
        public: Any = None,
    ) -> None:
        self.release, self.answer, self.method, self.public = release, answer, method, public

    def __repr__(self) -> str:
        """Return for example ``ReportClassifier(10 classes, from 40000 reports)``."""
        if not self.__sklearn_is_fitted__():
            return "ReportClassifier(not fitted)"
        return f"ReportClassifier({len(self.classes_)} classes, from {self.report_count_} reports)"

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of a classifier."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            "classifier",
            TargetTags(False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(),
        )

    def fit(self, reports: Any, labels: Any = None) -> Self:
        """Learn from reports or their sums, with public labels if the release asks for none."""
        sums = pair_sums(self.release, reports, labels)
        asked = _answer_of(self.release, sums.labels, self.answer)
        if not isinstance(asked, Classes):
            raise InvalidInput("this answer is a number: use ReportRegressor")
        if not sums.count:
            raise InvalidInput("there are no reports to learn from")
        if self.public is not None and self.method != "logistic":
            raise InvalidInput("public vectors are for method='logistic': leave out public")
        names = asked.names
        numbered = names == tuple(map(str, range(len(names))))
        self.classes_ = np.arange(len(names)) if numbered else np.array(names)
        encoder = pair_encoder_of(self.release)
        if isinstance(encoder, CellsEncoder):
            if self.method is not None:
                raise InvalidInput("cells have one method: leave out method")
            self._learn_cells(Table.of(sums, asked, encoder), encoder, names)
        else:
            assert isinstance(encoder, MomentsEncoder)
            self._learn_moments(Moments.of(sums, asked, encoder), encoder, names)
        self.report_count_ = sums.count
        return self

    def _learn_cells(self, table: Table, encoder: CellsEncoder, names: tuple[str, ...]) -> None:
        self._fitted: Table | Moments = table
        self.table_ = table.probabilities()
        self.evidence_ = table.evidence()
        self._network = _network_of(encoder)
        if len(self.table_) <= _MOST_EXPORTED:
            self.layers_ = _cells_as_layers(self._network, self.table_, names)

    def _learn_moments(
        self, moments: Moments, encoder: MomentsEncoder, names: tuple[str, ...]
    ) -> None:
        self._fitted = moments
        k, posterior = len(names), moments.posterior()
        self.evidence_ = posterior.evidence > _CONVINCING
        weight = moments.turn @ posterior.slopes
        bias = 1 / k + moments.turn @ posterior.offset
        if self.method == "logistic":
            if self.public is None:
                raise InvalidInput("a logistic model needs the public vectors: pass public=...")
            features = _network_of(encoder).outputs(self._public(self.public))
            weight, bias = logistic(features, moments.class_moments(posterior))
        elif self.method not in (None, "least squares"):
            raise InvalidInput(f"method must be 'least squares' or 'logistic', got {self.method!r}")
        self.coef_ = weight
        self._network = _network_of(encoder)
        self.layers_ = replace(_append(self._network, weight, bias), answers=names)

    def decision_function(self, vectors: Any) -> Vectors:
        """Return the outputs of the model, (n, k)."""
        batch = self._batch(vectors)
        if isinstance(self._fitted, Table):
            table: Vectors = self.table_[self._network.outputs(batch).argmax(axis=1)]
            return table
        return self.layers_.outputs(batch)

    def predict(self, vectors: Any) -> NDArray[Any]:
        """Return the answer for each vector, (n,)."""
        chosen = self.decision_function(vectors).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    def predict_proba(self, vectors: Any) -> Vectors:
        """Return probabilities of the classes, (n, k), for people like those who reported.

        Those of a linear model are its outputs, projected onto probabilities. From moments of
        answers that people may not have there are none: moments do not tell how many had one.
        """
        fitted = getattr(self, "_fitted", None)
        if isinstance(fitted, Moments) and fitted.optional:
            raise InvalidInput(
                "moments do not tell how many people had no answer, so there are no probabilities: "
                "use predict(), or cells"
            )
        outputs = self.decision_function(vectors)
        if self.method == "logistic":
            probabilities: Vectors = softmax(outputs, axis=1)
            return probabilities
        return projected(outputs)

    def score(self, vectors: Any, labels: Any) -> float:
        """Return the accuracy on vectors with labels, names or indices of classes."""
        predicted, labels = self.predict(vectors), none_missing(labels, "labels")
        if len(labels) != len(predicted):
            raise InvalidInput(f"there are {len(predicted)} vectors and {len(labels)} labels")
        own = Classes([str(name) for name in self.classes_]).codes_of(labels).astype(np.int64)
        return float((predicted == self.classes_[own]).mean())

    def expected_accuracy(self, public: Any = None, level: float = 0.95) -> ExpectedAccuracy:
        """Return how often the model is expected to be right, with an interval.

        Each fold of the reports judges the model from the other folds, so it is the accuracy of a
        model from four fifths of the reports. Of cells, this assumes nothing about people. Of
        moments, it assumes that ``public`` vectors are like people's, and that the chances of the
        answers are linear in the features; it is too low where they are steeper. To know, ask other
        people (:func:`~offaxis.learning.fit_check`).

        Parameters
        ----------
        public : array (n, m)
            Public vectors, for models from moments.
        level : float
        """
        level = _level(level)
        self._require_fitted()
        if isinstance(self._fitted, Table):
            return self._fitted.accuracy(level)
        if public is None:
            raise InvalidInput(
                "the moments alone do not tell how often a model is right: pass public vectors for "
                "an estimate under assumptions, or ask other people with fit_check()"
            )
        return self._fitted.accuracy(self._network.outputs(self._public(public)), level)


class ReportRegressor(_Estimator):
    """A linear model of a number, learnt from reports.

    Parameters
    ----------
    release, answer
        As in :func:`learn`.

    Attributes
    ----------
    coef_ : (d,) array
        Posterior means of the coefficients of the features (``offaxis.learning.FeatureMap.of``), in
        units of the answer. What does not depend on the vector is in ``layers_``.
    estimate_, standard_error_ : (d,) arrays
        The coefficients of least squares, not shrunk, with standard errors. Without a constant
        feature they are slopes, about the mean of public numbers.
    layers_ : Layers
    report_count_ : int
    evidence_ : bool

    Examples
    --------
    >>> from offaxis.learning import Number, ReportRegressor, fit_pairs, principal
    >>> rng = np.random.default_rng(0)
    >>> people = rng.standard_normal((5000, 3))
    >>> hours = 4 + people[:, 0]
    >>> release = fit_pairs(principal(people[:500]), Number(0, 8), epsilon=2)
    >>> reports = release.privatize(people[500:], answers=hours[500:])
    >>> model = ReportRegressor(release).fit(reports)
    >>> model.predict(np.eye(3)[:1]).shape
    (1,)
    """

    _estimator_type = "regressor"

    def __init__(self, release: Release, *, answer: str | None = None) -> None:
        self.release, self.answer = release, answer

    def __repr__(self) -> str:
        """Return for example ``ReportRegressor(13 features, from 40000 reports)``."""
        if not self.__sklearn_is_fitted__():
            return "ReportRegressor(not fitted)"
        return f"ReportRegressor({len(self.coef_)} features, from {self.report_count_} reports)"

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of a regressor."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            "regressor", TargetTags(False), regressor_tags=RegressorTags(), input_tags=InputTags()
        )

    def fit(self, reports: Any, labels: Any = None) -> Self:
        """Learn from reports or their sums."""
        sums = pair_sums(self.release, reports, labels)
        asked = _answer_of(self.release, sums.labels, self.answer)
        if not isinstance(asked, Number):
            raise InvalidInput("this answer is a class: use ReportClassifier")
        if asked.optional:
            raise InvalidInput(
                f"reports do not tell missing numbers from middling ones: a model of {asked.name!r}"
                f" needs a release that asks everybody for it, or asks for classes"
            )
        if not sums.count:
            raise InvalidInput("there are no reports to learn from")
        encoder = pair_encoder_of(self.release)
        assert isinstance(encoder, MomentsEncoder)
        moments = self._moments = Moments.of(sums, asked, encoder)
        posterior = moments.posterior()
        half, middle = (asked.high - asked.low) / 2, (asked.high + asked.low) / 2
        self.evidence_ = posterior.evidence > _CONVINCING
        self.coef_ = half * posterior.slopes[0]
        estimate, error = moments.least_squares()
        self.estimate_, self.standard_error_ = half * estimate[0], half * error[0]
        constant = constant_feature(moments.second, moments.mean)
        if constant is not None:  # the moments are those of numbers less the middle of their range
            self.estimate_[constant] += middle / moments.mean[constant]
        self._half = half
        offset = middle + half * posterior.offset
        self.layers_ = _append(_network_of(encoder), self.coef_[None], offset)
        self.report_count_ = sums.count
        return self

    def predict(self, vectors: Any) -> Vectors:
        """Return the predicted number for each vector, (n,)."""
        batch = self._batch(vectors)
        return self.layers_.outputs(batch)[:, 0]

    def score(self, vectors: Any, numbers: Any) -> float:
        """Return R² on vectors with numbers."""
        numbers, predicted = as_array(numbers, "numbers"), self.predict(vectors)
        if numbers.shape != predicted.shape:
            raise InvalidInput(
                f"there are {len(predicted)} vectors and numbers of shape {numbers.shape}"
            )
        error, spread = ((predicted - numbers) ** 2).mean(), numbers.var()
        # As scikit-learn has it for numbers that are all equal.
        return float(1 - error / spread) if spread > 0 else float(error == 0)

    def interval(self, level: float = 0.95) -> tuple[Vectors, Vectors]:
        """Return confidence intervals of the coefficients of least squares among people.

        Each covers its coefficient with about this probability, if the features have the same
        second moments among people as among the public vectors.
        """
        self._require_fitted()
        reach = float(ndtri((1 + _level(level)) / 2)) * self.standard_error_
        return self.estimate_ - reach, self.estimate_ + reach

    def explained_deviation(self) -> float:
        """Return the standard deviation of the answers that the model explains; 0 if none.

        Each fold of the reports judges the coefficients from the others.
        """
        self._require_fitted()
        return self._half * math.sqrt(max(0.0, self._moments.explained()))


# ---- Networks


def _network_of(encoder: NetworkMap) -> Layers:
    """Return the feature map of a release."""
    return Layers(encoder.weights, encoder.biases, encoder.activation, name="learnt")


def _append(network: Layers, weight: Vectors, bias: Vectors) -> Layers:
    """Return ``weight x + bias`` of the network's outputs x, which are affine."""
    last, shift = network.weights[-1], network.biases[-1]
    return replace(
        network,
        weights=[*network.weights[:-1], weight @ last],
        biases=[*network.biases[:-1], weight @ shift + bias],
    )


def _cells_as_layers(network: Layers, table: Vectors, names: tuple[str, ...]) -> Layers:
    """Return the rows of a table for the largest output of a network, as a network.

    Cell i wins against j by min(max(β(s_i − s_j), 0), 1), the difference of two rectified units;
    who wins against all others is the largest.
    """
    cells = len(table)
    first, second = np.nonzero(~np.eye(cells, dtype=bool))
    gap = np.zeros((len(first), cells))
    gap[np.arange(len(first)), first] = _STEEP
    gap[np.arange(len(first)), second] = -_STEEP
    compared = _append(network, np.vstack([gap, gap]), np.repeat([0.0, -1.0], len(first)))
    wins = np.zeros((cells, len(first)))
    wins[first, np.arange(len(first))] = 1.0
    names_of = (*network.activations, "relu", "relu")
    return Layers(
        [*compared.weights, np.hstack([wins, -wins]), table.T],
        [*compared.biases, np.full(cells, 2.0 - cells), np.zeros(len(names))],
        "+".join(names_of),
        name="learnt",
        answers=names,
    )


def _level(level: Any) -> float:
    level = as_number(level, "level")
    if not 0 < level < 1:
        raise InvalidInput(f"level must be between 0 and 1, got {level!r}")
    return float(level)
