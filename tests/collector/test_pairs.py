"""A round of pairs: reports are counted, exported and learnt from, and no mean is shown."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.engines import local
from offaxis.evaluation.profiles import profile_of
from offaxis.learning import (
    Classes,
    Number,
    PairSums,
    accuracy,
    cells,
    fit_check,
    fit_pairs,
    learn,
    principal,
)
from tests.collector.running import new_id

REPLIES = ["no", "yes"]


@pytest.fixture(scope="module")
def replies(public) -> np.ndarray:
    return 1 * (public[:, 0] > 0.5)


@pytest.fixture(scope="module")
def releases(public) -> dict[str, offaxis.Release]:
    return {
        "cells": fit_pairs(cells(public, size=3), Classes(REPLIES, optional=True), epsilon=4),
        "moments": fit_pairs(principal(public, rank=3), REPLIES, epsilon=4),
        "number": fit_pairs(principal(public, rank=3), Number(0, 1), epsilon=4),
        "nothing": fit_pairs(principal(public, rank=3), None, epsilon=4),
        "right": fit_check(np.eye(2, 6), public, REPLIES, epsilon=4),
    }


@pytest.fixture(scope="module")
def reports(releases, public, replies) -> dict[str, list[bytes]]:
    return {
        name: release.privatize(public, answers=None if name == "nothing" else replies)
        for name, release in releases.items()
    }


@pytest.fixture(scope="module")
def rounds(server, releases, reports):
    """A round of every release, with its reports; half of them of each group."""
    for name, release in releases.items():
        server.open(release, f"pairs-{name}", groups=("north", "south"))
        for group, part in (("north", reports[name][::2]), ("south", reports[name][1::2])):
            pairs = [(new_id(), report) for report in part]
            got = server.batch(f"pairs-{name}", pairs, Offaxis_Group=group)
            assert got.json == {"accepted": len(part), "repeated": 0, "conflicts": []}
    return server


NAMES = ("cells", "moments", "number", "nothing", "right")


@pytest.mark.parametrize("name", NAMES)
def test_reports_of_the_release_alone_are_accepted(rounds, releases, reports, name):
    other = next(part for part in releases if part != name)
    for wrong in (reports[other][0], reports[name][0][:-1], b""):
        got = rounds.upload(f"pairs-{name}", new_id(), wrong, Offaxis_Group="north")
        assert got.kind in ("invalid-report", "too-large")
    facts = rounds.request("analyst", "GET", f"/v1/rounds/pairs-{name}").json
    assert facts["reports"] == 500


@pytest.mark.parametrize("name", ["moments", "number", "nothing"])
def test_reports_without_a_symbol_have_no_mean(rounds, name):
    got = rounds.request("analyst", "GET", f"/v1/rounds/pairs-{name}/means")
    assert got.status == 409
    assert got.kind == "no-means"
    assert "offaxis.learn" in got.json["detail"]


@pytest.mark.parametrize("name", ["cells", "right"])
def test_shares_of_symbols_are_those_of_the_release(server, releases, reports, name):
    release = releases[name]
    server.open(release, f"shares-{name}", groups=("north", "south"))
    labels = ["north" if i % 3 else "south" for i in range(len(reports[name]))]
    for group in ("north", "south"):
        part = [r for r, label in zip(reports[name], labels, strict=True) if label == group]
        server.batch(f"shares-{name}", [(new_id(), r) for r in part], Offaxis_Group=group)
    facts = server.request("analyst", "GET", f"/v1/rounds/shares-{name}/means").json
    assert facts["names"] == list(release.symbol_names)
    expected, grouped = release.shares(reports[name]), release.shares(reports[name], labels)
    for entry in facts["means"]:
        own = expected if entry["group"] is None else grouped.of(entry["group"])
        assert entry["mean"] is None
        assert entry["standard_error"] is None
        np.testing.assert_allclose(entry["shares"], own.estimate, atol=1e-12)
        np.testing.assert_allclose(entry["shares_error"], own.standard_error, rtol=1e-9)
        low, high = own.interval(0.95)
        np.testing.assert_allclose(entry["shares_low"], low, atol=1e-12)
        np.testing.assert_allclose(entry["shares_high"], high, atol=1e-12)
    if name == "right":
        assert facts["means"][0]["shares"][1] == pytest.approx(
            accuracy(release, reports[name]).estimate
        )
        assert facts["names"] == ["wrong", "right"]


@pytest.mark.parametrize("name", ["cells", "moments", "number"])
def test_a_model_is_learnt_from_an_export(server, releases, reports, public, tmp_path, name):
    release = releases[name]
    server.open(release, f"export-{name}")
    server.batch(f"export-{name}", [(new_id(), report) for report in reports[name]])
    got = server.request("analyst", "GET", f"/v1/rounds/export-{name}/export")
    path = tmp_path / "export.parquet"
    path.write_bytes(got.body)
    sums, expected = local.pair_sums(path, release), PairSums(release)
    expected.add(reports[name])
    assert sums.count == 500
    np.testing.assert_allclose(sums.totals.sum(axis=0), expected.totals.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(
        learn(release, sums).layers_.outputs(public),
        learn(release, expected).layers_.outputs(public),
        atol=1e-9,
    )


@pytest.mark.parametrize("name", NAMES)
def test_drift_is_tested_against_public_pairs(server, releases, reports, public, replies, name):
    """With public labels a profile is made of rows; without a profile there is no result."""
    release, round_ = releases[name], f"drift-{name}"
    server.open(release, round_)
    server.batch(round_, [(new_id(), report) for report in reports[name]])
    facts = server.request("analyst", "GET", f"/v1/rounds/{round_}/drift").json
    assert facts["warning"] is False
    assert facts["p_value"] is None
    rows = public if name == "nothing" else release.pairs(public, replies)
    profile = profile_of(release, rows).to_json()
    path = f"/v1/releases/{release.hash}/profile"
    assert server.request("admin", "PUT", path, profile.encode()).status == 204
    facts = server.request("analyst", "GET", f"/v1/rounds/{round_}/drift").json
    assert facts["warning"] is False
    assert facts["p_value"] > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_card_describes_the_release(rounds, releases, name):
    got = rounds.request("device", "GET", f"/v1/releases/{releases[name].hash}/card")
    assert got.status == 200
    assert got.json["guarantee"]["epsilon"] == "4"


@pytest.mark.parametrize("name", NAMES)
def test_purged_reports_leave_what_was_counted(server, releases, reports, name):
    round_ = f"purged-{name}"
    server.open(releases[name], round_)
    server.batch(round_, [(new_id(), report) for report in reports[name][:100]])
    assert server.request("admin", "POST", f"/v1/rounds/{round_}/close").status == 200
    got = server.request("admin", "DELETE", f"/v1/rounds/{round_}/reports")
    assert got.json == {"deleted": 100}
    means = server.request("analyst", "GET", f"/v1/rounds/{round_}/means")
    if name in ("cells", "right"):
        assert means.json["reports"] == 100
    else:
        assert means.kind == "no-means"
    assert server.request("analyst", "GET", f"/v1/rounds/{round_}").json["reports"] in (0, 100)
