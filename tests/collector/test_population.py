"""What the people of a round would answer is that of the same reports in Python, and is kept."""

from __future__ import annotations

import io
import threading
from urllib.parse import quote

import numpy as np
import pytest
from sqlalchemy import select
from typer.testing import CliRunner

import offaxis
from offaxis.cli.app import app
from offaxis.collector import populations as module
from offaxis.collector.database import report
from offaxis.collector.models import MOST_QUESTIONS
from offaxis.collector.populations import (
    FEWEST_VECTORS,
    GROWTH,
    LARGEST_SUPPORT,
    _every,
    _stored_support,
    read_support,
    write_support,
)
from offaxis.collector.questions import MOST_SHARES, QUANTILES
from offaxis.collector.routes import population as routes
from offaxis.encoding import Number
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.learning import Classes, cells, fit_answers, fit_pairs, histogram
from tests.collector.running import new_id

CENTRES = 4 * np.eye(3, 4)
NAMES = ("red", "green", "blue")


def drawn(count: int, seed: int, shares=(1 / 3, 1 / 3, 1 / 3)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(3, count, p=shares)] + rng.standard_normal((count, 4))


PUBLIC = drawn(600, 0)
HEAD = Layers.linear(CENTRES, np.full(3, -8.0))
COLOUR = Layers(HEAD.weights, HEAD.biases, answers=NAMES)


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def weights(model: Layers, folder) -> bytes:
    model.save(folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def release():
    return offaxis.fit(None, PUBLIC, epsilon=4, reshaping="none", mechanism="privunit2")


@pytest.fixture(scope="module")
def asked():
    return fit_answers(
        [Classes(NAMES, name="colour ü"), Number(0, 10, name="age", bins=5)], epsilon=3
    )


@pytest.fixture(scope="module")
def colour(tmp_path_factory) -> bytes:
    return weights(COLOUR, tmp_path_factory.mktemp("colour"))


@pytest.fixture
def equipped(server, release, colour):
    """A server with public vectors and a model attached to the release."""
    server.publish(release)
    path = f"/v1/releases/{release.hash}"
    assert server.request("admin", "PUT", f"{path}/support", npy(PUBLIC)).status == 204
    assert server.request("admin", "PUT", f"{path}/questions/colour", colour).status == 204
    return server


def send(server, name, reports):
    ids = [new_id() for _ in reports]
    got = server.batch(name, list(zip(ids, reports, strict=True)))
    assert got.json["accepted"] == len(reports)
    return ids


def arrived(server, name):
    key = server.collector.catalogue.round(name).key
    query = select(report.c.content).where(report.c.round == key, report.c.content.is_not(None))
    with server.collector.engine.connect() as connection:
        return [bytes(row) for row in connection.execute(query.order_by(report.c.seq)).scalars()]


def asks(server, name, question="", **more):
    query = "&".join(f"{key}={quote(str(value))}" for key, value in more.items())
    query = "&".join(filter(None, (f"question={quote(question)}" if question else "", query)))
    return server.request("analyst", "GET", f"/v1/rounds/{name}/population?{query}")


def column(rows, name):
    return [row[name] for row in rows]


def check(rows, answer, public):
    low, high = answer.interval()
    for name, expected in (
        ("estimate", answer.estimate),
        ("standard_error", answer.standard_error),
        ("low", low),
        ("high", high),
        ("public", public),
    ):
        np.testing.assert_allclose(column(rows, name), np.ravel(expected), rtol=1e-5, atol=1e-7)


# ---- Answers


def test_answers_are_those_of_the_same_reports_in_python(equipped, release):
    equipped.open(release, "asked-1")
    send(equipped, "asked-1", release.privatize(drawn(1500, 1, (0.6, 0.3, 0.1))))
    expected = offaxis.population(release, arrived(equipped, "asked-1"), support=PUBLIC)
    facts = asks(equipped, "asked-1", "colour").json
    assert (facts["reports"], facts["stored"], facts["epsilon"]) == (1500, 1500, "4")
    assert (facts["summary"], facts["warning"]) == (expected.summary, expected.warning)
    assert facts["fit"]["p_value"] == pytest.approx(expected.fit.p_value, abs=1e-6)
    chosen = COLOUR.outputs(expected.vectors).argmax(axis=1)
    public = np.bincount(chosen, minlength=3) / len(chosen)
    assert column(facts["shares"], "name") == list(NAMES)
    check(facts["shares"], expected.share(COLOUR), public)
    # Five standard errors: one false alarm in a million.
    assert abs(facts["shares"][0]["estimate"] - 0.6) < 5 * facts["shares"][0]["standard_error"]
    assert (facts["histogram"], facts["mean"], facts["quantiles"]) == (None, None, None)

    facts = asks(equipped, "asked-1", "vectors", output=1, bins=4).json

    def second(Z):
        return Z[:, 1]

    values = second(expected.vectors)
    edges = np.histogram_bin_edges(values, 4)
    assert facts["histogram"]["edges"] == edges.tolist()
    check(
        facts["histogram"]["bins"],
        expected.histogram(second, edges),
        np.histogram(values, edges)[0] / len(values),
    )
    check([facts["mean"]], expected.mean(second), values.mean())
    assert column(facts["quantiles"], "q") == list(QUANTILES)
    quantiles = expected.quantile(second, list(QUANTILES))
    check(facts["quantiles"], quantiles, np.quantile(values, QUANTILES))
    assert facts["missing"] == []
    assert facts["shares"] is None

    # A score of the classifier is a number; without a question, only the fit is told.
    facts = asks(equipped, "asked-1", "colour", output=2).json
    assert facts["shares"] is None
    check(
        [facts["mean"]],
        expected.mean(lambda Z: COLOUR.outputs(Z)[:, 2]),
        COLOUR.outputs(expected.vectors)[:, 2].mean(),
    )
    facts = asks(equipped, "asked-1").json
    assert "shares" not in facts
    assert facts["fit"]["explained"] is expected.explained


def test_a_warning_is_in_every_answer(equipped, release):
    equipped.open(release, "strange")
    away = np.array([-8.0, -8.0, -8.0, 0.0])  # where no public vector is
    strange = away + np.random.default_rng(2).standard_normal((4000, 4))
    send(equipped, "strange", release.privatize(strange))
    for facts in (asks(equipped, "strange").json, asks(equipped, "strange", "colour").json):
        assert facts["fit"]["explained"] is False
        assert facts["fit"]["p_value"] < 1e-6
        assert facts["warning"].startswith("No weights of the public vectors explain the reports")
        assert facts["warning"] in facts["summary"]


def test_questions_of_a_release_are_listed(equipped, release, tmp_path):
    path = f"/v1/releases/{release.hash}/questions"
    facts = equipped.request("device", "GET", path).json
    vectors = {"name": "vectors", "outputs": 4, "answers": None, "hash": None}
    model = {"name": "colour", "outputs": 3, "answers": list(NAMES)}
    assert (facts["reason"], facts["answers_alone"]) == (None, False)
    hashes = facts["support"].pop("hash"), facts["questions"][1].pop("hash")
    assert (facts["support"], facts["questions"]) == (
        {"vectors": 600, "cells": 20},
        [vectors, model],
    )
    assert all(len(bytes.fromhex(hash_)) == 32 for hash_ in hashes)
    single = weights(Layers.linear(np.ones((1, 4))), tmp_path)
    assert equipped.request("admin", "PUT", f"{path}/sum", single).status == 204
    facts = equipped.request("device", "GET", path).json
    listed = facts["questions"][-1]
    assert (listed["name"], listed["outputs"], listed["answers"]) == ("sum", 1, None)
    assert equipped.request("admin", "DELETE", f"{path}/sum").status == 204
    assert equipped.request("admin", "DELETE", f"{path}/sum").kind == "not-found"
    for i in range(MOST_QUESTIONS - 1):
        assert equipped.request("admin", "PUT", f"{path}/n{i}", single).status == 204
    assert equipped.request("admin", "PUT", f"{path}/one-more", single).kind == "conflict"
    assert equipped.request("admin", "PUT", f"{path}/n0", single).status == 204
    for i in range(MOST_QUESTIONS - 1):
        assert equipped.request("admin", "DELETE", f"{path}/n{i}").status == 204


def test_answers_that_people_reported_need_no_public_vectors(server, asked):
    server.open(asked, "reported")
    assert asks(server, "reported").kind == "no-population"
    rng = np.random.default_rng(3)
    colours = rng.choice(NAMES, 900, p=[0.7, 0.2, 0.1]).tolist()
    ages = rng.uniform(0, 10, 900).tolist()
    send(server, "reported", asked.privatize(answers={"colour ü": colours, "age": ages}))
    facts = asks(server, "reported", "colour ü").json
    shares = asked.shares(arrived(server, "reported"))
    joint = shares.estimate.reshape(3, 5)
    np.testing.assert_allclose(column(facts["shares"], "estimate"), joint.sum(axis=1))
    assert column(facts["shares"], "public") == [None] * 3
    weight = np.repeat(np.eye(3)[0], 5)
    error = facts["shares"][0]["standard_error"]
    assert error == pytest.approx(np.sqrt(shares.variance(weight)))
    assert (facts["fit"], facts["warning"]) == (None, "")
    facts = asks(server, "reported", "age").json
    found = histogram(asked, shares, "age")
    np.testing.assert_allclose(column(facts["histogram"]["bins"], "estimate"), found.estimate)
    assert facts["mean"]["estimate"] == pytest.approx(found.mean().estimate)
    assert facts["quantiles"][2]["low"] == found.quantile(0.5).low
    listed = server.request("analyst", "GET", f"/v1/releases/{asked.hash}/questions").json
    assert (listed["answers_alone"], listed["support"]) == (True, None)
    colour = {"name": "colour ü", "outputs": 1, "answers": list(NAMES), "hash": None}
    assert listed["questions"][0] == colour
    assert asks(server, "reported", "colour ü", output=0).kind == "invalid-request"


def test_only_the_most_frequent_of_very_many_answers_are_returned(server):
    many = fit_answers(MOST_SHARES + 50, epsilon=4)
    server.open(many, "many")
    send(server, "many", many.privatize(answers=["7"] * 400))
    shares = asks(server, "many", "answer").json["shares"]
    assert len(shares) == MOST_SHARES
    assert shares[0]["name"] == "7"


# ---- How often a population is estimated


@pytest.fixture
def estimates(monkeypatch):
    """The number of reports of every estimate that is made."""
    made = []
    estimate = module.of_likelihoods

    def counted(likelihoods):
        made.append(likelihoods.count)
        return estimate(likelihoods)

    monkeypatch.setattr(module, "of_likelihoods", counted)
    return made


def test_a_population_is_estimated_once_and_again_when_reports_are_more(
    equipped, release, estimates
):
    equipped.open(release, "growing-crowd")
    ids = send(equipped, "growing-crowd", release.privatize(drawn(1000, 4)))
    for question in ("colour", "vectors", "colour"):
        asks(
            equipped, "growing-crowd", question, **({"output": 0} if question == "vectors" else {})
        )
    assert estimates == [1000]
    few = round(1000 * (GROWTH - 1)) - 1
    send(equipped, "growing-crowd", release.privatize(drawn(few, 5)))
    facts = asks(equipped, "growing-crowd", "colour").json
    assert (facts["reports"], facts["stored"]) == (1000, 1000 + few)
    send(equipped, "growing-crowd", release.privatize(drawn(1, 6)))
    assert asks(equipped, "growing-crowd", "colour").json["reports"] == 1001 + few
    assert estimates == [1000, 1001 + few]
    # A withdrawn report is in no estimate, however few they are.
    equipped.withdraw("growing-crowd", ids[0])
    assert asks(equipped, "growing-crowd", "colour").json["reports"] == 1000 + few
    send(equipped, "growing-crowd", release.privatize(drawn(1, 7)))
    assert asks(equipped, "growing-crowd", "colour").json["reports"] == 1000 + few
    # Of a closed round every report is in it.
    equipped.request("admin", "POST", "/v1/rounds/growing-crowd/close")
    assert asks(equipped, "growing-crowd", "colour").json["reports"] == 1001 + few
    assert estimates == [1000, 1001 + few, 1000 + few, 1001 + few]


def test_other_public_vectors_are_weighted_anew(equipped, release, estimates):
    equipped.open(release, "again-crowd")
    send(equipped, "again-crowd", release.privatize(drawn(600, 8)))
    path = f"/v1/releases/{release.hash}/support"
    before = asks(equipped, "again-crowd", "colour").json
    assert equipped.request("admin", "PUT", path, npy(PUBLIC)).status == 204
    assert asks(equipped, "again-crowd", "colour").json == before
    assert len(estimates) == 1
    assert equipped.request("admin", "PUT", path, npy(drawn(400, 9))).status == 204
    after = asks(equipped, "again-crowd", "colour").json
    assert (len(estimates), after["fit"]["vectors"]) == (2, 400)


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_population_outlives_the_reports(equipped, release, asked_before):
    name = f"outlives-{asked_before}".lower()
    equipped.open(release, name)
    send(equipped, name, release.privatize(drawn(600, 10)))
    expected = offaxis.population(release, arrived(equipped, name), support=PUBLIC)
    if asked_before:
        asks(equipped, name, "colour")
    equipped.request("admin", "POST", f"/v1/rounds/{name}/close")
    got = equipped.request("admin", "DELETE", f"/v1/rounds/{name}/reports")
    assert got.json["deleted"] == 600
    equipped.collector.catalogue.refresh()
    facts = asks(equipped, name, "colour").json
    assert (facts["reports"], facts["stored"]) == (600, 600)
    np.testing.assert_allclose(
        column(facts["shares"], "estimate"), expected.share(COLOUR).estimate, rtol=1e-5
    )
    # Other public vectors would need the reports.
    path = f"/v1/releases/{release.hash}/support"
    assert equipped.request("admin", "PUT", path, npy(drawn(300, 11))).status == 204
    got = asks(equipped, name, "colour")
    assert (got.kind, "were deleted" in got.json["detail"]) == ("no-population", True)


def test_reports_are_deleted_even_if_the_estimate_fails(equipped, release, monkeypatch):
    equipped.open(release, "failing")
    send(equipped, "failing", release.privatize(drawn(300, 19)))

    def fail(likelihoods):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(module, "of_likelihoods", fail)
    assert asks(equipped, "failing").kind == "internal"
    equipped.request("admin", "POST", "/v1/rounds/failing/close")
    got = equipped.request("admin", "DELETE", "/v1/rounds/failing/reports")
    assert got.json["deleted"] == 300


def test_a_request_does_not_wait_long_for_an_estimate(equipped, release, monkeypatch):
    equipped.open(release, "slow-crowd")
    send(equipped, "slow-crowd", release.privatize(drawn(500, 12)))
    go = threading.Event()
    estimate = module.of_likelihoods

    def slow(likelihoods):
        assert go.wait(180)
        return estimate(likelihoods)

    monkeypatch.setattr(module, "of_likelihoods", slow)
    monkeypatch.setattr(routes, "PATIENCE", 0.2)
    for _ in range(2):  # the second request waits for the same estimate
        got = asks(equipped, "slow-crowd", "colour")
        assert (got.status, got.kind) == (503, "computing")
        assert int(got.headers["retry-after"]) > 0
    assert equipped.request("analyst", "GET", "/v1/rounds/slow-crowd").status == 200
    go.set()
    monkeypatch.setattr(routes, "PATIENCE", 180.0)
    assert asks(equipped, "slow-crowd", "colour").status == 200


def test_large_rounds_are_thinned_out_evenly(equipped, release, monkeypatch, estimates):
    pages = [[b"0", b"1", b"2"], [b"3", b"4"], [b"5"], [], [b"6", b"7", b"8"]]
    for step in (1, 2, 3, 4, 20):
        expected = [b"%d" % i for i in range(0, 9, step)]
        assert list(_every(step, iter(pages))) == expected
    equipped.open(release, "large-crowd")
    send(equipped, "large-crowd", release.privatize(drawn(1300, 13)))
    monkeypatch.setattr(module, "MOST_REPORTS", 500)
    facts = asks(equipped, "large-crowd", "colour").json
    assert (facts["reports"], facts["stored"]) == (434, 1300)
    again = asks(equipped, "large-crowd", "colour").json
    assert (again, estimates) == (facts, [434])


# ---- What is rejected


def test_public_vectors_are_read_strictly(server, release, for_means, asked):
    server.publish(release)
    path = f"/v1/releases/{release.hash}/support"
    good = npy(PUBLIC)
    header = good[: len(good) - PUBLIC.nbytes]
    bad = {
        "numpy.save": [b"", b"{}", good[:50], b"\x93NUMPY\x09" + good[7:]],
        "size that its header": [good[:-8], good + b"0", header.replace(b"(600, 4)", b"(0, 4)  ")],
        "C-ordered": [
            npy(PUBLIC[:, 0]),
            npy(np.asfortranarray(PUBLIC)),
            npy(PUBLIC.astype(int)),
            npy(PUBLIC.astype(">f8")),
        ],
        "have 3 numbers": [npy(PUBLIC[:, :3])],
        f"attach {FEWEST_VECTORS} to": [npy(PUBLIC[: FEWEST_VECTORS - 1]), npy(np.ones((5001, 4)))],
        "finite": [npy(np.where(PUBLIC > 5, np.inf, PUBLIC))],
        "all equal": [npy(np.ones((100, 4)))],
    }
    for reason, bodies in bad.items():
        for body in bodies:
            got = server.request("admin", "PUT", path, body)
            assert (got.status, got.kind) == (422, "invalid-release"), reason
            assert reason in got.json["detail"]
    long = {"Content_Length": str(LARGEST_SUPPORT + 1)}
    assert server.request("admin", "PUT", path, b" ", **long).status == 413
    assert server.request("analyst", "PUT", path, good).kind == "forbidden"
    missing = f"/v1/releases/{'0' * 64}/support"
    assert server.request("admin", "PUT", missing, good).kind == "not-found"
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}]), allow_pickle=True)
    assert server.request("admin", "PUT", path, pickled.getvalue()).kind == "invalid-release"


