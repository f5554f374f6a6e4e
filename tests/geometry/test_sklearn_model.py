"""Scikit-learn estimators as tasks: the largest output is the predicted class, for every kind."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, SVR
from sklearn.utils import all_estimators

import offaxis
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import FiniteDifferences, Layers, answer_names, as_task_model
from offaxis.geometry.sklearn_model import EstimatorModel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 5))
Y = X @ RNG.standard_normal((5, 3))
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
NAMES = np.where(BENIGN > 0, "benign", "malignant")

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::FutureWarning"
)


def predicted(task, Z):
    return np.array(answer_names(task))[task.outputs(Z).argmax(axis=1)]


# ---- Networks


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge()])
def test_the_outputs_of_linear_regression_are_its_predictions(estimator):
    estimator.fit(X, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(X))


def test_a_single_output_regression_has_one_row():
    estimator = LinearRegression().fit(X, Y[:, 0])
    task = as_task_model(estimator)
    assert np.allclose(task.outputs(X)[:, 0], estimator.predict(X))
    assert answer_names(task) is None


def test_logistic_regression_is_read_before_the_softmax():
    digits = load_digits()
    estimator = LogisticRegression(max_iter=3000).fit(digits.data / 16, digits.target)
    task = as_task_model(estimator)
    assert np.allclose(
        task.outputs(digits.data / 16), estimator.decision_function(digits.data / 16)
    )
    assert answer_names(task) == tuple("0123456789")


def test_a_binary_classifier_has_two_outputs():
    estimator = LogisticRegression().fit(X, np.where(Y[:, 0] > 0, "yes", "no"))
    task = as_task_model(estimator)
    t = estimator.decision_function(X)
    assert np.allclose(task.outputs(X), np.stack([-t / 2, t / 2], axis=1))
    assert answer_names(task) == ("no", "yes")
    assert (predicted(task, X) == estimator.predict(X)).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_perceptrons_are_read_layer_by_layer(activation):
    estimator = MLPRegressor(
        hidden_layer_sizes=(7, 4), activation=activation, max_iter=20, random_state=0
    ).fit(X, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(X))


@pytest.mark.parametrize("labels", [Y.argmax(1), Y[:, 0] > 0])
def test_a_classifying_perceptron_gives_logits(labels):
    estimator = MLPClassifier(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, labels)
    logits = as_task_model(estimator).outputs(X)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(softmax, estimator.predict_proba(X))


def test_a_multilabel_perceptron_has_one_logit_per_label():
    labels = (Y[:, :2] > 0).astype(int)
    estimator = MLPClassifier(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, labels)
    task = as_task_model(estimator)
    assert np.allclose(1 / (1 + np.exp(-task.outputs(X))), estimator.predict_proba(X))
    assert answer_names(task) is None


def test_an_estimator_fitted_to_a_data_frame_is_read_without_a_warning():
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = LinearRegression().fit(frame, Y)
    assert np.allclose(as_task_model(estimator).outputs(X), estimator.predict(frame))
    forest = RandomForestClassifier(3, random_state=0).fit(frame, Y.argmax(1))
    assert (predicted(as_task_model(forest), X) == forest.predict(frame).astype(str)).all()


# ---- Pipelines and searches


def logistic():
    return LogisticRegression(max_iter=300)


FOLDED = {
    "scaler": make_pipeline(StandardScaler(), logistic()),
    "range": make_pipeline(MinMaxScaler(), RidgeClassifier()),
    "components": make_pipeline(
        StandardScaler(), PCA(5, whiten=True), MLPClassifier((8,), max_iter=9)
    ),
    "selection": make_pipeline(SelectKBest(k=4), RobustScaler(), logistic()),
    "imputer": make_pipeline(SimpleImputer(), StandardScaler(), logistic()),
    "union": make_pipeline(FeatureUnion([("a", StandardScaler()), ("b", PCA(2))]), logistic()),
    "columns": make_pipeline(
        ColumnTransformer([("a", StandardScaler(), [0, 3]), ("b", "passthrough", [5])]), logistic()
    ),
    "passthrough": Pipeline([("a", "passthrough"), ("b", StandardScaler()), ("c", logistic())]),
    "one step": Pipeline([("a", logistic())]),
    "nested": make_pipeline(StandardScaler(), Pipeline([("a", PCA(4)), ("b", logistic())])),
    "search": GridSearchCV(
        make_pipeline(StandardScaler(), logistic()), {"logisticregression__C": [1]}
    ),
    "search inside": make_pipeline(StandardScaler(), GridSearchCV(logistic(), {"C": [1.0, 2.0]})),
}


@pytest.mark.parametrize("name", FOLDED)
def test_affine_transformers_are_folded_into_the_first_layer(name):
    estimator = FOLDED[name].fit(CANCER, NAMES)
    task = as_task_model(estimator)
    assert isinstance(task, Layers)
    assert task.answers == ("benign", "malignant")
    assert (predicted(task, CANCER) == estimator.predict(CANCER)).all()
    assert (predicted(task, -CANCER) == estimator.predict(-CANCER)).all()
    if name in ("scaler", "selection"):
        t = estimator.decision_function(CANCER)
        assert np.allclose(np.diff(task.outputs(CANCER))[:, 0], t, rtol=1e-6, atol=1e-6)
    frozen = as_task_model(FrozenEstimator(estimator))
    assert frozen.identity() == task.identity()


def test_columns_by_name_are_folded_too():
    frame = pd.DataFrame(CANCER, columns=[f"c{i}" for i in range(30)])
    columns = ColumnTransformer([("a", StandardScaler(), ["c0", "c7"])])
    estimator = make_pipeline(columns, logistic()).fit(frame, NAMES)
    task = as_task_model(estimator)
    assert isinstance(task, Layers)
    assert (predicted(task, CANCER) == estimator.predict(frame)).all()


BENT = {
    "norm": make_pipeline(Normalizer(), logistic()),
    "squares": make_pipeline(StandardScaler(), PolynomialFeatures(2), logistic()),
    "clipping": make_pipeline(MinMaxScaler(clip=True), logistic()),
    "quantiles": make_pipeline(QuantileTransformer(n_quantiles=50), logistic()),
    "power": make_pipeline(PowerTransformer(), logistic()),
    "root": make_pipeline(FunctionTransformer(np.log1p), logistic()),
    "absolute": make_pipeline(FunctionTransformer(np.abs), logistic()),
}


@pytest.mark.parametrize("name", BENT)
def test_other_transformers_are_not_folded(name):
    columns = CANCER[:, :6]
    estimator = BENT[name].fit(columns, NAMES)
    task = as_task_model(estimator)
    assert isinstance(task, EstimatorModel)
    assert (predicted(task, columns) == estimator.predict(columns)).all()
    assert task.gram(columns[:20]).any()
    assert task.identity().name.endswith("LogisticRegression")


# ---- Every estimator


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some are deprecated
    CLASSIFIERS = dict(all_estimators(type_filter="classifier"))


def classifier(name: str) -> Any:
    """Return an estimator of this kind, around a logistic regression if it needs one."""
    kind, base = CLASSIFIERS[name], LogisticRegression()
    if name in ("StackingClassifier", "VotingClassifier"):
        return kind([("a", base), ("b", base)])
    try:
        return kind(base) if name == "SelfTrainingClassifier" else kind()
    except TypeError:
        return kind(base)


SEVERAL_LABELS = ("ClassifierChain", "MultiOutputClassifier")
BINARY = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name not in SEVERAL_LABELS])
@pytest.mark.filterwarnings("ignore")
def test_the_largest_output_of_every_classifier_is_its_prediction(name, classes):
    if name in BINARY and classes == 3:
        return
    Z = np.abs(X)
    labels = np.array(["a", "b", "c"])[np.argsort(np.argsort(Z @ np.arange(5))) * classes // 80]
    estimator = classifier(name)
    if "max_iter" in estimator.get_params():
        estimator.set_params(max_iter=20)
    estimator.fit(Z, labels.astype(object) if name == "SelfTrainingClassifier" else labels)
    nearby = name in ("CategoricalNB", "RadiusNeighborsClassifier")
    tried = Z if nearby else Z + 0.05 * np.abs(Y[:, :1])
    task = as_task_model(estimator)
    assert answer_names(task) == ("a", "b", "c")[:classes]
    assert task.outputs(tried).shape == (80, classes)
    assert (predicted(task, tried) == estimator.predict(tried)).all()
    assert as_task_model(estimator).identity() == task.identity()
    try:
        gram = task.gram(tried[:10])
    except UnsupportedModel as error:
        reason = str(error)
        assert "class-response" in reason
    else:
        assert np.isfinite(gram).all()
        assert gram.any()


@pytest.mark.parametrize(
    ("estimator", "smooth"),
    [
        (RandomForestClassifier(10, random_state=0), False),
        (GradientBoostingClassifier(n_estimators=5), False),
        (KNeighborsClassifier(), False),
        (SVC(), False),  # three classes: votes
        (SVC(break_ties=True), True),
        (SVC(kernel="linear"), False),
        (VotingClassifier([("a", logistic()), ("b", RandomForestClassifier(3))]), False),
        (make_pipeline(StandardScaler(), RandomForestClassifier(3)), False),
    ],
)
def test_well_known_kinds_on_iris(estimator, smooth):
    Z, labels = load_iris(return_X_y=True)
    task = as_task_model(estimator.fit(Z, labels))
    wide = np.concatenate([Z, Z * 3, RNG.uniform(0, 10, (2000, 4))])
    assert (predicted(task, wide) == estimator.predict(wide).astype(str)).all()
    if smooth:
        numeric = FiniteDifferences(estimator.decision_function).gram(Z[:5])
        assert np.allclose(task.gram(Z[:5]), numeric)
    else:
        for method in (task.gram, task.jacobians, lambda z: task.vjp(z, np.ones((len(z), 3)))):
            with pytest.raises(UnsupportedModel, match="no useful derivative"):
                method(Z)


def test_a_threshold_is_respected():
    estimator = FixedThresholdClassifier(logistic(), threshold=0.9).fit(CANCER, BENIGN)
    task = as_task_model(estimator)
    assert (predicted(task, CANCER) == estimator.predict(CANCER).astype(str)).all()


@pytest.mark.parametrize("estimator", [SVR(), PoissonRegressor(), RandomForestRegressor(5)])
def test_the_outputs_of_other_regressors_are_their_predictions(estimator):
    estimator.fit(X, np.abs(Y[:, 0]))
    task = as_task_model(estimator)
    assert np.allclose(task.outputs(X)[:, 0], estimator.predict(X))
    assert answer_names(task) is None
    if isinstance(estimator, RandomForestRegressor):
        with pytest.raises(UnsupportedModel, match="derivative"):
            task.gram(X)
    else:
        assert np.allclose(task.gram(X), FiniteDifferences(estimator.predict).gram(X))


# ---- Objects of other libraries


class Booster:
    """Like the classifiers of LightGBM or CatBoost, but no BaseEstimator."""

    classes_ = np.array(["x", "y", "z"])

    def predict_proba(self, Z):
        scores = np.exp(Z[:, :3] - Z[:, :3].max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def predict(self, Z):
        return self.classes_[self.predict_proba(Z).argmax(axis=1)][:, None]


class Probabilities:
    def predict_proba(self, Z):
        return Booster().predict_proba(Z)


class Labels:
    def predict(self, Z):
        return (Z[:, 0] > 0).astype(int)


class Numbers:
    def predict(self, Z):
        return Z[:, :2].astype(np.float32)


def test_objects_with_the_same_methods_are_accepted():
    task = as_task_model(Booster())
    assert (predicted(task, X) == Booster().predict(X)[:, 0]).all()
    assert task.gram(X).any()
    assert task.identity().name == "Booster"
    assert as_task_model(Probabilities()).outputs(X).shape == (80, 3)
    assert np.allclose(as_task_model(Numbers()).outputs(X), X[:, :2])
    with pytest.raises(InvalidInput, match="labels"):
        as_task_model(Labels()).outputs(X)
    with pytest.raises(InvalidInput, match="dim=m"):
        EstimatorModel(Booster()).identity()
    assert EstimatorModel(Booster(), dim=5).identity() == task.identity()


# ---- Identity


PROGRAM = """
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from offaxis.geometry import as_task_model
rng = np.random.default_rng(0)
X = rng.standard_normal((80, 5))
forest = RandomForestClassifier(5, random_state=3).fit(X, np.where(X[:, 0] > 0, "a", "b"))
print(as_task_model(forest).identity().sha256)
"""


def test_the_identity_is_stable_across_processes_and_detects_another_model():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 5))
    labels = np.where(Z[:, 0] > 0, "a", "b")

    def sha256(seed: int = 3, names=labels) -> str:
        forest = RandomForestClassifier(5, random_state=seed).fit(Z, names)
        return as_task_model(forest).identity().sha256

    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert sha256() == printed
    assert len({sha256(), sha256(4), sha256(names=np.where(Z[:, 0] > 0, "a", "c"))}) == 3


# ---- Errors


def test_the_error_for_an_unfitted_estimator_states_the_fix():
    for estimator in (LinearRegression(), make_pipeline(StandardScaler(), logistic())):
        with pytest.raises(InvalidInput, match="fit it on public data"):
            as_task_model(estimator)


def test_estimators_without_one_answer_are_a_clear_error():
    two = np.stack([Y[:, 0] > 0, Y[:, 1] > 0], axis=1).astype(int)
    for estimator in (MultiOutputClassifier(logistic()), RandomForestClassifier(3)):
        with pytest.raises(UnsupportedModel, match="one model per label"):
            as_task_model(estimator.fit(X, two))
    for estimator in (KMeans(3), IsolationForest()):
        with pytest.raises(UnsupportedModel, match="neither a classifier nor a regressor"):
            as_task_model(estimator.fit(X))
    with pytest.raises(InvalidInput, match="two or more"):
        as_task_model(RandomForestClassifier(3).fit(X, np.zeros(80)))
    with pytest.raises(InvalidInput, match="dimension 4"):
        as_task_model(RandomForestClassifier(3).fit(X, two[:, 0])).outputs(X[:, :4])


class Drifting(BaseEstimator):  # type: ignore[misc]
    """Predicts a label that it does not list."""

    def __init__(self) -> None:
        self.classes_ = np.array(["a", "b"])

    def predict(self, Z):
        return np.full(len(Z), "c")


def test_a_label_that_is_not_listed_is_a_clear_error():
    with pytest.raises(InvalidInput, match="not one of its classes_"):
        EstimatorModel(Drifting(), dim=5).outputs(X)


def test_a_tuned_threshold_decides_also_on_features_of_other_scales():
    """Scores on probe vectors are saturated here, and agree with predictions by chance."""
    cells = load_breast_cancer()
    vectors = cells.data[:, :10]
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    model = FixedThresholdClassifier(scaled, threshold=0.9, response_method="predict_proba")
    model.fit(vectors, cells.target)
    assert (model.predict(vectors) != scaled.fit(vectors, cells.target).predict(vectors)).any()
    answers = as_task_model(model).outputs(vectors).argmax(axis=1)
    np.testing.assert_array_equal(answers, model.predict(vectors))


def test_a_scaler_of_timestamps_keeps_its_digits():
    rng = np.random.default_rng(0)
    for unit in (1.7e12, 1.7e15, 1.7e18):
        times = np.c_[unit * (1 + 1e-3 * rng.standard_normal(500)), rng.standard_normal((500, 3))]
        pipeline = make_pipeline(StandardScaler(), LogisticRegression())
        pipeline.fit(times, times[:, 0] > unit)
        answers = as_task_model(pipeline).outputs(times).argmax(axis=1)
        assert (answers == pipeline.predict(times)).mean() > 0.999


def test_a_clipped_column_of_small_values_is_not_folded():
    rng = np.random.default_rng(0)
    vectors = np.c_[1e-9 * rng.standard_normal(500), rng.standard_normal((500, 2))]
    columns = ColumnTransformer(
        [("tiny", StandardScaler(), [0]), ("clipped", MinMaxScaler(clip=True), [1, 2])]
    )
    pipeline = make_pipeline(columns, LogisticRegression())
    pipeline.fit(vectors, rng.integers(0, 3, 500))
    far = vectors * [1, 30, 30]
    answers = as_task_model(pipeline).outputs(far).argmax(axis=1)
    np.testing.assert_array_equal(answers, pipeline.predict(far))


def test_quantities_are_not_answers():
    vectors = load_iris().data
    several = LinearRegression().fit(vectors, vectors[:, :2])
    with pytest.raises(InvalidInput, match="predicts 2 quantities, not one of 2 answers"):
        offaxis.fit(several, vectors, epsilon=2)
    assert offaxis.fit(several, vectors, epsilon=2, goal="vectors").randomizer.kind == "response"


def test_columns_in_another_order_are_an_error():
    frame = load_iris(as_frame=True)
    forest = RandomForestClassifier(5, random_state=0).fit(frame.data, frame.target)
    with pytest.raises(InvalidInput, match="in another order"):
        offaxis.fit(forest, frame.data[frame.data.columns[::-1]], epsilon=2)


def test_labels_that_are_integers_are_not_indices():
    iris = load_iris()
    model = LogisticRegression(max_iter=1000).fit(iris.data, iris.target + 1)
    release = offaxis.fit(model, iris.data, epsilon=2)
    with pytest.raises(InvalidInput, match="named by integers that are not their indices"):
        release.privatize_answer(1)
    for answers in ("3", np.array("3"), ["1", "3"], np.array(["1", "2"])):
        release.privatize_answer(answers)
    for wrong in (b"12", {"1": 2}, {"1"}, np.array([["1"]])):
        with pytest.raises(InvalidInput, match="a list or array"):
            release.privatize_answer(wrong)


@pytest.mark.parametrize(
    "step",
    [
        SimpleImputer(missing_values=-1.0),
        FunctionTransformer(lambda X: np.where(X == -1, 0.0, X)),
    ],
)
def test_a_step_that_treats_one_value_apart_is_not_folded(step):
    """No probe finds the value; the release would differ from predict on public vectors."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((900, 3))
    labels = vectors.argmax(axis=1)
    vectors = np.where(rng.random(vectors.shape) < 0.2, -1.0, vectors + 2)
    pipeline = make_pipeline(step, LogisticRegression()).fit(vectors, labels)
    task = as_task_model(pipeline)
    assert not isinstance(task, Layers)
    np.testing.assert_array_equal(task.outputs(vectors).argmax(axis=1), pipeline.predict(vectors))


