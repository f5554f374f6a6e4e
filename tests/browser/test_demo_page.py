"""The live demo in a real Chromium, served by a real collector."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, Route, expect

from experiments.live_demo.site import (
    EPSILON,
    EPSILONS,
    KINDS,
    PAIR_EPSILONS,
    PAIRS,
    Site,
    data_folder,
    demo_site,
    release_file,
)
from experiments.models import load_model
from experiments.models.networks import embed_digits
from offaxis.client.transport import Transport
from offaxis.learning import learn
from offaxis.release import Release
from tools.ports import free_port

DATA = "**/browser/demo/data/"
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
STROKES = {
    0: [[(140 + 55 * math.sin(t / 3), 140 - 85 * math.cos(t / 3)) for t in range(20)]],
    1: [[(145, 50), (140, 140), (135, 230)]],
    3: [
        [(95, 70), (130, 50), (170, 70), (165, 110), (125, 135)],
        [(125, 135), (175, 155), (180, 205), (140, 230), (90, 215)],
    ],
    7: [[(80, 60), (130, 60), (190, 60), (160, 140), (130, 230)]],
}


@pytest.fixture(scope="module")
def demo() -> Iterator[Site]:
    with demo_site(free_port()) as site:
        yield site


@pytest.fixture
def opened(demo: Site, context_of: Callable[..., BrowserContext]) -> Iterator[Callable[..., Page]]:
    """Return a function that opens the page; any console message or error fails the test."""
    complaints: list[str] = []

    def open_page(ready: bool = True, prepare: Any = None, **options: Any) -> Page:
        page = context_of(**options).new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if prepare is not None:
            prepare(page)
        page.goto(demo.page, wait_until="domcontentloaded")
        if ready:
            page.locator("#tool").wait_for()
        return page

    yield open_page
    assert complaints == []


def examples() -> np.ndarray:
    pixels = np.frombuffer((data_folder() / "examples.bin").read_bytes(), np.uint8)
    return pixels.reshape(-1, 784).copy()


def example(page: Page, digit: int) -> None:
    page.get_by_role("button", name=f"Example of a {digit}").first.click()
    expect(page.locator("#own")).to_have_text(str(digit))
    page.locator(".column .outcome:visible, .column .refused:visible").first.wait_for()


def reported(page: Page, kind: str) -> bytes:
    return bytes.fromhex(page.locator(f"#{kind} .report").inner_text().replace(" ", ""))


def numbers(page: Page, selector: str) -> np.ndarray:
    texts = page.locator(f"{selector} li").all_text_contents()
    return np.array([float(text) for text in texts])


def draw(page: Page, strokes: list[list[tuple[float, float]]]) -> None:
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    for stroke in strokes:
        places = [(box["x"] + x, box["y"] + y) for x, y in stroke]
        page.mouse.move(*places[0])
        page.mouse.down()
        for x, y in places[1:]:
            page.mouse.move(x, y, steps=4)
        page.mouse.up()


def test_digits_drawn_by_mouse_are_read(opened: Callable[..., Page]) -> None:
    page = opened()
    for digit, strokes in STROKES.items():
        draw(page, strokes)
        expect(page.locator("#own")).to_have_text(str(digit))
        expect(page.locator("#recommended .size")).to_contain_text("13 bytes")
        expect(page.locator("#plain .size")).to_contain_text("28 bytes")
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#own")).to_have_text("–")
        expect(page.locator("#plain .outcome")).to_be_hidden()


def test_the_slider_changes_the_budget_and_the_releases(opened: Callable[..., Page]) -> None:
    page = opened()
    example(page, 4)
    slider = page.get_by_label("Budget ε of one report")
    expect(slider).to_have_attribute("aria-valuetext", "ε = 3")
    expect(page.locator("#odds")).to_contain_text("at most e^ε = 20.1")
    for key, epsilon in [("ArrowRight", 3.5), ("Home", 0.5), ("End", 10)]:
        slider.press(key)
        expect(page.locator("#budget")).to_have_text(f"ε = {epsilon:g}")
        expect(slider).to_have_attribute("aria-valuetext", f"ε = {epsilon:g}")
        for kind in KINDS:
            release = Release.load(data_folder() / release_file(kind, epsilon))
            # A report names its release in bytes 4 to 12.
            named = f"{release.hash[:8]} {release.hash[8:16]}"
            expect(page.locator(f"#{kind} .report")).to_contain_text(named)
            assert len(reported(page, kind)) == release.report_size


def test_the_decoded_vector_and_the_answer_agree_with_python(
    opened: Callable[..., Page],
) -> None:
    page = opened()
    head = load_model("mnist-relu")
    pruned = type(head).load(data_folder() / "head.safetensors")
    for digit in (2, 8):
        example(page, digit)
        for kind in KINDS:
            release = Release.load(data_folder() / release_file(kind, EPSILON))
            decoded = release.decode(reported(page, kind))
            np.testing.assert_allclose(numbers(page, f"#{kind}"), decoded, rtol=0, atol=6e-5)
            answer = int(pruned.outputs(decoded[None])[0].argmax())
            assert page.locator(f"#{kind} .answer").inner_text() == str(answer)
            right = page.locator(f"#{kind}").get_attribute("data-right")
            assert right == ("true" if answer == digit else "false")


def test_the_encoder_agrees_with_python(opened: Callable[..., Page]) -> None:
    page = opened()
    images = examples().reshape(-1, 28, 28)
    encoded = page.evaluate(
        """async () => {
          const { Assets } = await import("/browser/demo/assets.js");
          const assets = await Assets.open(() => {});
          return assets.examples.map(({ image }) =>
            Array.from(assets.encoder.apply(Float64Array.from(image, (ink) => ink / 255))));
        }"""
    )
    vectors = embed_digits(load_model("mnist-encoder"), images)
    assert np.abs(np.array(encoded) - vectors).max() < 1e-5 * np.abs(vectors).max()


def test_a_drawing_is_prepared_like_mnist(opened: Callable[..., Page]) -> None:
    page = opened()
    prepare = """async ([inks, width]) => {
      const { asDigit } = await import("/browser/demo/drawing.js");
      return inks.map((ink) => asDigit(Uint8Array.from(ink), width)).map((i) => i && Array.from(i));
    }"""
    ink = np.zeros((3, 140, 140), np.uint8)
    ink[0, 3:103, 90:130] = 200
    ink[1, 60:70, 20:120] = 255
    wide, flat, empty = page.evaluate(prepare, [ink.reshape(3, -1).tolist(), 140])
    expected = np.zeros((2, 28, 28))
    expected[0, 4:24, 10:18] = 200
    expected[1, 13:15, 4:24] = 255
    np.testing.assert_array_equal([wide, flat], expected.reshape(2, -1))
    assert empty is None
    for image in page.evaluate(prepare, [examples().tolist(), 28]):
        digit = np.reshape(image, (28, 28))
        rows, columns = np.flatnonzero(digit.any(1)), np.flatnonzero(digit.any(0))
        assert max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
        centre = np.average(np.arange(28) + 0.5, weights=digit.sum(0))
        assert abs(centre - 14) <= 0.51


def test_reports_are_fresh_and_counted(opened: Callable[..., Page]) -> None:
    page = opened()
    example(page, 6)
    before = reported(page, "plain")
    page.get_by_role("button", name="Make the reports again").click()
    expect(page.locator("#cost")).to_contain_text("ε = 6")
    assert reported(page, "plain") != before
    slider = page.get_by_label("Budget ε of one report")
    cells = page.locator("#tally tr").nth(1).locator("td")
    rights = []
    for key in ("End", "Home"):
        slider.press(key)
        expect(cells.first).to_have_text("1")
        page.get_by_role("button", name="Simulate 100").click()
        expect(cells.first).to_have_text("101")
        rights.append(int(cells.nth(1).inner_text()))
    # Correct with probability 0.9996 and 0.155: each false-alarm rate is below 1e-9.
    assert rights[0] >= 95
    assert rights[1] <= 45


def test_the_page_works_offline_after_loading(opened: Callable[..., Page]) -> None:
    page = opened()
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    example(page, 5)
    page.get_by_label("Budget ε of one report").press("End")
    expect(page.locator("#recommended .answer")).not_to_have_text("–")
    page.get_by_role("button", name="Simulate 100").click()
    expect(page.locator("#tally td").first).to_have_text("101")


def test_loading_progress_is_shown(opened: Callable[..., Page]) -> None:
    held: list[Route] = []
    page = opened(
        ready=False,
        prepare=lambda page: page.route(f"{DATA}recommended-7.release", lambda r: held.append(r)),
    )
    files = 4 + len(KINDS) * len(EPSILONS) + len(PAIR_EPSILONS)
    expect(page.locator("#status")).to_contain_text(f"{files - 1} of {files} files")
    expect(page.locator("#tool")).to_be_hidden()
    held.pop().continue_()
    expect(page.locator("#tool")).to_be_visible()
    expect(page.locator("#status")).to_contain_text("Ready")


@pytest.mark.parametrize(
    ("relisted", "reason"),
    [(True, "a report would have ε = 4"), (False, "expected")],
    ids=["epsilon above the limit", "another release than listed"],
)
def test_a_release_that_is_not_as_listed_is_refused(
    opened: Callable[..., Page], relisted: bool, reason: str
) -> None:
    other = data_folder() / release_file("recommended", 4)
    rows = json.loads((data_folder() / "releases.json").read_text())
    row = next(row for row in rows if row["epsilon"] == EPSILON)
    if relisted:
        row["recommended"]["hash"] = Release.load(other).hash

    def tamper(page: Page) -> None:
        name = release_file("recommended", EPSILON)
        page.route(DATA + name, lambda route: route.fulfill(body=other.read_bytes()))
        page.route(f"{DATA}releases.json", lambda route: route.fulfill(json=rows))

    page = opened(prepare=tamper)
    example(page, 9)
    refused = page.locator("#recommended").get_by_role("alert")
    expect(refused).to_contain_text("refused, and no report was made")
    expect(refused).to_contain_text(reason)
    expect(page.locator("#recommended .report")).to_be_hidden()
    assert page.locator("#recommended .report").text_content() == ""
    expect(page.locator("#tally tr").nth(1).locator("td").first).to_have_text("0")
    expect(page.locator("#plain .size")).to_contain_text("28 bytes")
    page.get_by_label("Budget ε of one report").press("ArrowRight")
    expect(page.locator("#recommended .size")).to_contain_text("13 bytes")
    expect(refused).to_be_hidden()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_page_is_accessible(opened: Callable[..., Page], size: Any) -> None:
    page = opened(viewport=size)
    example(page, 3)
    page.get_by_text("As numbers").first.click()
    page.get_by_role("button", name="100 people report").click()
    expect(page.locator("#crowd-count")).to_have_text("100")
    page.get_by_role("button", name="Try a 3").first.click()
    page.get_by_text("The curves as a table").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        violations = Axe().run(page).response["violations"]
        assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.scrollingElement.scrollWidth") <= size["width"]


# ---- The second act

LEARN = """async ([epsilon, counts]) => {
  const { Assets } = await import("/browser/demo/assets.js");
  const { Reader, Sums } = await import("/browser/demo/reader.js");
  const { hexOf } = await import("/browser/demo/columns.js");
  const assets = await Assets.open(() => {});
  const release = await assets.pairRelease(epsilon);
  const { shares } = assets.publicCells(epsilon);
  const sums = new Sums(shares.length * 10);
  const [reports, found] = [[], []];
  for (const { vector, digit } of assets.people.slice(0, counts.at(-1))) {
    const report = await release.privatize(vector, digit);
    reports.push(hexOf(report).replaceAll(" ", ""));
    sums.add(await release.observe(report));
    if (!counts.includes(reports.length)) continue;
    const reader = new Reader(sums, shares);
    const { table, evidence } = reader;
    found.push({ table, evidence, expected: reader.expectedAccuracy() });
  }
  return { reports, found };
}"""


@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
def test_the_reader_agrees_with_python(opened: Callable[..., Page], epsilon: float) -> None:
    page = opened()
    counts = [7, 103, 1500]
    learnt = page.evaluate(LEARN, [epsilon, counts])
    reports = [bytes.fromhex(report) for report in learnt["reports"]]
    release = Release.load(data_folder() / release_file(PAIRS, epsilon))
    for count, found in zip(counts, learnt["found"], strict=True):
        model: Any = learn(release, reports[:count])
        np.testing.assert_allclose(found["table"], model.table_, rtol=0, atol=1e-9)
        assert found["evidence"] == model.evidence_
        if count < 10:  # one fold has two reports, the others have one
            continue
        expected = model.expected_accuracy()
        numbers = [getattr(expected, name) for name in ("estimate", "low", "high")]
        assert [found["expected"][name] for name in ("estimate", "low", "high")] == pytest.approx(
            numbers, rel=0, abs=1e-9
        )


def asked(page: Page) -> list[str]:
    """Return the reader's answers for the first ten examples."""
    answers = []
    for digit in range(10):
        page.get_by_role("button", name=f"Try a {digit}").first.click()
        expect(page.locator("#try-words")).to_contain_text("is the reader's answer")
        page.evaluate("() => new Promise((done) => setTimeout(done, 50))")
        answers.append(page.locator("#try-answer").inner_text())
    return answers


