"""Asking the people of rounds, in a real browser with a real collector."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import offaxis
from offaxis.collector.routes import population as routes
from offaxis.encoding import Number
from offaxis.geometry import Layers
from offaxis.learning import Classes, cells, fit_answers, fit_pairs
from tests.browser.dashboard.test_views import shows_number, shows_percent
from tests.collector.running import Running, new_id, running

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 900}
CENTRES = 4 * np.eye(3, 4)
NAMES = ("red", "<b>green</b>", "blue")
EVEN, MOVED = (1 / 3, 1 / 3, 1 / 3), (0.7, 0.2, 0.1)


def drawn(count: int, seed: int, shares=EVEN) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(3, count, p=shares)] + rng.standard_normal((count, 4))


def send(server: Running, name: str, reports: list[bytes]) -> None:
    got = server.batch(name, [(new_id(), report) for report in reports])
    assert got.json["accepted"] == len(reports)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def release() -> offaxis.Release:
    return offaxis.fit(None, drawn(600, 0), epsilon=4, reshaping="none", mechanism="privunit2")


@pytest.fixture(scope="module")
def collector(release, tmp_path_factory) -> Iterator[Running]:
    """Studies of vectors with and without public vectors, of answers alone, and of pairs."""
    public = drawn(600, 0)
    folder = tmp_path_factory.mktemp("population")
    asked = fit_answers(
        [Classes(["yes", "no", "don't know"], name="opinion"), Number(0, 100, name="age", bins=10)],
        epsilon=3,
    )
    bare = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="privunit2")
    pairs = fit_pairs(cells(public, 3), ["a", "b"], epsilon=2)
    head = Layers.linear(CENTRES, np.full(3, -8.0))
    Layers(head.weights, head.biases, answers=NAMES).save(folder / "colour")
    with running(f"sqlite:///{folder}/collector.db", reader_rate=1e6) as server:
        server.open(bare, "bare-1", study="bare")
        server.open(pairs, "pairs-1", study="pairs")
        server.open(asked, "opinion-1", study="opinion")
        rng = np.random.default_rng(1)
        told = {
            "opinion": rng.choice(["yes", "no", "don't know"], 2500).tolist(),
            "age": rng.normal(40, 12, 2500).tolist(),
        }
        send(server, "opinion-1", asked.privatize(answers=told))
        path = f"/v1/releases/{release.hash}"
        server.publish(release)
        assert server.request("admin", "PUT", f"{path}/support", npy(public)).status == 204
        colour = (folder / "colour").read_bytes()
        assert server.request("admin", "PUT", f"{path}/questions/colour", colour).status == 204
        for number, shares, count in (
            (1, EVEN, 3000),
            (2, EVEN, 3000),
            (3, MOVED, 3000),
            (4, MOVED, 60),
        ):
            server.open(release, f"colours-{number}", study="colours", number=number)
            people = drawn(count, 10 + number, shares)
            send(server, f"colours-{number}", release.privatize(people))
        server.open(release, "strange-1", study="strange")
        people = np.array([-8.0, -8.0, -8.0, 0.0]) + rng.standard_normal((3000, 4))
        send(server, "strange-1", release.privatize(people))
        yield server


def facts(server: Running, name: str, query: str = "question=colour"):
    return server.request("analyst", "GET", f"/v1/rounds/{name}/population?{query}").json


def choose(page: Page, study: str) -> None:
    select = page.get_by_label("Study")
    value = select.locator("option", has_text=study).get_attribute("value")
    select.select_option(value)


def rows(page: Page, caption: str) -> list[list[str]]:
    # Tables in closed details have no role for a reader, so they are found by their attributes.
    table = page.locator(f'[role=region][aria-label="{caption}"]')
    table.wait_for(state="attached")
    return [row.locator("th, td").all_text_contents() for row in table.locator("tbody tr").all()]


@pytest.fixture(autouse=True)
def _expected_refusals(open_page):
    """A browser notes every response of 409 and 503; those of rounds without an answer are fine."""
    yield
    kept = [text for text in open_page.complaints if not re.search(r"status of (409|503)", text)]
    open_page.complaints[:] = kept


def interval(text: str) -> list[str]:
    return text.split(" to ")


def test_a_first_estimate_is_announced(open_page, collector):
    page = open_page(role=None)
    held: list = []
    holding = True
    page.route(
        "**/population?*", lambda route: held.append(route) if holding else route.continue_()
    )
    token = json.dumps(collector.tokens["analyst"])
    page.evaluate(f"sessionStorage.setItem('offaxis.token', {token})")
    page.goto(f"http://127.0.0.1:{collector.port}/dashboard#/ask")
    page.reload()
    waiting = page.get_by_text("Estimating the people of the rounds")
    expect(waiting).to_be_visible()
    holding = False
    for route in held:
        route.continue_()
    expect(page.get_by_role("img").first).to_be_visible()
    expect(waiting).to_be_hidden()


def test_shares_by_round_are_those_of_the_api(open_page, collector):
    page = open_page(at="#/ask")
    expect(page.get_by_role("link", name="Ask")).to_have_attribute("aria-current", "page")
    choose(page, "colours")
    expect(page.get_by_label("Question")).to_have_value("colour")
    expect(page.get_by_label("Answer", exact=True)).to_have_value("red")
    page.get_by_label("Round", exact=True).select_option("colours-3")
    expect(page.get_by_text("rose by").first).to_be_visible()
    found = rows(page, "Answer by round")
    assert [row[0] for row in found] == [f"colours-{i}" for i in (1, 2, 3, 4)]
    for name, reports, share, ends, _ in found[:3]:
        got = facts(collector, name)
        assert reports == f"{got['reports']:,}"
        assert shows_percent(share, got["shares"][0]["estimate"])
        low, high = interval(ends)
        assert shows_percent(low, got["shares"][0]["low"])
        assert shows_percent(high, got["shares"][0]["high"])
    assert "at least 200" in found[3][4]
    chart = page.get_by_role("img", name="The share of red by round")
    expect(chart.locator(".dot")).to_have_count(3)
    expect(chart).to_contain_text("public vectors:")
    shares = rows(page, "Shares of answers")
    for row, expected in zip(shares, facts(collector, "colours-3")["shares"], strict=True):
        assert row[0] == expected["name"]
        assert shows_percent(row[1], expected["estimate"])
        assert shows_percent(row[3], expected["public"])
    bars = page.get_by_role("img", name="Shares of answers with error bars")
    assert bars.locator("rect.bar").count() == bars.locator("path.other").count() == 3
    page.get_by_label("Answer", exact=True).select_option("<b>green</b>")
    expect(page.get_by_role("img", name="The share of <b>green</b> by round")).to_be_visible()


def test_a_number_has_a_histogram_and_quantiles(open_page, collector):
    page = open_page(at="#/ask")
    choose(page, "colours")
    page.get_by_label("Question").select_option("vectors")
    page.get_by_label("Round", exact=True).select_option("colours-2")
    # The newest round is fetched first, so with the answer of the first one all are there.
    with page.expect_response(lambda got: "colours-1/population" in got.url and "=2" in got.url):
        page.get_by_label("Coordinate").fill("2")
        page.get_by_label("Coordinate").press("Enter")
    got = facts(collector, "colours-2", "question=vectors&output=2")
    shown = page.locator("section", has=page.get_by_role("heading", name="One round"))
    expect(shown.locator(".big")).to_contain_text("mean, 95 % interval")
    low = f"{got['mean']['low']:.4g}"
    expect(shown.locator(".big")).to_contain_text(low.rstrip("0") if "." in low else low)
    expect(shown.get_by_role("img", name="Histogram with error bars")).to_be_visible()
    for row, expected in zip(rows(page, "Histogram"), got["histogram"]["bins"], strict=True):
        assert shows_percent(row[1], expected["estimate"])
        assert shows_percent(row[3], expected["public"])
    for row, expected in zip(rows(page, "Quantiles"), got["quantiles"], strict=True):
        assert shows_number(row[1], expected["estimate"])
        low, high = interval(row[2])
        assert shows_number(low, expected["low"])
        assert shows_number(high, expected["high"])
    # The score of an answer is a number, too.
    page.get_by_label("Question").select_option("colour")
    page.get_by_label("Show").select_option("1")
    expect(page.get_by_role("img", name="The mean by round")).to_be_visible()


def test_the_verdict_of_a_changed_round_says_where(open_page, collector):
    page = open_page(at="#/ask")
    choose(page, "colours")
    part = page.locator("section", has=page.get_by_role("heading", name="Has the crowd changed?"))
    for name, state in (("1", "not compared"), ("3", "changed"), ("4", "not compared")):
        item = part.locator("li", has=page.get_by_role("heading", name=f"colours-{name}"))
        expect(item.locator(".badge")).to_have_text(state)
        drift = collector.request("analyst", "GET", f"/v1/rounds/colours-{name}/drift").json
        expect(item).to_contain_text(drift["summary"])
    drift = collector.request("analyst", "GET", "/v1/rounds/colours-3/drift").json
    changed = rows(page, "Changes in colours-3")
    for row, expected in zip(changed, drift["change"]["where"], strict=True):
        assert row[0] == expected["name"]
        assert ("colour: " in row[0]) != row[5].startswith("colour: ")
        assert float(row[3]) == pytest.approx(100 * expected["change"], abs=0.051)
    # The page of the round has the same verdict.
    page.goto(page.url.split("#")[0] + "#/rounds/colours-3")
    expect(page.get_by_text(drift["summary"])).to_be_visible()


def test_a_warning_is_shown_with_every_answer(open_page, collector):
    page = open_page(at="#/ask")
    choose(page, "strange")
    warning = facts(collector, "strange-1")["warning"]
    assert "explain" in warning
    expect(page.get_by_role("note").filter(has_text=warning)).to_be_visible()
    expect(page.get_by_role("note").filter(has_text="In strange-1")).to_be_visible()
    assert rows(page, "Answer by round")[0][4] == "does not explain the reports"
    page.get_by_label("Question").select_option("vectors")
    expect(page.get_by_role("img", name="The mean by round")).to_be_visible()
    expect(page.get_by_role("note").filter(has_text=warning)).to_be_visible()


def test_answers_that_people_reported_are_asked_without_public_vectors(open_page, collector):
    page = open_page(at="#/ask")
    choose(page, "opinion")
    expect(page.get_by_text("People reported these answers")).to_be_visible()
    got = facts(collector, "opinion-1", "question=opinion")
    expect(page.get_by_role("img", name="Shares of answers")).to_be_visible()
    shares = rows(page, "Shares of answers")
    assert [row[0] for row in shares] == ["yes", "no", "don't know"]
    assert all(
        shows_percent(row[1], part["estimate"])
        for row, part in zip(shares, got["shares"], strict=True)
    )
    page.get_by_label("Question").select_option("age")
    expect(page.get_by_role("img", name="Histogram")).to_be_visible()
    assert len(rows(page, "Histogram")) == 10


def test_what_is_missing_is_said(open_page, collector):
    page = open_page(at="#/ask")
    choose(page, "bare")
    expect(page.get_by_text("No public vectors are attached")).to_be_visible()
    expect(page.get_by_text("offaxis collector attach my.release --support")).to_be_visible()
    expect(page.get_by_role("heading", name="By round")).to_be_hidden()
    assert not page.get_by_label("Study").locator("option", has_text="pairs").count()
    page = open_page("admin", at="#/ask")
    expect(page.locator("main")).to_contain_text("Asking requires the role analyst")


def test_an_estimate_in_progress_is_shown_and_awaited(open_page, collector, release, monkeypatch):
    monkeypatch.setattr(routes, "PATIENCE", 0.0)
    collector.open(release, "late-1", study="late")
    send(collector, "late-1", release.privatize(drawn(400, 30)))
    page = open_page(at="#/ask")
    choose(page, "late")
    expect(page.get_by_role("region", name="Answer by round")).to_contain_text("late-1")
    monkeypatch.setattr(routes, "PATIENCE", 60.0)
    expect(page.get_by_role("img", name="The share of red by round")).to_be_visible()
    assert rows(page, "Answer by round")[0][1] == "400"
    send(collector, "late-1", release.privatize(drawn(400, 31)))
    table = page.get_by_role("region", name="Answer by round")
    expect(table.locator("td").first).to_have_text("800")


def test_replaced_models_and_public_vectors_are_asked_anew(open_page, collector, tmp_path):
    """Nothing else changes: not the reports, nor the name and the number of questions."""
    release = offaxis.fit(None, drawn(500, 40), epsilon=4, reshaping="none", mechanism="privunit2")
    collector.open(release, "swapped-1", study="swapped")
    path = f"/v1/releases/{release.hash}"

    def attach(order: list[int], public: np.ndarray) -> None:
        answers = ("red", "green", "blue", "violet")
        weight = np.vstack([CENTRES[order], np.zeros(4)])
        model = Layers([weight], [np.array([-8.0, -8, -8, -1e6])], answers=answers)
        model.save(tmp_path / "model")
        body = (tmp_path / "model").read_bytes()
        assert collector.request("admin", "PUT", f"{path}/support", npy(public)).status == 204
        assert collector.request("admin", "PUT", f"{path}/questions/one", body).status == 204

    attach([0, 1, 2], drawn(600, 41))
    send(collector, "swapped-1", release.privatize(drawn(2000, 42, MOVED)))
    page = open_page(at="#/ask")
    choose(page, "swapped")
    part = page.get_by_role("region", name="Answer by round")
    before = facts(collector, "swapped-1", "question=one")
    assert before["shares"][0]["low"] > 0.5
    shown = rows(page, "Answer by round")[0][2]
    assert shows_percent(shown, before["shares"][0]["estimate"])
    # Nobody knows how many people give an answer that no public vector has.
    warning = page.get_by_role("note").filter(has_text="violet")
    expect(warning).to_be_visible()
    assert interval(rows(page, "Shares of answers")[3][2]) == ["0 %", "100 %"]
    expect(part.locator(".badge")).not_to_have_text("has a warning")
    attach([2, 1, 0], drawn(600, 41))
    after = facts(collector, "swapped-1", "question=one")
    assert after["shares"][0]["high"] < 0.3
    expect(part).not_to_contain_text(shown)
    assert shows_percent(rows(page, "Answer by round")[0][2], after["shares"][0]["estimate"])
    asked = ("swapped-1/population", "swapped-1/drift")
    with (
        page.expect_response(lambda got: asked[0] in got.url),
        page.expect_response(lambda got: asked[1] in got.url),
    ):
        attach([2, 1, 0], drawn(600, 43))


def test_another_study_may_be_chosen_while_reports_are_counted(open_page):
    """A question is asked of the rounds of its own study, or the server refuses it."""
    page = open_page()
    held: list = []
    holding = True
    counted = re.compile(r"/v1/rounds/colours-\d$")
    page.route(counted, lambda route: held.append(route) if holding else route.continue_())
    page.goto(page.url.split("#")[0] + "#/ask")
    choose(page, "colours")
    while not held:
        page.wait_for_timeout(20)
    choose(page, "opinion")
    holding = False
    for route in held:
        route.continue_()
    expect(page.get_by_role("region", name="Answer by round")).to_contain_text("opinion-1")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_asking_is_accessible_and_fits(open_page, size):
    page = open_page(at="#/ask", viewport=size)
    for study in ("colours", "strange", "opinion", "bare"):
        choose(page, study)
        page.locator("section.card table, section.card pre").first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            violations = Axe().run(page).response["violations"]
            assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
            assert page.evaluate("document.scrollingElement.scrollWidth") <= size["width"]
