"""Questions are listed and answered whatever is attached: hostile, wide or broken models."""

from __future__ import annotations

import struct
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save

import offaxis
from offaxis.collector import models
from offaxis.collector.changes import Change, change_facts
from offaxis.collector.drift import FALSE_ALARM
from offaxis.collector.models import MOST_NUMBERS, evaluate
from offaxis.collector.routes import population as routes
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.learning import fit_answers, frequencies
from tests.collector.test_population import COLOUR, NAMES, PUBLIC, asks, drawn, npy, send, weights

MOVED = (0.7, 0.2, 0.1)
BROKEN = Layers([1e200 * np.ones((3, 4)), 1e200 * np.ones((2, 3))], [np.zeros(3), np.zeros(2)])


@pytest.fixture(scope="module")
def release():
    return offaxis.fit(None, drawn(500, 90), epsilon=4, reshaping="none", mechanism="privunit2")


@pytest.fixture
def path(server, release, tmp_path):
    """The path of a release with public vectors and the question colour."""
    server.publish(release)
    path = f"/v1/releases/{release.hash}"
    assert server.request("admin", "PUT", f"{path}/support", npy(PUBLIC)).status == 204
    attach(server, path, "colour", weights(COLOUR, tmp_path))
    yield path
    for question in server.request("device", "GET", f"{path}/questions").json["questions"]:
        server.request("admin", "DELETE", f"{path}/questions/{question['name']}")


def attach(server, path, name, body):
    got = server.request("admin", "PUT", f"{path}/questions/{name}", body)
    assert got.status == 204, got


def drift(server, name):
    return server.request("analyst", "GET", f"/v1/rounds/{name}/drift")


# ---- Cost


def test_a_model_is_read_once_and_not_for_lists(server, release, path, monkeypatch, tmp_path):
    read, evaluated = [], []
    load, outputs = models.load_model, models.evaluate
    monkeypatch.setattr(models, "load_model", lambda body: (read.append(1), load(body))[1])
    monkeypatch.setattr(
        models, "evaluate", lambda *parts: (evaluated.append(1), outputs(*parts))[1]
    )
    server.open(release, "read-once")
    send(server, "read-once", release.privatize(drawn(600, 91)))
    server.collector.evaluations._known.clear()
    for _ in range(3):
        listed = server.request("device", "GET", f"{path}/questions").json["questions"]
        assert [part["name"] for part in listed] == ["vectors", "colour"]
        assert asks(server, "read-once", "vectors", output=0).status == 200
    assert (len(read), len(evaluated)) == (0, 0)
    first = asks(server, "read-once", "colour").json
    for output in range(3):
        asks(server, "read-once", "colour", output=output)
    assert (len(read), len(evaluated)) == (1, 1)
    # Another model of this name is another question, already evaluated when it was attached.
    swapped = Layers(
        [COLOUR.weights[0][::-1]], [COLOUR.biases[0]], name="other", answers=COLOUR.answers
    )
    attach(server, path, "colour", weights(swapped, tmp_path))
    second = asks(server, "read-once", "colour").json
    assert (len(read), len(evaluated)) == (2, 2)
    assert second["shares"][0]["estimate"] == pytest.approx(first["shares"][2]["estimate"])


def test_slow_questions_keep_nobody_from_other_requests(server, release, path, monkeypatch):
    server.open(release, "slow-questions")
    send(server, "slow-questions", release.privatize(drawn(600, 92)))
    assert asks(server, "slow-questions", "vectors", output=0).status == 200
    server.collector.evaluations._known.clear()
    begun, go = threading.Event(), threading.Event()
    outputs = models.evaluate

    def slow(model, vectors):
        begun.set()
        assert go.wait(180)
        return outputs(model, vectors)

    monkeypatch.setattr(models, "evaluate", slow)
    monkeypatch.setattr(routes, "PATIENCE", 0.2)
    got = asks(server, "slow-questions", "colour")
    assert (got.status, got.kind) == (503, "computing")
    assert int(got.headers["retry-after"]) > 0
    assert begun.wait(60)
    monkeypatch.setattr(routes, "PATIENCE", 180.0)
    failsafe = threading.Timer(30, go.set)
    failsafe.start()
    # More requests than a process has threads for other requests.
    with ThreadPoolExecutor(40) as clients:
        waiting = [clients.submit(asks, server, "slow-questions", "colour") for _ in range(40)]
        while not go.is_set() and server.collector.evaluations._threads._work_queue.qsize() < 20:
            time.sleep(0.01)
        assert server.request("nobody", "GET", "/readyz").status == 200
        assert server.request("device", "GET", f"{path}/questions").status == 200
        assert not go.is_set()
        go.set()
        assert {part.result().status for part in waiting} == {200}
    failsafe.cancel()


