"""The dashboard in a real browser, before a real collector: what it shows is what the API says."""

from __future__ import annotations

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.dashboard.conftest import send

ROUND = "#/rounds/answers-1"
PHONE, DESKTOP = {"width": 360, "height": 780}, {"width": 1280, "height": 900}


def rows(page: Page, caption: str) -> list[list[str]]:
    page.get_by_text(f"{caption} as a table").click()
    found = page.get_by_role("region", name=caption, exact=True).locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in found.all()]


def near(shown: str, value: float, digits: float) -> bool:
    return abs(float(re.sub(r"[±% ]", "", shown)) - value) <= digits


def test_who_signs_in_sees_rounds_and_the_way_back_works(open_page, collector):
    page = open_page(None)
    page.get_by_label("Token").fill(collector.tokens["analyst"])
    page.keyboard.press("Enter")
    expect(page.locator("#role")).to_have_text("the analyst (analyst)")
    expect(page.get_by_role("heading", name="Study answers")).to_be_visible()
    card = page.locator(".card", has_text="vectors-1")
    expect(card.locator(".count")).to_have_text("40")
    expect(card.locator(".badge")).to_have_text("open")
    # By keyboard alone: to a round, and back.
    page.get_by_role("link", name="vectors-1").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Round vectors-1")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Rounds")
    assert collector.tokens["analyst"] not in page.url
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0


def test_numbers_are_those_of_the_api(open_page, collector, book):
    page = open_page(at=ROUND)
    found = collector.ask("analyst", "GET", "/v1/rounds/answers-1/means").json
    everybody, north, _ = found["means"]
    expect(page.locator("#reports")).to_have_text(f"{found['reports']:,}")
    shown = rows(page, "Shares")
    assert len(shown) == book.randomizer.size
    for at, (name, share, error) in enumerate(shown):
        assert name == str(at)
        assert near(share, 100 * everybody["shares"][at], 0.05)
        assert near(error, 100 * everybody["shares_error"][at], 0.05)
    for at, (_, mean, error) in enumerate(rows(page, "Means")):
        assert near(mean, everybody["mean"][at], 1e-3 * abs(everybody["mean"][at]))
        assert near(error, everybody["standard_error"][at], 1e-3 * everybody["standard_error"][at])
    page.get_by_label("Group").select_option("north")
    expect(page.get_by_text("From 450 reports.")).to_be_visible()
    table = page.get_by_role("region", name="Shares", exact=True)
    assert near(table.locator("td").first.inner_text(), 100 * north["shares"][0], 0.05)
    drift = collector.ask("analyst", "GET", "/v1/rounds/answers-1/drift").json
    expect(page.get_by_text(drift["summary"])).to_be_visible()
    bars = page.get_by_role("img", name=re.compile("^Shares with error bars, of north"))
    assert bars.locator("rect.bar").count() == bars.locator("path.error").count() == 5


def test_a_release_is_told_in_words_with_its_curve_and_its_audit(open_page, collector, book):
    page = open_page("device", at=f"#/releases/{book.hash}")
    path = f"/v1/releases/{book.hash}"
    card = collector.ask("device", "GET", f"{path}/card").json
    for words in (*card["promise"], card["meaning"], *card["protected"]):
        expect(page.get_by_text(words)).to_be_visible()
    expect(page.get_by_text("weak protection")).to_be_visible()
    expect(page.get_by_text(f"{book.report_size} bytes, the same for every vector")).to_be_visible()
    audit = collector.ask("device", "GET", f"{path}/facts/audit").json
    expect(page.get_by_text(audit["summary"])).to_be_visible()
    chart = page.get_by_role("img", name=re.compile("^agreement with the model against ε"))
    expect(chart.locator("path.limit")).to_have_count(1)
    # The mark stands where the curve's own point of ε = 3 does.
    mark = float(chart.locator("line.mark").get_attribute("x1"))
    points = [float(one.get_attribute("cx")) for one in chart.locator("circle.dot").all()]
    assert min(abs(mark - x) for x in points) < 1e-6
    budgets = collector.ask("device", "GET", f"{path}/facts/curve").json["budgets"]
    page.get_by_text("The curve as a table").click()
    table = page.get_by_role("region", name="What is recommended at every ε")
    for one, row in zip(budgets, table.locator("tbody tr").all(), strict=True):
        cells = row.locator("th, td").all_inner_texts()
        assert near(cells[2], 100 * one["expected"]["score"], 0.05)
        assert near(cells[3], 100 * one["ceiling"], 0.05)


