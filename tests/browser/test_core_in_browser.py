"""The recorded vectors and the client's contract, checked inside a page of a real browser."""

from __future__ import annotations

import pytest

CHECKS = """async (file) => {
  const read = async (name) => {
    const answer = await fetch(`/tests/vectors/${name}`);
    if (name.endsWith(".json")) return answer.json();
    return new Uint8Array(await answer.arrayBuffer());
  };
  const { checks } = await import(`/tests/browser/node/${file}`);
  const found = [];
  for (const [name, check] of checks(read)) {
    try {
      await check();
      found.push([name, "ok"]);
    } catch (error) {
      found.push([name, error.stack]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("file", ["recorded.mjs", "contracts.mjs"])
def test_checks_that_run_in_node_too(page, file):
    found = page.evaluate(CHECKS, file)
    assert len(found) >= 8
    assert [failed for failed in found if failed[1] != "ok"] == []


def test_a_page_without_secure_origin_is_told_so(page, site):
    """Over plain http from elsewhere a browser has no Web Cryptography, and nothing falls back."""
    port = site.rsplit(":", 1)[1]
    # A name that leads here, but is not this machine's own for the browser.
    page.context.route(
        "http://elsewhere.example/**",
        lambda route: route.fulfill(
            response=route.fetch(
                url=route.request.url.replace("elsewhere.example", f"127.0.0.1:{port}")
            )
        ),
    )
    page.goto("http://elsewhere.example/")
    said = page.evaluate("""async () => {
      const { loadRelease } = await import("/src/offaxis/collector/pages/client/index.js");
      const file = await (await fetch("/tests/vectors/laplace.release")).arrayBuffer();
      return loadRelease(file).then(() => "loaded", (error) => error.message);
    }""")
    assert said == "this page has no Web Cryptography: serve it by https or from localhost"


def test_the_page_says_what_it_cannot_use(page):
    """A browser without Ed25519 refuses rounds by key, in words."""
    page.evaluate("""() => {
      const real = crypto.subtle.importKey.bind(crypto.subtle);
      crypto.subtle.importKey = (form, key, algorithm, ...more) =>
        algorithm === "Ed25519"
          ? Promise.reject(new DOMException("Algorithm: Unrecognized name", "NotSupportedError"))
          : real(form, key, algorithm, ...more);
    }""")
    said = page.evaluate("""async () => {
      const { verifyRelease } = await import("/src/offaxis/collector/pages/client/index.js");
      return verifyRelease("ab".repeat(32), "cd".repeat(32), new Uint8Array(64)).then(
        () => "verified",
        (error) => [error.name, error.message],
      );
    }""")
    assert said[0] == "InvalidDocument"
    assert said[1].startswith("this browser cannot use the publisher's key")