def test_a_wide_model_is_evaluated_in_batches(monkeypatch):
    rng = np.random.default_rng(93)
    hidden = 30_000
    wide = Layers(
        [0.01 * rng.standard_normal((hidden, 4)), rng.standard_normal((2, hidden))],
        [np.zeros(hidden), np.zeros(2)],
        "gelu",
    )
    vectors = rng.standard_normal((1000, 4))
    tracemalloc.start()
    found = evaluate(wide, vectors)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A few arrays of a batch; all rows at once take 240 MB each.
    assert peak < 8 * 8 * MOST_NUMBERS
    np.testing.assert_allclose(found[:40], wide.outputs(vectors[:40]), rtol=1e-9)
    sizes = []
    outputs = Layers.outputs

    def noted(self, Z):
        sizes.append(len(Z))
        return outputs(self, Z)

    monkeypatch.setattr(Layers, "outputs", noted)
    monkeypatch.setattr(models, "MOST_NUMBERS", hidden - 1)
    evaluate(wide, vectors[:3])
    assert sizes == [1, 1, 1]


def test_outputs_in_memory_are_bounded(server, release, path, monkeypatch):
    kept = server.collector.evaluations
    support = server.collector.populations.support(release.hash)
    monkeypatch.setattr(models, "_MOST_KEPT", 2)
    listed = server.collector.store.questions(release.hash)
    for i in range(5):
        kept.check(models.AttachedModel("x", f"{i:064x}", 3, None), COLOUR, support)
    assert len(kept._known) == 2
    monkeypatch.setattr(models, "_MOST_BYTES", 1)
    kept.outputs(release.hash, listed[0], support)
    assert len(kept._known) == 1


# ---- Broken models and changes


def test_a_model_without_finite_outputs_is_refused(server, path, tmp_path):
    got = server.request("admin", "PUT", f"{path}/questions/broken", weights(BROKEN, tmp_path))
    assert (got.status, got.kind) == (422, "invalid-release")
    assert "the model has no finite output for" in got.json["detail"]


def test_a_broken_model_hides_no_other_change(server, tmp_path):
    release = offaxis.fit(None, drawn(500, 94), epsilon=4, reshaping="none", mechanism="privunit2")
    path = f"/v1/releases/{release.hash}"
    for number, shares in ((1, (1 / 3, 1 / 3, 1 / 3)), (2, MOVED)):
        server.open(release, f"broken-{number}", study="broken", number=number)
        people = drawn(2500, 94 + number, shares)
        send(server, f"broken-{number}", release.privatize(people))
    # There were no public vectors to try it on.
    attach(server, path, "broken", weights(BROKEN, tmp_path))
    attach(server, path, "colour", weights(COLOUR, tmp_path))
    assert server.request("admin", "PUT", f"{path}/support", npy(PUBLIC)).status == 204
    got = asks(server, "broken-2", "broken")
    assert (got.kind, "no finite output" in got.json["detail"]) == ("no-population", True)
    facts = drift(server, "broken-2").json
    change = facts["change"]
    assert change["changed"] is True
    assert change["missing"].startswith("broken: the model has no finite output for")
    assert change["where"][0]["name"] == f"colour: {NAMES[0]}"
    assert any(row["name"].startswith("cell ") for row in change["where"])
    assert "the share of colour: red rose by" in facts["summary"]


def test_the_reason_why_it_is_unknown_where_is_told():
    change = Change("before", FALSE_ALARM / 2, (), "head: the model has no finite output.")
    summary = change_facts([change], FALSE_ALARM)["summary"]
    assert summary.endswith("; it is not known where: head: the model has no finite output.")
    assert "too few" not in summary