def let_everybody_report(page: Page) -> None:
    page.evaluate(
        """() => {
          window.learnt = new Promise((done) => document.addEventListener("learnt", done));
        }"""
    )
    page.get_by_role("button", name="Let everybody report").click()
    page.evaluate("() => window.learnt")


def test_a_crowd_teaches_a_reader_offline(opened: Callable[..., Page]) -> None:
    page = opened()
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    expect(page.locator("#try-words")).to_contain_text("has learnt nothing yet")
    page.get_by_label("ε of each person's report").press("End")
    expect(page.locator("#crowd-promise")).to_contain_text("e^ε = 54.6")
    let_everybody_report(page)
    expect(page.locator("#crowd-count")).to_have_text("8,000")
    # At ε = 4, 8,000 reports name every cell: the false-alarm rate is below 1e-9.
    listed = json.loads((data_folder() / "pairs.json").read_text())
    best = f"{100 * listed['without_privacy']:.1f} %"
    expect(page.locator("#crowd-accuracy")).to_have_text(best)
    expect(page.locator("#crowd-status")).to_contain_text(f"right on {best}")
    assert page.locator("#crowd-expected").inner_text() != "–"
    expect(page.get_by_role("button", name="Let everybody report")).to_be_disabled()
    expect(page.get_by_role("button", name="100 people report")).to_be_disabled()
    # One of these nines is among the fours' kind.
    assert asked(page) == [*"012345678", "4"]
    page.get_by_role("button", name="Erase").click()
    expect(page.locator("#try-answer")).to_have_text("–")
    words = page.locator("#report-words").inner_text()
    assert "25 bytes, names 2 of 100 pairs" in words
    assert page.locator("#report-pairs td", has_text="×").count() == 2
    release = Release.load(data_folder() / release_file(PAIRS, 4))
    text = page.locator("#report-bytes").inner_text().replace(" ", "")
    assert (release.observe([bytes.fromhex(text)]) > 0).sum() == 2