def test_support_survives_serialization(release):
    support = read_support(npy(PUBLIC.astype(np.float32)), release)
    digest, content = write_support(support)
    again = _stored_support(content)
    assert write_support(again)[0] == digest
    np.testing.assert_array_equal(again.vectors, support.vectors)
    assert again.identity == support.identity
    other = read_support(npy(PUBLIC), release)
    assert write_support(other)[0] != digest


def test_models_are_read_strictly(server, release, colour, tmp_path):
    server.publish(release)
    path = f"/v1/releases/{release.hash}/questions"
    wide = weights(Layers.linear(np.ones((2, 5))), tmp_path)
    many = weights(Layers.linear(np.ones((513, 4))), tmp_path)
    for body, reason in (
        (b"", "a weights file"),
        (colour[:-9], "a weights file"),
        (npy(PUBLIC), "a weights file"),
        (colour.replace(b"offaxis-layers", b"offaxis-lawyer"), "a weights file"),
        (wide, "reads vectors of 5 numbers"),
        (many, "at most 512 outputs"),
    ):
        got = server.request("admin", "PUT", f"{path}/bad", body)
        assert (got.status, got.kind) == (422, "invalid-release"), reason
        assert reason in got.json["detail"]
        assert "/tmp" not in got.json["detail"]
    assert server.request("admin", "PUT", f"{path}/vectors", colour).kind == "invalid-release"
    for name in ("Colour", "a" * 64, "-a", "a_b"):
        assert server.request("admin", "PUT", f"{path}/{name}", colour).kind == "invalid-request"
    assert server.request("analyst", "DELETE", f"{path}/colour").kind == "forbidden"


