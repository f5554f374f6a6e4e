"""The dashboard in a real browser with a real collector shows what the API returns."""

from __future__ import annotations

import json
import math
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import offaxis
from tests.browser.dashboard.conftest import send
from tests.collector.running import running

ROUND = "#/rounds/answers-1"
PHONE, DESKTOP = {"width": 360, "height": 780}, {"width": 1280, "height": 900}


def rows(page: Page, caption: str) -> list[list[str]]:
    page.get_by_text(f"{caption} as a table").click()
    table = page.get_by_role("region", name=caption, exact=True).locator("tbody tr")
    return [row.locator("th, td").all_inner_texts() for row in table.all()]


ROUNDING = 0.5001
"""Units in the last digit: rounding is half a unit, and the rest covers ties in binary."""


def shows_percent(text: str, share: float) -> bool:
    """Whether a text is a share, rounded to 0.1 %."""
    return abs(float(re.sub(r"[±% ]", "", text)) - 100 * share) <= ROUNDING * 0.1


def last_digit(value: float) -> float:
    """Return the unit of the last digit that the dashboard shows of a number.

    It shows four significant digits, but three of numbers below 1e-4 or from 1e5 on. So a relative
    tolerance of 1e-3 is too small for a mean that happens to be near zero.
    """
    digits = 4 if 1e-4 <= abs(value) < 1e5 else 3
    return 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)


def shows_number(text: str, value: float) -> bool:
    """Whether a text is a number, rounded to the last digit that is shown."""
    if value == 0:
        return text == "0"
    return abs(float(re.sub(r"[± ]", "", text)) - value) <= ROUNDING * last_digit(value)


def test_signing_in_shows_the_rounds_and_back_works(open_page, collector):
    page = open_page(None)
    page.get_by_label("Token").fill(collector.tokens["analyst"])
    page.keyboard.press("Enter")
    expect(page.locator("#role")).to_have_text("the analyst (analyst)")
    expect(page.get_by_role("heading", name="Study answers")).to_be_visible()
    card = page.locator(".card", has_text="vectors-1")
    expect(card.locator(".count")).to_have_text("40")
    expect(card.locator(".badge")).to_have_text("open")
    # Using only the keyboard: to a round, and back.
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
    facts = collector.request("analyst", "GET", "/v1/rounds/answers-1/means").json
    everybody, north, _ = facts["means"]
    expect(page.locator("#reports")).to_have_text(f"{facts['reports']:,}")
    shares = rows(page, "Shares")
    assert len(shares) == book.randomizer.size
    for i, (name, share, error, interval) in enumerate(shares):
        assert name == str(i)
        assert shows_percent(share, everybody["shares"][i])
        assert shows_percent(error, everybody["shares_error"][i])
        low, high = interval.split(" to ")
        assert shows_percent(low, everybody["shares_low"][i])
        assert shows_percent(high, everybody["shares_high"][i])
    assert everybody["mean"] is None, "a symbol does not determine a vector"
    expect(page.get_by_text("Means as a table")).to_be_hidden()
    page.get_by_label("Group").select_option("north")
    expect(page.get_by_text("From 450 reports.")).to_be_visible()
    table = page.get_by_role("region", name="Shares", exact=True)
    assert shows_percent(table.locator("td").first.inner_text(), north["shares"][0])
    drift = collector.request("analyst", "GET", "/v1/rounds/answers-1/drift").json
    expect(page.get_by_text(drift["summary"])).to_be_visible()
    bars = page.get_by_role("img", name=re.compile("^Shares with error bars, of north"))
    assert bars.locator("rect.bar").count() == bars.locator("path.error").count() == 5


def test_means_are_those_of_the_api(open_page, collector):
    page = open_page(at="#/rounds/vectors-1")
    (everybody,) = collector.request("analyst", "GET", "/v1/rounds/vectors-1/means").json["means"]
    means = rows(page, "Means")
    assert means
    for i, (_, mean, error) in enumerate(means):
        assert shows_number(mean, everybody["mean"][i])
        assert shows_number(error, everybody["standard_error"][i])
    expect(page.get_by_text("each clipped to the release's radius")).to_be_visible()