def test_a_round_fills_while_one_looks(open_page, collector, book, public):
    page = open_page(at=ROUND)
    before = collector.ask("analyst", "GET", "/v1/rounds/answers-1").json["reports"]
    expect(page.locator("#reports")).to_have_text(f"{before:,}")
    page.get_by_label("Group").select_option("south")
    page.get_by_label("Group").focus()
    send(collector, book, public[:60], "south")
    expect(page.locator("#reports")).to_have_text(f"{before + 60:,}")
    expect(page.get_by_text("From 110 reports.")).to_be_visible()
    # Nothing is taken from under the reader's hands.
    expect(page.get_by_label("Group")).to_be_focused()
    assert page.get_by_label("Group").input_value() == "south"
    assert re.fullmatch(r"[\d,]+ reports so far\.", page.locator("#said").inner_text())


def test_many_coordinates_are_turned_by_pages(open_page):
    page = open_page(at="#/rounds/vectors-1")
    expect(page.get_by_text("0 to 31 of 42")).to_be_visible()
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("32 to 41 of 42")).to_be_visible()
    assert page.locator(".chart circle.dot:visible").count() == 10
    expect(page.get_by_text("This release has no profile")).to_be_visible()


@pytest.mark.parametrize(("role", "shown"), [("device", "not shown"), ("admin", "40")])
def test_other_roles_see_what_they_may_and_are_told_the_rest(open_page, role, shown):
    page = open_page(role, at="#/rounds/vectors-1")
    expect(page.locator("#reports")).to_have_text(shown)
    told = f"Means and drift are for analysts; this token's role is {role}."
    expect(page.get_by_text(told)).to_have_count(2)
    expect(page.get_by_role("heading", name="Privacy card")).to_be_visible()
    page.goto(page.url.split("#")[0] + "#/")
    expect(page.get_by_role("link", name="vectors-1")).to_be_visible()


def test_what_others_wrote_stays_text(open_page, collector, book):
    markup = "<img src=x onerror=alert(1)>"
    path = f"/v1/releases/{book.hash}/facts/curve"
    curve = collector.ask("device", "GET", path).json
    changed = json.loads(json.dumps(curve))
    changed["budgets"][0]["choice"] = markup
    assert collector.ask("admin", "PUT", path, json.dumps(changed).encode()).status == 204
    page = open_page(at=f"#/releases/{book.hash}")
    page.get_by_text("The curve as a table").click()
    expect(page.get_by_text(markup)).to_be_visible()
    assert page.locator("img").count() == 0
    assert collector.ask("admin", "PUT", path, json.dumps(curve).encode()).status == 204


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_everybody_can_use_it(open_page, collector, scheme, size):
    """Axe finds nothing serious, and nothing is wider than the screen."""
    page = open_page(None, viewport=size, color_scheme=scheme, reduced_motion="reduce")
    look_at(page, "#token")
    page.get_by_label("Token").fill(collector.tokens["analyst"])
    page.keyboard.press("Enter")
    look_at(page, ".count")
    page.get_by_role("link", name="answers-1").click()
    look_at(page, ".limit")


def look_at(page: Page, there: str) -> None:
    expect(page.locator(there).first).to_be_attached()
    for one in page.locator("summary:visible").all():
        one.click()
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