def test_rounds_without_a_population_say_why(server, release, for_means, asked):
    pairs = fit_pairs(cells(PUBLIC, 3), NAMES, epsilon=2)
    sequence = offaxis.memoise(release, draws=2, period=7)
    for other, reason in (
        (for_means, "no public vectors are attached"),
        (pairs, "about vectors and private answers together"),
        (sequence, "for sequences"),
    ):
        name = f"none-{other.hash[:8]}"
        server.open(other, name)
        got = asks(server, name)
        assert (got.status, got.kind) == (409, "no-population")
        assert reason in got.json["detail"]
    listed = server.request("device", "GET", f"/v1/releases/{pairs.hash}/questions").json
    assert (listed["questions"], listed["support"]) == ([], None)
    assert "together" in listed["reason"]
    for other, reason in ((pairs, "together"), (asked, "answers alone")):
        server.publish(other)
        body = npy(np.zeros((100, other.input_dim)))
        got = server.request("admin", "PUT", f"/v1/releases/{other.hash}/support", body)
        assert (got.kind, reason in got.json["detail"]) == ("invalid-release", True)
    assert asks(server, "nobody").kind == "not-found"


def test_questions_that_cannot_be_answered_say_why(equipped, release):
    equipped.open(release, "refused")
    got = asks(equipped, "refused", "colour")
    assert (got.kind, "no reports" in got.json["detail"]) == ("no-population", True)
    send(equipped, "refused", release.privatize(drawn(199, 14)))
    got = asks(equipped, "refused", "colour")
    assert (got.kind, "at least 200" in got.json["detail"]) == ("no-population", True)
    send(equipped, "refused", release.privatize(drawn(1, 15)))
    for arguments, reason in (
        ({"question": "age"}, "'vectors', 'colour'"),
        ({"question": "vectors"}, "pass output=0 to output=3"),
        ({"question": "vectors", "output": 4}, "outputs 0 to 3"),
        ({"question": "vectors", "output": "x"}, "must be an integer"),
        ({"question": "vectors", "output": 0, "bins": 1}, "bins must be an integer"),
    ):
        got = asks(equipped, "refused", **arguments)
        assert (got.status, got.kind) == (422, "invalid-request")
        assert reason in got.json["detail"]
    assert equipped.request("admin", "GET", "/v1/rounds/refused/population").kind == "forbidden"


