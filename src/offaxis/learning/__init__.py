"""What many reports teach together."""

from offaxis.encoding.pairs import Classes, Number
from offaxis.learning.crowd_answers import Answer, Difference
from offaxis.learning.estimators import ReportClassifier, ReportRegressor, learn
from offaxis.learning.features import FeatureMap, cells, principal, random_features
from offaxis.learning.frequencies import Estimate, Histogram, fit_answers, histogram
from offaxis.learning.moments import ExpectedAccuracy
from offaxis.learning.pairs import accuracy, fit_check, fit_pairs
from offaxis.learning.plan import Plan, Prediction, plan_learning
from offaxis.learning.population import Population, population, widened
from offaxis.learning.second_moments import (
    SecondMomentSums,
    fit_second_moments,
    second_moments,
)
from offaxis.learning.shift import adapt, fit_shift, recentre, reweight
from offaxis.learning.spectra import Principal, SecondMoments
from offaxis.learning.sums import PairSums
from offaxis.learning.trends import Change, Trend, expected_error, trend

__all__ = [
    "Answer",
    "Change",
    "Classes",
    "Difference",
    "Estimate",
    "ExpectedAccuracy",
    "FeatureMap",
    "Histogram",
    "Number",
    "PairSums",
    "Plan",
    "Population",
    "Prediction",
    "Principal",
    "ReportClassifier",
    "ReportRegressor",
    "SecondMomentSums",
    "SecondMoments",
    "Trend",
    "accuracy",
    "adapt",
    "cells",
    "expected_error",
    "fit_answers",
    "fit_check",
    "fit_pairs",
    "fit_second_moments",
    "fit_shift",
    "histogram",
    "learn",
    "plan_learning",
    "population",
    "principal",
    "random_features",
    "recentre",
    "reweight",
    "second_moments",
    "trend",
    "widened",
]
