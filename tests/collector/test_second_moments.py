"""A round of second moments: reports are counted and exported, drift is tested, no mean is shown.

The test of drift raises a false alarm with probability 1e-6.
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from offaxis.evaluation.profiles import profile_of
from offaxis.learning import fit_second_moments, second_moments
from offaxis.release import Release
from tests.collector.running import new_id


@pytest.fixture(scope="module")
def release(public) -> Release:
    return fit_second_moments(public, rank=2, epsilon=4)


def test_a_covariance_is_estimated_from_an_export(server, release, public):
    reports = release.privatize(public)
    server.open(release, "second-moments")
    server.batch("second-moments", [(new_id(), report) for report in reports])
    got = server.request("analyst", "GET", "/v1/rounds/second-moments/export")
    exported = pq.read_table(io.BytesIO(got.body))["report"].to_pylist()
    found, expected = second_moments(release, exported), second_moments(release, reports)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-9)
    got = server.request("analyst", "GET", "/v1/rounds/second-moments/means")
    assert got.status == 409
    assert got.kind == "no-means"
    assert "second_moments" in got.json["detail"]


def test_drift_is_tested_against_public_vectors(server, release, public):
    server.open(release, "drift")
    server.batch("drift", [(new_id(), report) for report in release.privatize(public)])
    profile = profile_of(release, public).to_json()
    path = f"/v1/releases/{release.hash}/profile"
    assert server.request("admin", "PUT", path, profile.encode()).status == 204
    facts = server.request("analyst", "GET", "/v1/rounds/drift/drift").json
    assert facts["warning"] is False
    assert facts["p_value"] > 1e-6


def test_a_card_describes_the_release(server, release):
    server.open(release, "card")
    got = server.request("device", "GET", f"/v1/releases/{release.hash}/card")
    assert got.status == 200
    assert "covariance" in got.body.decode()