def test_too_few_reports_for_a_question_are_told(server):
    noisy = offaxis.fit(None, PUBLIC, epsilon=0.2, reshaping="none", mechanism="privunit2")
    server.open(noisy, "noisy")
    path = f"/v1/releases/{noisy.hash}/support"
    assert server.request("admin", "PUT", path, npy(PUBLIC)).status == 204
    send(server, "noisy", noisy.privatize(drawn(250, 16)))
    got = asks(server, "noisy", "vectors", output=3)
    assert (got.status, got.kind) == (409, "no-population")
    assert "too few for this question" in got.json["detail"]


# ---- Command line


def test_the_command_line_attaches_and_asks(server, release, tmp_path):
    server.open(release, "shell")
    send(server, "shell", release.privatize(drawn(1200, 17)))
    np.save(tmp_path / "public.npy", drawn(7000, 18))
    COLOUR.save(tmp_path / "colour.safetensors")
    environment = {
        "OFFAXIS_COLLECTOR": f"http://127.0.0.1:{server.port}",
        "OFFAXIS_TOKEN": server.tokens["admin"],
    }

    def run(*words):
        return CliRunner().invoke(app, ["collector", *words], env=environment)

    support = ("--support", str(tmp_path / "public.npy"))
    question = ("--question", f"colour={tmp_path / 'colour.safetensors'}")
    got = run("attach", release.hash, *support, *question)
    assert got.output == "attached public vectors and question colour\n"
    assert run("questions", release.hash).output == "vectors: 4 numbers\ncolour: one of 3 answers\n"
    environment["OFFAXIS_TOKEN"] = server.tokens["analyst"]
    got = run("ask", "shell", "colour")
    facts = asks(server, "shell", "colour").json
    assert facts["fit"]["vectors"] == 5000
    assert f"{facts['shares'][0]['estimate']:.1%}" in got.output
    assert "95 % interval" in got.output
    got = run("ask", "shell", "vectors", "--output", "2")
    assert "quantile 0.5" in got.output
    assert "mean" in got.output
    assert "at least" not in got.output
    for wrong in (["attach", release.hash], ["attach", release.hash, "--question", "colour"]):
        assert run(*wrong).exit_code == 2
    assert run("ask", "shell", "age").exit_code != 0


def test_reading_a_support_of_a_release_of_answers_is_refused(asked):
    with pytest.raises(InvalidInput, match="answers alone"):
        read_support(npy(PUBLIC), asked)
