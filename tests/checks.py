"""Statistical checks with a stated false-alarm rate.

ALPHA is the probability that one check fails although the code is right. About a hundred checks run
in the suite, a few of them on unseeded exact reports, so a run of `make test` raises a false alarm
about once in ten thousand runs. Every test that uses a check also applies it to a broken control
and requires a rejection, with ALPHA as the threshold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from offaxis.encoding.pairs import Number, table_of
from offaxis.geometry import Layers
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release

ALPHA = 1e-6


def with_optional_numbers(release: Release) -> Release:
    """Return a release of moments whose numbers people may not have.

    A file can hold it; ``fit_pairs`` refuses it, because nothing can be learnt of such a number.
    """
    asked = [
        replace(part, optional=True) if isinstance(part, Number) else part for part in release.asked
    ]
    encoder: Any = release.encoder
    encoder = type(encoder)(encoder.weights, encoder.biases, table_of(asked))
    return replace(release, encoder=encoder, asked=tuple(asked))


def delta_for(name: str) -> str | None:
    """Return a δ for the randomizers that need one."""
    return "1e-5" if find_mechanism(name).needs_delta else None


def effective(name: str, **settings: Any) -> dict[str, Any]:
    """Return those settings of ``fit`` that affect a mechanism; others are errors."""
    mechanism = find_mechanism(name)
    if mechanism.reshaping == "none":
        settings.pop("reshaping", None)
    if not mechanism.uses_percentile:
        settings.pop("percentile", None)
    return settings


def task_for(name: str, model: Layers) -> Layers:
    """Return a task that the mechanism accepts: the model, or one output for a scalar channel."""
    if name != "scalar-response":
        return model
    return Layers.linear(model.weights[0].sum(axis=0))


def mean_p_value(samples: np.ndarray, expected: np.ndarray | float) -> float:
    """Two-sided z-test that the columns of ``samples`` have the expected means (Bonferroni)."""
    samples = np.asarray(samples, dtype=float).reshape(len(samples), -1)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    z = np.abs(samples.mean(axis=0) - np.broadcast_to(expected, samples.shape[1])) / error
    return float(min(1.0, samples.shape[1] * 2 * stats.norm.sf(z.max())))


def law_p_value(samples: np.ndarray, cdf: object) -> float:
    """Kolmogorov–Smirnov test against a continuous law."""
    return float(stats.kstest(samples, cdf).pvalue)


def counts_p_value(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """χ² test of counts against probabilities; the cells must contain the whole mass."""
    expected = observed.sum() * probabilities
    assert expected.min() > 5, "cells too small for the χ² law"
    return float(stats.chisquare(observed, expected).pvalue)
