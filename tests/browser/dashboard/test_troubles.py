"""Wrong tokens, a collector that is away or refuses, missing pages: said and survived."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route, expect

from tests.collector.running import START

WAKE = "dispatchEvent(new Event('online'))"


HIDE = """() => {
  Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_wrong_token_is_told_so(open_page):
    page = open_page(None)
    for wrong in ("oxt_" + "A" * 43, "ü"):
        page.get_by_label("Token").fill(wrong)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        expect(page.get_by_label("Token")).to_be_focused()
        expect(page.get_by_role("button", name="Sign in")).to_be_enabled()
    # The browser itself notes the two refusals, and nothing else.
    assert all("401" in words for words in open_page.complaints)
    open_page.complaints.clear()


def test_offline_is_shown_and_over_when_it_is_over(open_page, collector):
    page = open_page(at="#/rounds/vectors-1")
    expect(page.locator("#reports")).to_have_text("40")
    expect(page.locator("#link")).to_have_text("live")
    page.context.set_offline(True)
    expect(page.locator("#link")).to_have_text("offline")
    expect(page.get_by_role("alert")).to_contain_text("The collector cannot be reached.")
    expect(page.get_by_role("alert")).to_contain_text("What you see is of")
    expect(page.locator("#reports")).to_have_text("40")
    page.context.set_offline(False)
    expect(page.locator("#link")).to_have_text("live")
    expect(page.get_by_role("alert")).to_be_hidden()
    open_page.complaints.clear()


TROUBLES = [
    (503, "offline", "The collector has a problem (503: not now). The page tries again in 2 s."),
    (429, "live", "This token asked too often; the page waits a little. The page tries again in 7"),
    (502, "offline", "The collector has a problem (502). The page tries again in 2 s."),
    (403, "live", "This token's role may not see this."),
]


def refuse(status: int, route: Route) -> None:
    body = "<html>" if status == 502 else '{"detail": "not now"}'
    headers = {"retry-after": "7"} if status == 429 else {}
    route.fulfill(status=status, body=body, headers=headers)


def test_refusals_are_said_in_words_and_survived(open_page):
    page = open_page()
    for status, link, words in TROUBLES:
        expect(page.get_by_role("link", name="vectors-1")).to_be_visible()
        page.route("**/v1/rounds", partial(refuse, status))
        page.evaluate(WAKE)
        expect(page.get_by_role("alert")).to_contain_text(words)
        expect(page.locator("#link")).to_have_text(link)
        page.unroute("**/v1/rounds")
        page.evaluate(WAKE)
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("#link")).to_have_text("live")
    open_page.complaints.clear()


def asked_until(page: Page, milliseconds: int, asked: list[str]) -> list[str]:
    """Let the page's time pass; return what it asked for since this was called last."""
    page.clock.fast_forward(milliseconds)
    # One more question, after whose answer all that were asked before it are known.
    page.evaluate("() => fetch('/healthz')")
    found = [urlsplit(url).path for url in asked]
    asked.clear()
    assert found.pop() == "/healthz"
    return found


def test_nothing_is_asked_twice_at_once_nor_while_hidden(open_page):
    page = open_page(at="#/rounds/vectors-1")
    page.clock.install(time=START)
    page.clock.pause_at(START + timedelta(seconds=1))
    page.reload()  # from here on the page has no other time
    link = page.locator("#link")
    expect(link).to_have_text("live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(HIDE)
    assert asked_until(page, 60_000, asked) == []
    slow: list[Route] = []
    page.route("**/v1/rounds/*", lambda route: slow.append(route))
    with page.expect_request("**/v1/rounds/*"):
        page.evaluate(HIDE.replace("true", "false"))
    page.evaluate(WAKE)
    once = ["/v1/rounds/vectors-1"]
    assert asked_until(page, 15_000, asked) == once
    # Woken while it asked, it asks once more at once, and from then on every two seconds.
    for at, quiet in enumerate((0, 1_999)):
        link.evaluate("(node) => { node.textContent = 'asking'; }")
        slow[at].continue_()
        expect(link).to_have_text("live")
        if quiet:
            assert asked_until(page, quiet, asked) == []
        assert asked_until(page, 1, asked) == once
        assert len(slow) == at + 2
    slow[-1].continue_()


def test_a_token_that_is_revoked_meanwhile_is_asked_for_again(open_page, collector):
    made = collector.ask(
        "admin", "POST", "/v1/tokens", b'{"name": "short", "role": "analyst"}'
    ).json
    page = open_page(None)
    page.get_by_label("Token").fill(made["token"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="vectors-1")).to_be_visible()
    assert collector.ask("admin", "DELETE", f"/v1/tokens/{made['id']}").status == 204
    page.evaluate(WAKE)
    expect(page.get_by_role("alert")).to_contain_text("or it was revoked")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    open_page.complaints.clear()


def test_what_is_not_there_is_said(open_page, collector):
    page = open_page(at="#/rounds/nothing")
    expect(page.get_by_role("alert")).to_contain_text("nothing under this name")
    page.goto(page.url.split("#")[0] + "#/elsewhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing here")
    open_page.complaints.clear()