def test_crowds_are_paused_compared_and_forgotten(opened: Callable[..., Page]) -> None:
    page = opened()
    count, play = page.locator("#crowd-count"), page.locator("#crowd-all")
    play.click()
    expect(play).to_have_text("Pause")
    expect(count).not_to_have_text("0")
    play.click()
    expect(play).to_have_text("Let everybody report")
    page.evaluate("() => new Promise((done) => setTimeout(done, 200))")
    paused = int(count.inner_text().replace(",", ""))
    assert 0 < paused < 8000
    assert paused % 100 == 0
    page.get_by_role("button", name="100 people report").click()
    expect(count).to_have_text(f"{paused + 100:,}")
    # Another ε is another crowd; the curve of the first one stays.
    page.get_by_label("ε of each person's report").press("ArrowRight")
    expect(count).to_have_text("0")
    page.get_by_role("button", name="100 people report").click()
    expect(count).to_have_text("100")
    page.get_by_text("The curves as a table").click()
    table = page.get_by_role("region", name="Accuracy by number of reports").locator("tbody th")
    expect(table).to_have_text(["ε = 1", "ε = 1.5"])
    expect(page.locator("#crowd-chart .ending")).to_have_count(2)
    page.get_by_role("button", name="Start over").click()
    expect(count).to_have_text("0")
    expect(page.locator("#crowd-chart .ending")).to_have_count(0)


