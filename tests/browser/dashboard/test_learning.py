"""What rounds of pairs teach, in a real browser with a real collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import offaxis
from offaxis.geometry import Layers
from offaxis.learning import Classes, Number, cells, fit_check, fit_pairs, principal
from tests.browser.dashboard.test_views import shows_number, shows_percent
from tests.collector.running import Running, new_id, running

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
CENTRES = 6 * np.eye(3, 4)
COLOURS = ["red", "<b>green</b>", "blue"]


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.integers(3, size=count)
    return CENTRES[own] + rng.standard_normal((count, 4)), own


def send(server: Running, release: offaxis.Release, name: str, count: int, seed: int) -> None:
    people, own = drawn(count, seed)
    told = {part.name: own.tolist() for part in release.asked}
    reports = release.privatize(people, answers=told)
    got = server.batch(name, [(new_id(), report) for report in reports])
    assert got.json["accepted"] == count


@pytest.fixture(scope="module")
def colours() -> offaxis.Release:
    return fit_pairs(cells(drawn(600)[0], 3), Classes(COLOURS, name="colour"), epsilon=2)


@pytest.fixture(scope="module")
def collector(colours, tmp_path_factory) -> Iterator[Running]:
    """A collector with two rounds of cells and a check, and another study with moments."""
    public = drawn(600)[0]
    check = fit_check(CENTRES, public, Classes(COLOURS, name="colour"), epsilon=2)
    asked = [Classes(["a", "b", "c"], name="kind"), Number(0, 2, name="size")]
    linear = fit_pairs(principal(public), asked, epsilon=4)
    other = offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")
    folder = tmp_path_factory.mktemp("learning")
    with running(f"sqlite:///{folder}/collector.db", reader_rate=1e6) as server:
        for number in (1, 2, 3):
            server.open(colours, f"colours-{number}", study="colours", number=number)
        for number, count in ((1, 400), (2, 600)):
            send(server, colours, f"colours-{number}", count, number)
        server.open(check, "colours-check", study="colours", number=4)
        send(server, check, "colours-check", 500, 4)
        server.open(linear, "moments-1", study="moments")
        send(server, linear, "moments-1", 3000, 5)
        server.open(other, "vectors-1", study="vectors")
        yield server


def facts(server: Running, name: str):
    return server.request("analyst", "GET", f"/v1/rounds/{name}/learning").json


def rows(page: Page, study: str) -> list[list[str]]:
    part = page.locator(".study", has=page.get_by_role("heading", name=f"Study {study}"))
    table = part.get_by_role("region", name="Rounds in order")
    table.wait_for()
    return [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]


def same_model(file: Path, content: bytes) -> bool:
    """Whether a file has a model; the order of a file's metadata varies."""
    other = file.with_suffix(".other")
    other.write_bytes(content)
    people, _ = drawn(20, 9)
    outputs = [Layers.load(path).outputs(people) for path in (file, other)]
    return np.array_equal(*outputs)


def shows_accuracy(text: str, accuracy: dict[str, float]) -> bool:
    estimate, interval = text.split(" (")
    low, high = interval.split(")")[0].split(" to ")
    pairs = ((estimate, "estimate"), (low, "low"), (high, "high"))
    return all(shows_percent(shown, accuracy[name]) for shown, name in pairs)


def test_the_learning_curve_has_the_numbers_of_the_api(open_page, collector):
    page = open_page(at="#/learning")
    expect(page.get_by_role("link", name="Learning")).to_have_attribute("aria-current", "page")
    found = rows(page, "colours")
    assert [row[:2] for row in found] == [
        ["colours-1", "400"],
        ["colours-2", "600"],
        ["colours-3", "0"],
        ["colours-check", "500"],
    ]
    first, second, _, check = (facts(collector, row[0]) for row in found)
    assert shows_accuracy(found[0][2], first["alone"]["answers"][0]["accuracy"])
    assert found[0][3:5] == ["", ""]
    assert shows_accuracy(found[1][2], second["alone"]["answers"][0]["accuracy"])
    assert found[1][3] == "1,000"
    assert shows_accuracy(found[1][4], second["together"]["answers"][0]["accuracy"])
    assert found[2][2] == "no reports yet"
    assert found[3][2].endswith(", of a public model")
    assert shows_accuracy(found[3][2], check["alone"]["answers"][0]["accuracy"])
    assert {row[5] for row in found} == {"2"}
    chart = page.get_by_role("img", name="Accuracy of colour by round")
    assert chart.locator(".is-alone .dot").count() == 2
    assert chart.locator(".is-check .dot").count() == 1
    expect(chart).to_contain_text("one of 3 at random: 33.3 %")
    expect(page.get_by_role("heading", name="Study vectors")).to_have_count(0)


