"""What many reports teach together."""

from offaxis.encoding.pairs import Classes, Number
from offaxis.learning.estimators import ReportClassifier, ReportRegressor, learn
from offaxis.learning.features import FeatureMap, cells, principal, random_features
from offaxis.learning.moments import ExpectedAccuracy
from offaxis.learning.pairs import accuracy, fit_check, fit_pairs
from offaxis.learning.plan import Plan, Prediction, plan_learning
from offaxis.learning.shift import adapt, fit_shift, recentre, reweight
from offaxis.learning.sums import PairSums
from offaxis.learning.trends import Change, Trend, expected_error, trend

__all__ = [
    "Change",
    "Classes",
    "ExpectedAccuracy",
    "FeatureMap",
    "Number",
    "PairSums",
    "Plan",
    "Prediction",
    "ReportClassifier",
    "ReportRegressor",
    "Trend",
    "accuracy",
    "adapt",
    "cells",
    "expected_error",
    "fit_check",
    "fit_pairs",
    "fit_shift",
    "learn",
    "plan_learning",
    "principal",
    "random_features",
    "recentre",
    "reweight",
    "trend",
]
