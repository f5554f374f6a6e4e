"""Cards say what inspect says; curves and audits come back as printed, and nothing else gets in."""

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
from offaxis.collector.routes.facts import LARGEST_FACTS, read_facts
from offaxis.errors import InvalidInput
from offaxis.privacy import wording
from tests.collector.running import new_id


@pytest.fixture(scope="module")
def answers(head, public) -> offaxis.Release:
    return offaxis.fit(head, public, epsilon=2, mechanism="class-response")


def test_a_card_says_what_the_parameters_promise(server, for_means):
    server.publish(for_means)
    card = server.ask("device", "GET", f"/v1/releases/{for_means.hash}/card").json
    assert card["guarantee"]["epsilon"] == "3"
    assert card["guarantee"]["pure"] is True
    assert card["promise"] == wording.promise(for_means.guarantee)
    assert card["not_promised"] == wording.not_promised(for_means.guarantee)
    assert card["strength"] == "weak"
    assert card["report"]["bytes"] == len(for_means.privatize(np.zeros(for_means.input_dim)))
    assert card["report"]["symbols"] is None
    # One of two equally likely vectors, at ε = 3: at most e³ / (1 + e³) = 95.26 %.
    assert card["allowed"][0] == {"answers": "2", "guessing": "50 %", "at_most": "95.3 %"}
    assert server.ask("device", "GET", f"/v1/releases/{'0' * 64}/card").kind == "not-found"
    assert server.ask("device", "GET", "/v1/releases/0/card").kind == "invalid-request"


def test_facts_come_back_as_they_were_printed(server, for_means, printed, tmp_path):
    server.publish(for_means)
    path = f"/v1/releases/{for_means.hash}"
    for kind, body in printed.items():
        more = {"html": "/home/me/audit.html"} if kind == "audit" else {}
        (tmp_path / kind).write_text(json.dumps(json.loads(body) | more))
        assert server.ask("device", "GET", f"{path}/facts/{kind}").kind == "not-found"
    files = [word for kind in printed for word in (f"--{kind}", str(tmp_path / kind))]
    where = {"OFFAXIS_COLLECTOR": f"http://127.0.0.1:{server.port}"}
    where["OFFAXIS_TOKEN"] = server.tokens["admin"]
    got = CliRunner().invoke(app, ["collector", "attach", for_means.hash, *files], env=where)
    assert got.output == "attached curve and audit\n"
    assert server.ask("device", "GET", f"{path}/card").json["facts"] == ["curve", "audit"]
    for kind, body in printed.items():
        found = server.ask("device", "GET", f"{path}/facts/{kind}").json
        expected = json.loads(body)
        # Where a page lies on somebody's machine is nobody else's.
        expected.pop("html", None)
        assert found == expected


def test_an_audit_of_another_release_is_refused(server, answers, printed):
    server.publish(answers)
    path = f"/v1/releases/{answers.hash}/facts"
    got = server.ask("admin", "PUT", f"{path}/audit", printed["audit"])
    assert (got.status, got.kind) == (422, "invalid-release")
    assert server.ask("admin", "PUT", f"{path}/curve", printed["curve"]).status == 204
    # Announced is enough: who sends it all may find the connection closed meanwhile.
    long = {"Content_Length": str(LARGEST_FACTS + 1)}
    assert server.ask("admin", "PUT", f"{path}/curve", b" ", **long).status == 413
    assert server.ask("admin", "PUT", f"{path}/other", b"{}").kind == "not-found"
    missing = f"/v1/releases/{'0' * 64}/facts/curve"
    assert server.ask("admin", "PUT", missing, printed["curve"]).kind == "not-found"


def _changed(kind, **more):
    def change(found):
        place = found["budgets"][0] if kind == "curve" else found
        place |= more
        return found

    return kind, change


CHANGES = [
    _changed("curve", epsilon=1e9),
    _changed("curve", epsilon=5.0),
    _changed("curve", goal="mean"),
    _changed("curve", more=1),
    _changed("curve", ceiling=float("nan")),
    _changed("curve", choice="x" * 201),
    _changed("curve", expected={"score": 2.0, "low": 0.0, "high": 1.0}),
    _changed("audit", epsilon="2"),
    _changed("audit", violation=True),
    _changed("audit", reports=-1),
    _changed("audit", curve=[[0.1, 0.2, 0.3]]),
    _changed("audit", false_alarm="0.1"),
    ("curve", lambda found: found["budgets"][0]),
    ("curve", lambda found: {"budgets": found["budgets"][:1]}),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_what_was_not_printed_so_is_refused(for_means, printed, kind, change):
    body = json.dumps(change(json.loads(printed[kind]))).encode()
    with pytest.raises(InvalidInput):
        read_facts(kind, body, for_means)


@given(st.sampled_from(["curve", "audit"]), st.integers(0, 5000), st.binary(max_size=3))
def test_damaged_facts_are_refused_or_read_but_never_fail(for_means, printed, kind, cut, junk):
    body = printed[kind][:cut] + junk + printed[kind][cut + 1 :]
    with suppress(InvalidInput):
        json.loads(read_facts(kind, body, for_means))


def test_shares_of_symbols_come_with_the_means(server, answers, public):
    server.open(answers, "symbols", groups=("a", "b"))
    chosen = {"a": public[:200], "b": public[200:]}
    kept = {}
    for label, vectors in chosen.items():
        kept[label] = answers.privatize(vectors)
        pairs = [(new_id(), report) for report in kept[label]]
        assert server.batch("symbols", pairs, Offaxis_Group=label).json["accepted"] == len(pairs)
    found = server.ask("analyst", "GET", "/v1/rounds/symbols/means").json["means"]
    assert [one["group"] for one in found] == [None, "a", "b"]
    kept[None] = kept["a"] + kept["b"]
    for one in found:
        reports = kept[one["group"]]
        seen = answers.observe(reports)
        assert one["reports"] == len(reports)
        np.testing.assert_allclose(one["shares"], seen.mean(axis=0), rtol=1e-9)
        error = seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
        np.testing.assert_allclose(one["shares_error"], error, rtol=1e-9)
        assert sum(one["shares"]) == pytest.approx(1)
    # Unbiased: within five standard errors of what the model really answers.
    true = np.bincount(answers.encoder.encode(public), minlength=answers.randomizer.size) / 500
    assert np.all(np.abs(true - found[0]["shares"]) < 5 * np.array(found[0]["shares_error"]))


def test_a_vector_has_no_shares(server, for_means, some_reports):
    server.open(for_means, "no-symbols")
    server.batch("no-symbols", [(new_id(), some_reports[0])])
    (one,) = server.ask("analyst", "GET", "/v1/rounds/no-symbols/means").json["means"]
    assert one["shares"] is one["shares_error"] is one["standard_error"] is None
    assert len(one["mean"]) == for_means.input_dim


def test_a_token_learns_its_role(server):
    assert server.ask("analyst", "GET", "/v1/token").json == {
        "name": "the analyst",
        "role": "analyst",
    }
