"""Every broken twin is caught, by the test that is meant for it.

The audits run at a false-alarm rate of ALPHA. Repeated runs say how far beyond their thresholds the
tests named here are: bounds on ε from 2.4 to 4.9 where 2 is promised, p-values below 1e-30.
"""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.audit import audit
from tests.audit import twins
from tests.checks import ALPHA

MANY, FEW = 40_000, 400

CAUGHT = [
    ("laplace", twins.FloatLaplace, MANY, ("support", "precision", "low-bits")),
    ("gaussian", twins.FloatGaussian, MANY, ("support", "precision")),
    ("laplace", twins.HalfTheNoise, MANY, ("worst-pair", "reduced", "classifier-worst")),
    ("laplace", twins.RadiusForDiameter, MANY, ("worst-pair", "reduced", "classifier-worst")),
    ("laplace", twins.NoClipping, MANY, ("far-pair", "classifier-far", "extreme-pair")),
    ("laplace", twins.NoClipping, FEW, ("front-end",)),
    ("laplace", twins.SeedReuse, FEW, ("freshness",)),
    ("laplace", twins.NanPasses, FEW, ("hostile-input",)),
    ("laplace", twins.RoundToNearest, MANY, ("front-end", "coarse-lattice")),
    ("laplace", twins.OneUlpOut, MANY, ("front-end", "coarse-lattice")),
    ("laplace", twins.LengthTells, FEW, ("length", "support")),
    ("laplace", twins.LastBitTells, MANY, ("wire-bits", "classifier-zero")),
    ("gaussian", twins.HalfTheGaussianNoise, MANY, ("worst-noise", "reduced-noise")),
    ("gaussian", twins.GaussianToNearest, MANY, ("front-end", "coarse-noise")),
    ("privunit2", twins.TwiceTheOdds, MANY // 2, ("worst-pair", "reduced", "classifier-worst")),
    ("privunit2", twins.ZeroHasFewNear, MANY // 2, ("front-end", "zero-pair")),
    ("privunit2", twins.FloorForTinyVectors, MANY // 2, ("zero-pair",)),
    ("spherical-laplace", twins.HalfTheSphericalNoise, MANY, ("reduced",)),
    ("response", twins.TwiceTheOddsOfTheSymbol, MANY, ("worst-pair", "classifier-worst")),
    ("subset", twins.OneSymbolTooMany, FEW, ("front-end", "support")),
]


@pytest.mark.parametrize(
    ("kind", "twin", "reports", "tests"), CAUGHT, ids=lambda part: getattr(part, "__name__", "")
)
def test_the_twin_is_caught(audited, kind, twin, reports, tests):
    result = audit(twins.with_twin(audited[kind], twin), reports=reports, false_alarm=ALPHA)
    violations = {finding.test for finding in result.by_verdict("violation")}
    assert set(tests) <= violations
    assert result.violated
    assert result.summary.startswith("Violation found at ε = 2")


def test_a_release_that_lets_nan_pass_is_caught(audited):
    real = audited["laplace"]
    parts = (real.encoder, real.randomizer, real.decoder, real.provenance)
    result = audit(twins.LenientRelease(*parts), reports=FEW, false_alarm=ALPHA)
    assert [finding.test for finding in result.by_verdict("violation")] == ["hostile-input"]


def test_time_that_tells_is_a_side_channel_and_no_violation(audited):
    twin = twins.with_twin(audited["laplace"], twins.TimeTells)
    result = audit(twin, reports=20_000, false_alarm=ALPHA, rng=np.random.default_rng(0))
    assert "timing-worst" in {finding.test for finding in result.by_verdict("side channel")}
    assert not result.violated
    assert "a side channel was found" in result.summary


def test_a_device_that_fails_for_some_vectors_is_caught(audited):
    twin = twins.with_twin(audited["laplace"], twins.FailsFarOut)
    result = audit(twin, reports=FEW, false_alarm=ALPHA)
    violations = {finding.test for finding in result.by_verdict("violation")}
    assert {"support", "hostile-input"} <= violations
    assert "far-pair" in {finding.test for finding in result.by_verdict("not run")}
