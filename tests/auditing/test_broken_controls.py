"""Every broken control is detected by the test designed for it.

The audits run at a false-alarm rate of ALPHA. In repeated runs the tests named here are far beyond
their thresholds: bounds on ε from 2.4 to 4.9 where 2 is promised, p-values below 1e-30.
"""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.auditing import audit
from tests.auditing import broken_controls
from tests.auditing.broken_controls import with_broken_control
from tests.checks import ALPHA

MANY, FEW = 40_000, 400

DETECTED = [
    ("laplace", broken_controls.FloatLaplace, MANY, ("support", "precision", "low-bits")),
    ("gaussian", broken_controls.FloatGaussian, MANY, ("support", "precision")),
    ("laplace", broken_controls.HalfTheNoise, MANY, ("worst-pair", "reduced", "classifier-worst")),
    (
        "laplace",
        broken_controls.RadiusForDiameter,
        MANY,
        ("worst-pair", "reduced", "classifier-worst"),
    ),
    ("laplace", broken_controls.NoClipping, MANY, ("far-pair", "classifier-far", "extreme-pair")),
    ("laplace", broken_controls.NoClipping, FEW, ("front-end",)),
    ("laplace", broken_controls.SeedReuse, FEW, ("freshness",)),
    ("laplace", broken_controls.NanPasses, FEW, ("hostile-input",)),
    ("laplace", broken_controls.RoundToNearest, MANY, ("front-end", "coarse-lattice")),
    ("laplace", broken_controls.OneUlpOut, MANY, ("front-end", "coarse-lattice")),
    ("laplace", broken_controls.LengthLeaks, FEW, ("length", "support")),
    ("laplace", broken_controls.LastBitLeaks, MANY, ("wire-bits", "classifier-zero")),
    ("gaussian", broken_controls.HalfTheGaussianNoise, MANY, ("worst-noise", "reduced-noise")),
    ("gaussian", broken_controls.GaussianToNearest, MANY, ("front-end", "coarse-noise")),
    (
        "privunit2",
        broken_controls.TwiceTheOdds,
        MANY // 2,
        ("worst-pair", "reduced", "classifier-worst"),
    ),
    ("privunit2", broken_controls.ZeroHasFewNear, MANY // 2, ("front-end", "zero-pair")),
    ("privunit2", broken_controls.FloorForTinyVectors, MANY // 2, ("zero-pair",)),
    ("spherical-laplace", broken_controls.HalfTheSphericalNoise, MANY, ("reduced",)),
    ("response", broken_controls.TwiceTheOddsOfTheSymbol, MANY, ("worst-pair", "classifier-worst")),
    ("subset", broken_controls.OneSymbolTooMany, FEW, ("front-end", "support")),
]


@pytest.mark.parametrize(
    ("kind", "broken", "reports", "tests"), DETECTED, ids=lambda part: getattr(part, "__name__", "")
)
def test_a_broken_control_is_detected(audited, kind, broken, reports, tests):
    release = with_broken_control(audited[kind], broken)
    result = audit(release, reports=reports, false_alarm=ALPHA)
    violations = {finding.test for finding in result.by_verdict("violation")}
    assert set(tests) <= violations
    assert result.violated
    assert result.summary.startswith("Violation found at ε = 2")


@pytest.mark.parametrize("kind", ["duchi", "piecewise", "hybrid", "privunitg", "projunit"])
def test_reports_drawn_at_twice_epsilon_are_detected(audited, kind):
    """Bounds on ε from 2.6 to 3.6 in repeated runs, where 2 is promised."""
    real = audited[kind]
    broken = with_broken_control(real, broken_controls.at_twice_epsilon(type(real.randomizer)))
    result = audit(broken, reports=MANY // 2, false_alarm=ALPHA)
    violations = {finding.test for finding in result.by_verdict("violation")}
    assert {"worst-pair", "classifier-worst"} <= violations


def test_a_release_that_lets_nan_pass_is_detected(audited):
    real = audited["laplace"]
    parts = (real.encoder, real.randomizer, real.decoder, real.provenance)
    result = audit(broken_controls.LenientRelease(*parts), reports=FEW, false_alarm=ALPHA)
    assert [finding.test for finding in result.by_verdict("violation")] == ["hostile-input"]


def test_time_that_depends_on_the_vector_is_a_side_channel_but_no_violation(audited):
    broken = with_broken_control(audited["laplace"], broken_controls.TimeLeaks)
    result = audit(broken, reports=20_000, false_alarm=ALPHA, rng=np.random.default_rng(0))
    assert "timing-worst" in {finding.test for finding in result.by_verdict("side channel")}
    assert not result.violated
    assert "a side channel was found" in result.summary


def test_a_release_that_fails_for_some_vectors_is_detected(audited):
    broken = with_broken_control(audited["laplace"], broken_controls.FailsFarOut)
    result = audit(broken, reports=FEW, false_alarm=ALPHA)
    violations = {finding.test for finding in result.by_verdict("violation")}
    assert {"support", "hostile-input"} <= violations
    assert "far-pair" in {finding.test for finding in result.by_verdict("not run")}
