"""Errors are shown and survived: wrong tokens, an unavailable collector, missing pages."""

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


def test_a_wrong_token_is_rejected(open_page):
    page = open_page(None)
    for wrong in ("oxt_" + "A" * 43, "ü"):
        page.get_by_label("Token").fill(wrong)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        expect(page.get_by_label("Token")).to_be_focused()
        expect(page.get_by_role("button", name="Sign in")).to_be_enabled()
    # The console has the two rejections of the browser, and nothing else.
    assert all("401" in text for text in open_page.complaints)
    open_page.complaints.clear()


def test_being_offline_is_shown_until_it_ends(open_page, collector):
    page = open_page(at="#/rounds/vectors-1")
    expect(page.locator("#reports")).to_have_text("40")
    expect(page.locator("#link")).to_have_text("live")
    page.context.set_offline(True)
    expect(page.locator("#link")).to_have_text("offline")
    expect(page.get_by_role("alert")).to_contain_text("The collector cannot be reached.")
    expect(page.get_by_role("alert")).to_contain_text("Data as of")
    expect(page.locator("#reports")).to_have_text("40")
    page.context.set_offline(False)
    expect(page.locator("#link")).to_have_text("live")
    expect(page.get_by_role("alert")).to_be_hidden()
    open_page.complaints.clear()


ERRORS = [
    (503, "offline", "The collector reports an error (503: not now). Retrying in 2 s."),
    (429, "live", "Too many requests with this token. Retrying in 7 s."),
    (502, "offline", "The collector reports an error (502). Retrying in 2 s."),
    (403, "live", "Insufficient role: this token has no access to this page."),
]


def fail(status: int, route: Route) -> None:
    body = "<html>" if status == 502 else '{"detail": "not now"}'
    headers = {"retry-after": "7"} if status == 429 else {}
    route.fulfill(status=status, body=body, headers=headers)


def test_errors_are_shown_and_survived(open_page):
    page = open_page()
    for status, link, message in ERRORS:
        expect(page.get_by_role("link", name="vectors-1")).to_be_visible()
        page.route("**/v1/rounds", partial(fail, status))
        page.evaluate(WAKE)
        expect(page.get_by_role("alert")).to_contain_text(message)
        expect(page.locator("#link")).to_have_text(link)
        page.unroute("**/v1/rounds")
        page.evaluate(WAKE)
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("#link")).to_have_text("live")
    open_page.complaints.clear()


def requests_within(page: Page, milliseconds: int, urls: list[str]) -> list[str]:
    """Advance the page's clock; return the paths requested since the last call."""
    page.clock.fast_forward(milliseconds)
    # One more request: when it is answered, all earlier requests are in the list.
    page.evaluate("() => fetch('/healthz')")
    paths = [urlsplit(url).path for url in urls]
    urls.clear()
    assert paths.pop() == "/healthz"
    return paths


def test_requests_do_not_overlap_and_pause_while_hidden(open_page):
    page = open_page(at="#/rounds/vectors-1")
    page.clock.install(time=START)
    page.clock.pause_at(START + timedelta(seconds=1))
    page.reload()  # from here on the page uses the installed clock only
    link = page.locator("#link")
    expect(link).to_have_text("live")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.evaluate(HIDE)
    assert requests_within(page, 60_000, urls) == []
    slow: list[Route] = []
    page.route("**/v1/rounds/*", lambda route: slow.append(route))
    with page.expect_request("**/v1/rounds/*"):
        page.evaluate(HIDE.replace("true", "false"))
    page.evaluate(WAKE)
    once = ["/v1/rounds/vectors-1"]
    assert requests_within(page, 15_000, urls) == once
    # Woken during a request, it requests once more immediately, and then every two seconds.
    for i, quiet in enumerate((0, 1_999)):
        link.evaluate("(node) => { node.textContent = 'connecting'; }")
        slow[i].continue_()
        expect(link).to_have_text("live")
        if quiet:
            assert requests_within(page, quiet, urls) == []
        assert requests_within(page, 1, urls) == once
        assert len(slow) == i + 2
    slow[-1].continue_()


def test_a_revoked_token_leads_to_the_sign_in_page(open_page, collector):
    made = collector.request(
        "admin", "POST", "/v1/tokens", b'{"name": "short", "role": "analyst"}'
    ).json
    page = open_page(None)
    page.get_by_label("Token").fill(made["token"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="vectors-1")).to_be_visible()
    assert collector.request("admin", "DELETE", f"/v1/tokens/{made['id']}").status == 204
    page.evaluate(WAKE)
    expect(page.get_by_role("alert")).to_contain_text("or it was revoked")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    open_page.complaints.clear()


def test_missing_rounds_and_pages_are_not_found(open_page, collector):
    page = open_page(at="#/rounds/nothing")
    expect(page.get_by_role("alert")).to_contain_text("Not found on this collector.")
    page.goto(page.url.split("#")[0] + "#/elsewhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")
    open_page.complaints.clear()
