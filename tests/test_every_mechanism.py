"""Every mechanism, by name, from fitting to decoded reports."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.mechanisms import NAMES
from offaxis.simulation import simulate
from tests.checks import ALPHA, delta_for, effective, mean_p_value, task_for


@pytest.mark.parametrize("shape", ["jacobian", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_fits_saves_loads_reports_and_decodes(head, public, tmp_path, name, shape):
    delta = delta_for(name)
    task = task_for(name, head)
    settings = effective(name, reshaping=shape)
    release = offaxis.fit(task, public, epsilon=2, mechanism=name, delta=delta, **settings)
    release.save(tmp_path / "some.release")
    loaded = offaxis.load(tmp_path / "some.release", expect=release.hash)
    assert loaded == release
    assert loaded.guarantee == release.guarantee
    extremes = np.vstack([np.zeros(6), np.full(6, 5e-324), np.full(6, -1.7e308), public[:5]])
    reports = loaded.privatize(extremes)
    assert isinstance(reports, list)
    assert {len(report) for report in reports} == {release.report_size}
    decoded = release.decode(reports)
    assert np.isfinite(decoded).all()
    np.testing.assert_allclose(loaded.decode(reports[3]), decoded[3], rtol=1e-9)
    assert simulate(release, public, np.random.default_rng(0)).shape == public.shape


@pytest.mark.parametrize("name", NAMES)
def test_reports_of_every_mechanism_follow_their_simulation(head, public, name):
    """Means of 4,000 reports of one vector; the broken control reports another vector.

    False alarms: ALPHA each.
    """
    delta = delta_for(name)
    release = offaxis.fit(
        task_for(name, head),
        public,
        epsilon=4,
        mechanism=name,
        delta=delta,
        **effective(name, reshaping="none", percentile=50),
    )
    z = public[np.abs(public).sum(axis=1).argmax()]
    other = -z
    if release.encoder.kind.endswith("argmax"):  # the other vector must have another symbol
        symbols = release.encoder.encode(public)
        other = public[symbols != release.encoder.encode(z[None])[0]][0]
    expected = simulate(release, np.tile(z, (400_000, 1)), np.random.default_rng(3)).mean(axis=0)
    decoded, broken = (
        release.decode(release.privatize(np.tile(vector, (4000, 1)))) for vector in (z, other)
    )
    assert mean_p_value(decoded, expected) > ALPHA
    assert mean_p_value(broken, expected) < ALPHA