@pytest.mark.parametrize("always", [False, True])
def test_public_vectors_may_be_replaced_during_a_comparison(
    server, release, path, monkeypatch, always
):
    study = f"replaced-{always}".lower()
    for number in (1, 2):
        server.open(release, f"{study}-{number}", study=study, number=number)
        send(server, f"{study}-{number}", release.privatize(drawn(600, 96 + number)))
    populations, calls = server.collector.populations, []
    of = populations.of

    def replacing(stored, *more):
        # The first one is of the round itself, and the next one of the earlier round.
        calls.append(stored)
        if len(calls) % 2 == 0 and (always or len(calls) == 2):
            other = npy(drawn(300 + len(calls), 99))
            assert server.request("admin", "PUT", f"{path}/support", other).status == 204
        return of(stored, *more)

    monkeypatch.setattr(populations, "of", replacing)
    got = drift(server, f"{study}-2")
    assert len(calls) == 4
    if always:
        assert (got.status, got.kind) == (503, "computing")
        assert int(got.headers["retry-after"]) > 0
    else:
        assert got.json["change"]["compared"][0]["round"] == f"{study}-1"


# ---- Hostile files


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


HEADERS = {
    "parentheses": _header("(" * 9000),
    "no tuple": _header("{'descr': '<f8', 'fortran_order': False, 'shape': (900000, }"),
    "open tuple": _header("{'descr': '<f8', 'fortran_order': False, 'shape': (900000"),
    "bool": _header("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 4), }") + bytes(32),
}


def _tensors(weight, bias, **metadata) -> bytes:
    known = {"format": "offaxis-layers", "activation": "relu", "name": "x"}
    tensors = {"weight.0": np.asarray(weight), "bias.0": np.asarray(bias)}
    return save(tensors, {**known, **metadata})


MODELS = {
    "nested answers": _tensors(np.ones((3, 4)), np.zeros(3), answers="[" * 100_000),
    "scalar weight": _tensors(1.0, 1.0),
    "no outputs": _tensors(np.zeros((0, 4)), np.zeros(0)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_public_vectors_are_refused(server, path, name):
    got = server.request("admin", "PUT", f"{path}/support", HEADERS[name])
    assert (got.status, got.kind) == (422, "invalid-release")


@pytest.mark.parametrize("name", MODELS)
def test_hostile_models_are_refused(server, path, name):
    got = server.request("admin", "PUT", f"{path}/questions/hostile", MODELS[name])
    assert (got.status, got.kind) == (422, "invalid-release")


# ---- What is not known


def test_few_reported_answers_have_no_shares(server):
    asked = fit_answers(["yes", "no"], epsilon=3)
    server.open(asked, "few-answers")
    fewest = frequencies.FEWEST
    send(server, "few-answers", asked.privatize(answers=["yes"] * (fewest - 1)))
    got = asks(server, "few-answers", "answer")
    assert (got.status, got.kind) == (409, "no-population")
    assert got.json["detail"].startswith("99 reports are too few for shares of answers")
    assert f"at least {fewest}" in got.json["detail"]
    send(server, "few-answers", asked.privatize(answers=["yes"]))
    assert asks(server, "few-answers", "answer").json["reports"] == fewest


def test_an_answer_of_no_public_vector_is_unknown(server, release, path, tmp_path):
    weight = np.vstack([COLOUR.weights[0], np.zeros((1, 4))])
    more = Layers([weight], [np.array([-8.0, -8, -8, -1e6])], answers=(*NAMES, "violet"))
    attach(server, path, "more", weights(more, tmp_path))
    server.open(release, "unknown-answer")
    send(server, "unknown-answer", release.privatize(drawn(1500, 98)))
    facts = asks(server, "unknown-answer", "more").json
    violet = facts["shares"][-1]
    assert (violet["name"], violet["low"], violet["high"]) == ("violet", 0.0, 1.0)
    assert "violet" in facts["warning"]
    assert facts["warning"] in facts["summary"]
    assert "violet" not in facts["fit"]["warning"]
    other = asks(server, "unknown-answer", "colour").json
    assert "violet" not in other["warning"]


def test_a_model_that_was_removed_meanwhile_has_no_outputs(server, release, path):
    (model,) = server.collector.store.questions(release.hash)
    server.collector.evaluations._known.clear()
    server.request("admin", "DELETE", f"{path}/questions/colour")
    support = server.collector.populations.support(release.hash)
    with pytest.raises(InvalidInput, match="removed or replaced"):
        server.collector.evaluations.outputs(release.hash, model, support)