def test_moments_show_evidence_and_point_to_checks(open_page, collector):
    page = open_page(at="#/learning")
    kind, size = rows(page, "moments")
    answers = facts(collector, "moments-1")["alone"]["answers"]
    assert [answer["evidence"] for answer in answers] == [True, True]
    assert kind[:3] == ["moments-1: kind", "3,000", "the reports show something"]
    assert size[0] == "moments-1: size"
    shown = size[2].removeprefix("the reports show something: ").removesuffix(" explained")
    assert shows_number(shown.replace("\u00a0", " "), answers[1]["explained"])
    expect(page.get_by_text("A round of checks tells it")).to_be_visible()


def test_new_reports_change_the_curve(open_page, collector, colours):
    page = open_page(at="#/learning")
    assert rows(page, "colours")[2][1] == "0"
    send(collector, colours, "colours-3", 200, 7)
    part = page.locator(".study", has_text="Study colours")
    expect(part.locator("tbody tr").nth(2).locator("td").first).to_have_text("200")
    expect(part.locator("tbody tr").nth(2).locator("td").nth(2)).to_have_text("1,200")


def test_a_round_shows_what_it_teaches_and_offers_the_model(open_page, collector, tmp_path):
    page = open_page(at="#/rounds/colours-2")
    part = page.locator("section", has=page.get_by_role("heading", name="Learning", exact=True))
    found = facts(collector, "colours-2")
    (answer,) = found["alone"]["answers"]
    big = part.locator(".big")
    expect(big).to_contain_text("the reports show something")
    assert shows_percent(big.inner_text().split("%")[0], answer["accuracy"]["estimate"])
    expect(part).to_contain_text("Assumption: none (people whose reports were left out judge")
    expect(part).to_contain_text("1,000 reports of 2 rounds")
    with page.expect_download() as saved:
        part.get_by_role("button", name="Download the model").click()
    assert saved.value.suggested_filename == "colours-2.safetensors"
    saved.value.save_as(tmp_path / "saved")
    got = collector.request("analyst", "GET", "/v1/rounds/colours-2/model")
    assert same_model(tmp_path / "saved", got.body)
    assert Layers.load(tmp_path / "saved").answers == tuple(COLOURS)


def test_rounds_without_a_model_say_why(open_page, collector):
    page = open_page(at="#/rounds/colours-check")
    part = page.locator("section", has=page.get_by_role("heading", name="Learning", exact=True))
    expect(part).to_contain_text("The public model that this round checks is right")
    expect(part.get_by_role("button")).to_have_count(0)
    page.goto(page.url.split("#")[0] + "#/rounds/moments-1")
    expect(part).to_contain_text("which do not tell how often a model is right")
    expect(part.get_by_role("button", name="Download the model")).to_have_count(2)
    with page.expect_download() as saved:
        part.get_by_role("button", name="Download the model").last.click()
    got = collector.request("analyst", "GET", "/v1/rounds/moments-1/model?answer=size")
    assert same_model(Path(saved.value.path()), got.body)
    page.goto(page.url.split("#")[0] + "#/rounds/vectors-1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Round vectors-1")
    expect(page.locator("#reports")).to_have_text("0")
    expect(part).to_be_hidden()


def test_a_download_that_fails_says_so(open_page, collector):
    page = open_page(at="#/rounds/colours-1")
    page.route("**/model", lambda route: route.fulfill(status=503, body='{"detail": "not now"}'))
    page.get_by_role("button", name="Download the model").click()
    alert = page.get_by_role("alert").filter(has_text="No model was downloaded")
    expect(alert).to_contain_text("503: not now")
    expect(page.get_by_role("button", name="Download the model")).to_be_enabled()
    open_page.complaints.clear()


def test_an_admin_sees_no_learning(open_page, collector):
    page = open_page("admin", at="#/learning")
    expect(page.locator("main")).to_contain_text("Learning requires the role analyst")
    page.goto(page.url.split("#")[0] + "#/rounds/colours-1")
    expect(page.locator("main")).to_contain_text("Means and drift require the role analyst")
    expect(page.get_by_role("heading", name="Learning", exact=True)).to_be_hidden()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_learning_is_accessible(open_page, size):
    page = open_page(at="#/learning", viewport=size)
    for at in ("#/learning", "#/rounds/colours-2", "#/rounds/moments-1"):
        page.goto(page.url.split("#")[0] + at)
        page.locator("section.card table, section.card button").first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            violations = Axe().run(page).response["violations"]
            assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
            assert page.evaluate("document.scrollingElement.scrollWidth") <= size["width"]