def test_a_pair_release_that_is_not_as_listed_is_refused(opened: Callable[..., Page]) -> None:
    other = (data_folder() / release_file(PAIRS, 4)).read_bytes()

    def tamper(page: Page) -> None:
        page.route(DATA + release_file(PAIRS, 1), lambda route: route.fulfill(body=other))

    page = opened(prepare=tamper)
    page.get_by_role("button", name="Let everybody report").click()
    refused = page.locator("#crowd-refused")
    expect(refused).to_contain_text("No report is made: this is release")
    expect(page.locator("#crowd-count")).to_have_text("0")
    expect(page.locator("#report-bytes")).to_have_text("–")
    page.get_by_label("ε of each person's report").press("ArrowRight")
    expect(refused).to_be_hidden()


def test_a_report_is_sent_once(demo: Site, opened: Callable[..., Page]) -> None:
    page = opened()
    example(page, 7)
    button = page.get_by_role("button", name="Send a report of this drawing")
    button.click()
    expect(page.locator("#sent")).to_contain_text("The collector accepted it")
    expect(button).to_be_disabled()
    page.reload()
    expect(page.locator("#sent")).to_contain_text("The collector accepted it")
    expect(button).to_be_disabled()
    analyst = Transport(demo.url, token=demo.analyst)
    response = analyst.request("GET", "/v1/rounds/digits-recommended")
    assert json.loads(response.body)["reports"] == 1