def test_labels_of_other_types_are_names():
    iris = load_iris()
    for labels, wrong in ((iris.target + 1.0, 1), (iris.target > 0, None)):
        model = LogisticRegression(max_iter=1000).fit(iris.data, labels)
        release = offaxis.fit(model, iris.data, epsilon=30)
        reports = release.privatize_answer(model.predict(iris.data))
        assert isinstance(reports, list)
        counted = [(model.predict(iris.data) == name).mean() for name in model.classes_]
        assert release.shares(reports).estimate == pytest.approx(counted, abs=1e-6)
        if wrong is not None:
            with pytest.raises(InvalidInput, match="named by integers"):
                release.privatize_answer(wrong)


def test_a_recommendation_needs_answers_too():
    vectors = load_iris().data
    several = LinearRegression().fit(vectors, vectors[:, :2])
    for tasks in (several, {"a": several}):
        with pytest.raises(InvalidInput, match="predicts 2 quantities"):
            offaxis.recommend(tasks, vectors, epsilon=2)
    forest = RandomForestClassifier(5, random_state=0).fit(vectors, load_iris().target)
    with pytest.raises(InvalidInput, match="the task 'trees' has no useful derivative"):
        offaxis.recommend({"trees": forest}, vectors, epsilon=2, goal="means")
    assert offaxis.recommend(forest, vectors, epsilon=2, goal="means").release.supports_mean
