"""Privacy cards, and curves and audits attached to a release."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import offaxis
from offaxis.cli.app import app
from offaxis.collector.means import Totals, means_facts
from offaxis.collector.routes.facts import LARGEST_FACTS, read_facts
from offaxis.errors import InvalidInput
from offaxis.formats.documents import sign_release
from offaxis.formats.release_file import to_bytes
from offaxis.privacy import wording
from offaxis.randomizers import CustomRandomizer, register
from tests.collector.running import KEY, encoded, new_id


@pytest.fixture(scope="module")
def answers(head, public) -> offaxis.Release:
    return offaxis.fit(head, public, epsilon=2, mechanism="class-response")


def test_a_card_states_the_guarantee_of_the_parameters(server, for_means):
    server.publish(for_means)
    card = server.request("device", "GET", f"/v1/releases/{for_means.hash}/card").json
    assert card["guarantee"]["epsilon"] == "3"
    assert card["guarantee"]["pure"] is True
    assert card["promise"] == wording.promise(for_means.guarantee)
    assert card["not_promised"] == wording.not_promised(for_means.guarantee)
    assert card["strength"] == "weak"
    assert card["report"]["bytes"] == len(for_means.privatize(np.zeros(for_means.input_dim)))
    assert card["report"]["symbols"] is None
    # One of two equally likely vectors, at ε = 3: at most e³ / (1 + e³) = 95.26 %.
    assert card["allowed"][0] == {"answers": "2", "guessing": "50 %", "at_most": "95.3 %"}
    assert server.request("device", "GET", f"/v1/releases/{'0' * 64}/card").kind == "not-found"
    assert server.request("device", "GET", "/v1/releases/0/card").kind == "invalid-request"


def test_facts_are_returned_as_they_were_printed(server, for_means, printed, tmp_path):
    server.publish(for_means)
    path = f"/v1/releases/{for_means.hash}"
    for kind, body in printed.items():
        local = {"html": "/home/me/audit.html"} if kind == "audit" else {}
        (tmp_path / kind).write_text(json.dumps(json.loads(body) | local))
        assert server.request("device", "GET", f"{path}/facts/{kind}").kind == "not-found"
    files = [option for kind in printed for option in (f"--{kind}", str(tmp_path / kind))]
    environment = {"OFFAXIS_COLLECTOR": f"http://127.0.0.1:{server.port}"}
    environment["OFFAXIS_TOKEN"] = server.tokens["admin"]
    command = ["collector", "attach", for_means.hash, *files]
    got = CliRunner().invoke(app, command, env=environment)
    assert got.output == "attached curve and audit\n"
    assert server.request("device", "GET", f"{path}/card").json["facts"] == ["curve", "audit"]
    for kind, body in printed.items():
        stored = server.request("device", "GET", f"{path}/facts/{kind}").json
        expected = json.loads(body)
        # The path of a local file is not stored.
        expected.pop("html", None)
        assert stored == expected


def test_a_randomizer_of_another_package_is_not_published(server):
    """Although it is installed here: a collector must not run whatever a release names."""
    public = np.random.default_rng(0).standard_normal((200, 3))

    class Silent(CustomRandomizer):
        kind = "tests.silent"

    foreign = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism=Silent)
    register(Silent)
    path = f"/v1/releases/{foreign.hash}"
    signature = encoded(sign_release(KEY, foreign.hash))
    got = server.request("admin", "PUT", path, to_bytes(foreign), Offaxis_Signature=signature)
    assert (got.status, got.kind) == (422, "invalid-release")
    assert "not part of offaxis" in got.json["detail"]


def test_an_audit_of_another_release_is_rejected(server, answers, printed):
    server.publish(answers)
    path = f"/v1/releases/{answers.hash}/facts"
    got = server.request("admin", "PUT", f"{path}/audit", printed["audit"])
    assert (got.status, got.kind) == (422, "invalid-release")
    assert server.request("admin", "PUT", f"{path}/curve", printed["curve"]).status == 204
    # The announced length is enough; while sending it all, the connection may be closed.
    long = {"Content_Length": str(LARGEST_FACTS + 1)}
    assert server.request("admin", "PUT", f"{path}/curve", b" ", **long).status == 413
    assert server.request("admin", "PUT", f"{path}/other", b"{}").kind == "not-found"
    missing = f"/v1/releases/{'0' * 64}/facts/curve"
    assert server.request("admin", "PUT", missing, printed["curve"]).kind == "not-found"


def _changed(kind, **fields):
    def change(document):
        part = document["budgets"][0] if kind == "curve" else document
        part |= fields
        return document

    return kind, change


CHANGES = [
    _changed("curve", epsilon=1e9),
    _changed("curve", epsilon=5.0),
    _changed("curve", goal="means"),
    _changed("curve", more=1),
    _changed("curve", ceiling=float("nan")),
    _changed("curve", choice="x" * 201),
    _changed("curve", expected={"score": 2.0, "low": 0.0, "high": 1.0}),
    _changed("audit", epsilon="2"),
    _changed("audit", violation=True),
    _changed("audit", reports=-1),
    _changed("audit", curve=[[0.1, 0.2, 0.3]]),
    _changed("audit", false_alarm="0.1"),
    ("curve", lambda document: document["budgets"][0]),
    ("curve", lambda document: {"budgets": document["budgets"][:1]}),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_changed_facts_are_rejected(for_means, printed, kind, change):
    body = json.dumps(change(json.loads(printed[kind]))).encode()
    with pytest.raises(InvalidInput):
        read_facts(kind, body, for_means)


@given(st.sampled_from(["curve", "audit"]), st.integers(0, 5000), st.binary(max_size=3))
def test_damaged_facts_are_rejected_or_read_but_never_crash(for_means, printed, kind, cut, junk):
    body = printed[kind][:cut] + junk + printed[kind][cut + 1 :]
    with suppress(InvalidInput):
        json.loads(read_facts(kind, body, for_means))


def test_means_include_shares_of_symbols(server, answers, public):
    server.open(answers, "symbols", groups=("a", "b"))
    vectors_of = {"a": public[:200], "b": public[200:]}
    reports_of = {}
    for label, vectors in vectors_of.items():
        reports_of[label] = answers.privatize(vectors)
        pairs = [(new_id(), report) for report in reports_of[label]]
        assert server.batch("symbols", pairs, Offaxis_Group=label).json["accepted"] == len(pairs)
    means = server.request("analyst", "GET", "/v1/rounds/symbols/means").json["means"]
    assert [entry["group"] for entry in means] == [None, "a", "b"]
    reports_of[None] = reports_of["a"] + reports_of["b"]
    for entry in means:
        reports = reports_of[entry["group"]]
        observations = answers.observe(reports)
        assert entry["reports"] == len(reports)
        np.testing.assert_allclose(entry["shares"], observations.mean(axis=0), rtol=1e-9)
        error = observations.std(axis=0, ddof=1) / np.sqrt(len(observations))
        np.testing.assert_allclose(entry["shares_error"], error, rtol=1e-9)
        assert sum(entry["shares"]) == pytest.approx(1)
        low, high = answers.shares(reports).interval(0.95)
        np.testing.assert_allclose(entry["shares_low"], low, rtol=1e-9)
        np.testing.assert_allclose(entry["shares_high"], high, rtol=1e-9)
    # Unbiased: within five standard errors of the true shares (false alarm about 1e-6 per share).
    true = np.bincount(answers.encoder.encode(public), minlength=answers.randomizer.size) / 500
    assert np.all(np.abs(true - means[0]["shares"]) < 5 * np.array(means[0]["shares_error"]))


def test_means_name_the_answers_of_a_release_that_has_names(public, answers, for_means):
    named = offaxis.fit(np.eye(public.shape[1]), public, epsilon=3, mechanism="class-response")
    assert named.answers is not None
    for release in (named, answers, for_means):
        totals = Totals()
        totals.add(release, [(report, None) for report in release.privatize(public[:20])])
        facts = means_facts("round", release, totals)
        expected = None if release.symbol_names is None else list(release.symbol_names)
        assert facts.get("names") == expected
        assert len(facts["means"]) == 1


def test_a_vector_has_no_shares(server, for_means, some_reports):
    server.open(for_means, "no-symbols")
    server.batch("no-symbols", [(new_id(), some_reports[0])])
    (entry,) = server.request("analyst", "GET", "/v1/rounds/no-symbols/means").json["means"]
    assert entry["shares"] is entry["shares_error"] is entry["standard_error"] is None
    assert entry["shares_low"] is entry["shares_high"] is None
    assert len(entry["mean"]) == for_means.input_dim


def test_a_client_can_read_the_role_of_its_token(server):
    assert server.request("analyst", "GET", "/v1/token").json == {
        "name": "the analyst",
        "role": "analyst",
    }


def test_stored_moments_of_averaged_symbols_are_not_shown(public, head):
    """An earlier version averaged codewords; its moments stay in a round's row."""
    release = offaxis.fit(head, public, epsilon=3, mechanism="response", size=5)
    totals = Totals()
    totals.add(release, [(report, None) for report in release.privatize(public[:20])])
    totals.everybody.add(public[:20], np.ones(20))
    (entry,) = means_facts("round", release, totals)["means"]
    assert entry["mean"] is None
    assert entry["reports"] == 20
    assert entry["shares"] is not None