def test_names_of_answers_are_shown_as_text(open_page):
    """Markup in a name stays text, and the interval is next to the estimate."""
    page = open_page(None)
    cells = page.evaluate(
        """async () => {
          const { estimates } = await import("/browser/dashboard/estimates.js");
          const shown = estimates();
          const entry = {
            group: null, reports: 9, shares: [0.9, 0.1], shares_error: [0.2, 0.2],
            shares_low: [0.4, 0], shares_high: [1, 0.6],
          };
          shown.update({ names: ["cat", "<b>dog</b>"], means: [entry] });
          return [...shown.node.querySelectorAll("tbody tr")].map((row) =>
            [...row.children].map((cell) => cell.textContent));
        }"""
    )
    assert cells == [
        ["cat", "90 %", "± 20 %", "40 % to 100 %"],
        ["<b>dog</b>", "10 %", "± 20 %", "0 % to 60 %"],
    ]


VALUES = [1.23456789, -0.00012345, 0.1225, 99876.5, 123456.0, 9.99996e-5, 1.2349e-5, -4.5651e-12]


def test_the_comparison_accepts_every_correct_number_and_no_other(open_page):
    """Also of numbers near zero. The broken control is off by 1.1 units of the last digit."""
    page = open_page(None)

    def shown(values: list[float]) -> list[list[str]]:
        return page.evaluate(
            """async (values) => {
              const { number, percent } = await import("/browser/dashboard/words.js");
              return values.map((value) => [number(value), percent(value)]);
            }""",
            values,
        )

    broken_numbers = shown([value + 1.1 * last_digit(value) for value in VALUES])
    broken_shares = shown([value + 1.1e-3 for value in VALUES])
    for i, (number, share) in enumerate(shown(VALUES)):
        assert shows_number(number, VALUES[i])
        assert shows_percent(share, VALUES[i])
        assert not shows_number(broken_numbers[i][0], VALUES[i])
        assert not shows_percent(broken_shares[i][1], VALUES[i])
    assert shows_number(shown([0.0])[0][0], 0.0)
    assert not shows_number("1.00e-12", 0.0)


def test_a_release_page_shows_its_card_curve_and_audit(open_page, collector, book):
    page = open_page("device", at=f"#/releases/{book.hash}")
    path = f"/v1/releases/{book.hash}"
    card = collector.request("device", "GET", f"{path}/card").json
    for text in (*card["promise"], card["meaning"], *card["protected"]):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_text("weak protection")).to_be_visible()
    expect(page.get_by_text(f"{book.report_size} bytes, the same for every vector")).to_be_visible()
    audit = collector.request("device", "GET", f"{path}/facts/audit").json
    expect(page.get_by_text(audit["summary"])).to_be_visible()
    chart = page.get_by_role("img", name=re.compile("^agreement with the model against ε"))
    expect(chart.locator("path.limit")).to_have_count(1)
    # The mark is at the curve's point of ε = 3.
    mark = float(chart.locator("line.mark").get_attribute("x1"))
    points = [float(dot.get_attribute("cx")) for dot in chart.locator("circle.dot").all()]
    assert min(abs(mark - x) for x in points) < 1e-6
    budgets = collector.request("device", "GET", f"{path}/facts/curve").json["budgets"]
    page.get_by_text("The curve as a table").click()
    table = page.get_by_role("region", name="Recommendation at each ε")
    for budget, row in zip(budgets, table.locator("tbody tr").all(), strict=True):
        cells = row.locator("th, td").all_inner_texts()
        assert shows_percent(cells[2], budget["expected"]["score"])
        assert shows_percent(cells[3], budget["ceiling"])


def test_a_release_with_delta_says_what_delta_means(open_page, collector, book, leaky):
    """On its page, on the page of its round, and in the list; a pure release shows no δ."""
    card = collector.request("device", "GET", f"/v1/releases/{leaky.hash}/card").json
    for at in (f"#/releases/{leaky.hash}", "#/rounds/leaky-1"):
        page = open_page("device", at=at)
        expect(page.get_by_text("ε = 3, δ = 1e-05, per item")).to_be_visible()
        assert any("δ is not the probability" in text for text in card["promise"])
        for text in (*card["promise"], card["meaning"], card["loss_above_epsilon"]):
            expect(page.get_by_text(text)).to_be_visible()
        expect(page.get_by_text("With δ = 1e-05 some reports may move a belief")).to_be_visible()
        expect(page.get_by_text("δ = 1e-05, and the bound does not apply to it")).to_be_visible()
        marks = page.locator("svg text.marked")
        expect(marks).to_have_text("this release, ε = 3, δ = 1e-05")
        page.get_by_text(re.compile(r"^All \d+ tests$")).click()
        expect(page.get_by_role("columnheader", name="ε ≥, at δ = 1e-05")).to_be_visible()
    page = open_page("device", at="#/releases")
    expect(page.locator(".card", has_text="δ = 1e-05")).to_have_count(1)
    page = open_page("device", at=f"#/releases/{book.hash}")
    expect(page.get_by_role("heading", name="Privacy card")).to_be_visible()
    expect(page.locator("text.marked")).to_have_text("this release, ε = 3")
    expect(page.get_by_text("δ")).to_have_count(0)


