"""What reports of pairs teach is that of the same reports in Python, and stays after deletion."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np
import pytest
from sqlalchemy import select, update

import offaxis
from offaxis.collector import learning as module
from offaxis.collector.database import moments, report, writing
from offaxis.collector.means import MOST_NUMBERS, Totals, learns, moments_size
from offaxis.geometry import Layers
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
from tests.checks import with_optional_numbers
from tests.collector.running import new_id

CENTRES = 6 * np.eye(3, 4)
NAMES = ["red", "green", "blue"]


def drawn(count: int, seed: int = 0):
    """Return vectors around three centres, and which centre."""
    rng = np.random.default_rng(seed)
    own = rng.integers(3, size=count)
    return CENTRES[own] + rng.standard_normal((count, 4)), own


@pytest.fixture(scope="module")
def clustered():
    return fit_pairs(cells(drawn(600)[0], 3), NAMES, epsilon=2)


@pytest.fixture(scope="module")
def linear():
    asked = [Classes(NAMES, name="colour ü"), Number(0, 10, name="hours")]
    return fit_pairs(principal(drawn(600)[0]), asked, epsilon=3)


def send(server, name, reports):
    ids = [new_id() for _ in reports]
    got = server.batch(name, list(zip(ids, reports, strict=True)))
    assert got.json["accepted"] == len(reports)
    return ids


def stored(server, *names):
    """Return the reports of rounds as they are counted: in the order in which they were stored."""
    reports = []
    for name in names:
        key = server.collector.catalogue.round(name).key
        query = select(report.c.content).where(report.c.round == key, report.c.content.is_not(None))
        with server.collector.engine.connect() as connection:
            rows = connection.execute(query.order_by(report.c.seq)).scalars()
            reports += [bytes(content) for content in rows]
    return reports


def fetched(server, name, part="learning"):
    got = server.request("analyst", "GET", f"/v1/rounds/{name}/{part}")
    assert got.status == 200, got
    return got


def check_cells(facts, release, reports):
    (answer,) = facts["answers"]
    model = learn(release, reports)
    expected = model.expected_accuracy()
    assert facts["reports"] == len(reports)
    assert answer["evidence"] == model.evidence_
    for name in ("estimate", "low", "high"):
        assert answer["accuracy"][name] == pytest.approx(getattr(expected, name), abs=1e-9)
    assert answer["accuracy"]["assumption"] == expected.assumption


def test_learning_by_round_is_that_of_the_same_reports(server, clustered):
    server.open(clustered, "colours-2", study="colours", number=2)
    server.open(clustered, "colours-1", study="colours", number=1)
    empty = fetched(server, "colours-2").json
    assert empty["alone"] == {
        "reports": 0,
        "answers": [
            {"name": "answer", "classes": 3, "accuracy": None, "evidence": None, "explained": None}
        ],
    }
    people, own = drawn(900, 1)
    reports = clustered.privatize(people, answers=[NAMES[i] for i in own])
    send(server, "colours-1", reports[:300])
    send(server, "colours-2", reports[300:500])
    fetched(server, "colours-2")
    send(server, "colours-2", reports[500:])
    first, second = (fetched(server, f"colours-{i}").json for i in (1, 2))
    check_cells(first["alone"], clustered, stored(server, "colours-1"))
    assert first["together"] == {"rounds": ["colours-1"], **first["alone"]}
    check_cells(second["alone"], clustered, stored(server, "colours-2"))
    merged, rest = PairSums(clustered), PairSums(clustered)
    merged.add(stored(server, "colours-1"))
    rest.add(stored(server, "colours-2"))
    merged.merge(rest)
    expected = learn(clustered, merged).expected_accuracy()
    together = second["together"]
    assert together["rounds"] == ["colours-1", "colours-2"]
    assert together["reports"] == 900
    (answer,) = together["answers"]
    assert answer["accuracy"]["estimate"] == pytest.approx(expected.estimate, abs=1e-9)
    assert answer["accuracy"]["low"] == pytest.approx(expected.low, abs=1e-9)
    assert (second["form"], second["number"], second["epsilon"]) == ("cells", 2, "2")


def test_rounds_of_other_studies_and_releases_are_not_merged(server, clustered):
    other = fit_pairs(cells(drawn(600, 5)[0], 3), NAMES, epsilon=2)
    server.open(clustered, "apart-1", study="apart", number=1)
    server.open(other, "apart-2", study="apart", number=2)
    server.open(clustered, "aside-1", study="aside", number=1)
    server.open(clustered, "apart-3", study="apart", number=3)
    server.open(clustered, "apart-4", study="apart", number=4)
    assert fetched(server, "apart-3").json["together"]["rounds"] == ["apart-1", "apart-3"]


def test_the_model_is_that_of_the_same_reports(server, clustered, tmp_path):
    server.open(clustered, "modelled")
    got = server.request("analyst", "GET", "/v1/rounds/modelled/model")
    assert (got.status, got.kind) == (409, "no-model")
    people, own = drawn(400, 2)
    reports = clustered.privatize(people, answers=own.tolist())
    send(server, "modelled", reports)
    got = fetched(server, "modelled", "model")
    assert got.headers["content-disposition"] == 'attachment; filename="modelled.safetensors"'
    (tmp_path / "learnt").write_bytes(got.body)
    layers, model = Layers.load(tmp_path / "learnt"), learn(clustered, reports)
    assert layers.answers == tuple(NAMES)
    np.testing.assert_allclose(layers.outputs(people), model.layers_.outputs(people), rtol=1e-12)


def test_a_withdrawn_report_teaches_nothing_and_sums_outlive_reports(server, clustered):
    server.open(clustered, "forgotten")
    people, own = drawn(120, 3)
    reports = clustered.privatize(people, answers=own.tolist())
    ids = send(server, "forgotten", reports)
    fetched(server, "forgotten")
    server.withdraw("forgotten", ids[17])
    kept = stored(server, "forgotten")
    assert sorted([*kept, reports[17]]) == sorted(reports)
    check_cells(fetched(server, "forgotten").json["alone"], clustered, kept)
    server.request("admin", "POST", "/v1/rounds/forgotten/close")
    assert server.request("admin", "DELETE", "/v1/rounds/forgotten/reports").json["deleted"] == 120
    check_cells(fetched(server, "forgotten").json["alone"], clustered, kept)
    assert fetched(server, "forgotten", "model").body


def test_moments_tell_evidence_and_no_accuracy(server, linear):
    server.open(linear, "moments")
    people, own = drawn(3000, 4)
    hours = 5 + 2 * (people[:, 0] > 3)
    told = {"colour ü": own.tolist(), "hours": hours.tolist()}
    reports = linear.privatize(people, answers=told)
    send(server, "moments", reports)
    facts, reports = fetched(server, "moments").json, stored(server, "moments")
    colour, number = facts["alone"]["answers"]
    model = learn(linear, reports, answer="hours")
    assert facts["form"] == "moments"
    assert (colour["accuracy"], number["accuracy"]) == (None, None)
    assert colour["evidence"] is learn(linear, reports, answer="colour ü").evidence_ is True
    assert (colour["explained"], colour["classes"], number["classes"]) == (None, 3, None)
    assert number["explained"] == pytest.approx(model.explained_deviation(), abs=1e-9)
    path = f"model?answer={quote('colour ü')}"
    hours_model = fetched(server, "moments", "model?answer=hours")
    assert fetched(server, "moments", path).body != hours_model.body
    for wrong in ("model", "model?answer=age"):
        got = server.request("analyst", "GET", f"/v1/rounds/moments/{wrong}")
        assert (got.status, got.kind) == (422, "invalid-request")


def test_a_check_tells_the_accuracy_of_a_public_model(server):
    people, own = drawn(500, 6)
    release = fit_check(CENTRES, people[:100], NAMES, epsilon=2)
    server.open(release, "checked")
    assert fetched(server, "checked").json["alone"]["answers"][0]["accuracy"] is None
    reports = release.privatize(people, answers=own.tolist())
    send(server, "checked", reports)
    facts = fetched(server, "checked").json
    found = accuracy(release, reports)
    (answer,) = facts["alone"]["answers"]
    assert facts["form"] == "right"
    assert answer["accuracy"]["estimate"] == pytest.approx(min(1, max(0, found.estimate)))
    assert answer["accuracy"]["low"] == pytest.approx(found.interval()[0])
    assert answer["accuracy"]["high"] == pytest.approx(found.interval()[1])
    got = server.request("analyst", "GET", "/v1/rounds/checked/model")
    assert (got.status, got.kind) == (409, "no-model")


def test_too_few_reports_have_no_accuracy(server, clustered):
    server.open(clustered, "few")
    people, own = drawn(4, 7)
    send(server, "few", clustered.privatize(people, answers=own.tolist()))
    (answer,) = fetched(server, "few").json["alone"]["answers"]
    assert answer["accuracy"] is None
    assert isinstance(answer["evidence"], bool)


def test_other_releases_teach_nothing_here(server, for_means, clustered, monkeypatch):
    vectors = drawn(300)[0]
    unlabelled = fit_pairs(cells(vectors, 3), epsilon=2)
    wide = fit_pairs(principal(vectors, 4), ["a", "b"], epsilon=2)
    monkeypatch.setattr(module, "MOST_FEATURES", 3)
    for release, reason in (
        (for_means, "no answers"),
        (unlabelled, "does not know the labels"),
        (offaxis.memoise(clustered, draws=2, period=7), "people who report once"),
        (wide, "too large"),
    ):
        name = f"nothing-{release.hash[:8]}"
        server.open(release, name)
        for part in ("learning", "model"):
            got = server.request("analyst", "GET", f"/v1/rounds/{name}/{part}")
            assert (got.status, got.kind) == (409, "no-model")
            assert reason in got.json["detail"]
    assert server.request("analyst", "GET", "/v1/rounds/nobody/learning").kind == "not-found"


def test_sums_survive_serialization_and_count_in_the_size(clustered):
    people, own = drawn(50, 8)
    rows = [(made, None) for made in clustered.privatize(people, answers=own.tolist())]
    totals = Totals()
    totals.add(clustered, rows[:33])
    again = Totals.from_bytes(totals.to_bytes())
    assert again.to_bytes() == totals.to_bytes()
    again.add(clustered, rows[33:])
    sums = PairSums(clustered)
    sums.add([made for made, _ in rows])
    found = module.sums_of(clustered, [again])
    np.testing.assert_array_equal(found.counts, sums.counts)
    np.testing.assert_array_equal(found.totals, sums.totals)
    assert again.summed == again.observed.count == 50
    assert learns(clustered)
    assert moments_size(clustered, 0) == 6 * clustered.decoder.input_dim < MOST_NUMBERS


def test_rounds_of_few_people_fill_all_folds(clustered):
    """Each round starts with the first fold."""
    people, own = drawn(40, 11)
    reports = clustered.privatize(people, answers=own.tolist())
    parts = []
    for i in range(0, 40, 2):
        totals = Totals()
        totals.add(clustered, [(content, None) for content in reports[i : i + 2]])
        parts.append(totals)
    sums = module.sums_of(clustered, parts)
    assert sums.count == 40
    assert sums.counts.min() >= 5
    found = module.learning_facts(clustered, parts)["answers"][0]["accuracy"]
    assert found["low"] < found["high"]


def test_a_number_that_people_may_not_have_is_shown_without_a_model(server, linear):
    """Nothing can be learnt of it; the other answer is shown all the same."""
    release = with_optional_numbers(linear)
    server.open(release, "optional-1")
    people, own = drawn(30, 12)
    hours = [None if i % 2 else 3.0 for i in range(30)]
    colours = [NAMES[i] for i in own]
    send(
        server,
        "optional-1",
        release.privatize(people, answers={"colour ü": colours, "hours": hours}),
    )
    colour, number = fetched(server, "optional-1").json["alone"]["answers"]
    assert colour["evidence"] is not None
    assert number == {
        "name": "hours",
        "classes": None,
        "accuracy": None,
        "evidence": None,
        "explained": None,
    }


def test_sums_of_an_earlier_version_are_missing(server, clustered):
    server.open(clustered, "older")
    people, own = drawn(20, 9)
    send(server, "older", clustered.privatize(people, answers=own.tolist()))
    server.request("admin", "POST", "/v1/rounds/older/close")  # so that nothing follows it
    key = server.collector.catalogue.round("older").key
    totals = server.collector.follower.follow(key, clustered)
    assert totals.summed == 20
    totals.folds = None
    with writing(server.collector.engine) as connection:
        state = {"state": totals.to_bytes()}
        connection.execute(update(moments).where(moments.c.round == key).values(**state))
    got = server.request("analyst", "GET", "/v1/rounds/older/learning")
    assert (got.status, got.kind) == (409, "no-model")
    assert "earlier version" in got.json["detail"]