def test_a_release_of_sequences_shows_what_a_year_promises(context_of, book, tmp_path):
    year = offaxis.memoise(book, draws=4, period=91)
    with running(f"sqlite:///{tmp_path}/collector.db", reader_rate=1e6) as server:
        server.open(year, "meters-1", study="meters")
        page = context_of().new_page()
        token = json.dumps(server.tokens["analyst"])
        page.add_init_script(f"sessionStorage.setItem('offaxis.token', {token})")
        page.goto(f"http://127.0.0.1:{server.port}/dashboard#/releases/{year.hash}")
        heading = page.get_by_role("heading", name="What a sequence of reports promises")
        expect(heading).to_be_visible()
        expect(page.get_by_text("all reports of a person, any two histories")).to_be_visible()
        expect(page.get_by_text("at most 4 permanent answers, ε = 3 each")).to_be_visible()
        expect(page.get_by_text("A person reports again and again")).to_be_visible()
        seen = "Confidence in a guess before and after all reports of a person"
        expect(page.get_by_role("heading", name=seen)).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_round_updates_while_it_is_shown(open_page, collector, book, public):
    page = open_page(at=ROUND)
    before = collector.request("analyst", "GET", "/v1/rounds/answers-1").json["reports"]
    expect(page.locator("#reports")).to_have_text(f"{before:,}")
    page.get_by_label("Group").select_option("south")
    page.get_by_label("Group").focus()
    send(collector, book, public[:60], "south")
    expect(page.locator("#reports")).to_have_text(f"{before + 60:,}")
    expect(page.get_by_text("From 110 reports.")).to_be_visible()
    # Focus and selection are kept.
    expect(page.get_by_label("Group")).to_be_focused()
    assert page.get_by_label("Group").input_value() == "south"
    assert re.fullmatch(r"[\d,]+ reports so far\.", page.locator("#status").inner_text())


def test_many_coordinates_are_divided_into_pages(open_page):
    page = open_page(at="#/rounds/vectors-1")
    expect(page.get_by_text("0 to 31 of 42")).to_be_visible()
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("32 to 41 of 42")).to_be_visible()
    assert page.locator(".chart circle.dot:visible").count() == 10
    expect(page.get_by_text("This release has no profile")).to_be_visible()


@pytest.mark.parametrize(("role", "count"), [("device", "not shown"), ("admin", "40")])
def test_other_roles_see_only_what_they_may(open_page, role, count):
    page = open_page(role, at="#/rounds/vectors-1")
    expect(page.locator("#reports")).to_have_text(count)
    message = f"Means and drift require the role analyst; this token's role is {role}."
    expect(page.get_by_text(message)).to_have_count(2)
    expect(page.get_by_role("heading", name="Privacy card")).to_be_visible()
    page.goto(page.url.split("#")[0] + "#/")
    expect(page.get_by_role("link", name="vectors-1")).to_be_visible()


def test_markup_in_facts_is_shown_as_text(open_page, collector, book):
    markup = "<img src=x onerror=alert(1)>"
    path = f"/v1/releases/{book.hash}/facts/curve"
    curve = collector.request("device", "GET", path).json
    changed = json.loads(json.dumps(curve))
    changed["budgets"][0]["choice"] = markup
    assert collector.request("admin", "PUT", path, json.dumps(changed).encode()).status == 204
    page = open_page(at=f"#/releases/{book.hash}")
    page.get_by_text("The curve as a table").click()
    expect(page.get_by_text(markup)).to_be_visible()
    assert page.locator("img").count() == 0
    assert collector.request("admin", "PUT", path, json.dumps(curve).encode()).status == 204


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_pages_are_accessible(open_page, collector, scheme, size):
    """Axe finds nothing serious, and nothing is wider than the screen."""
    page = open_page(None, viewport=size, color_scheme=scheme, reduced_motion="reduce")
    check_accessibility(page, "#token")
    page.get_by_label("Token").fill(collector.tokens["analyst"])
    page.keyboard.press("Enter")
    check_accessibility(page, ".count")
    page.get_by_role("link", name="answers-1").click()
    check_accessibility(page, ".limit")


def check_accessibility(page: Page, selector: str) -> None:
    """Wait for an element, open all details, and check the page."""
    expect(page.locator(selector).first).to_be_attached()
    for summary in page.locator("summary:visible").all():
        summary.click()
    violations = Axe().run(page).response["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
