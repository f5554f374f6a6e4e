"""The recorded vectors and the client's contract, checked in a page of a real browser."""

from __future__ import annotations

import pytest

CHECKS = """async (file) => {
  const read = async (name) => {
    const response = await fetch(`/tests/vectors/${name}`);
    if (name.endsWith(".json")) return response.json();
    return new Uint8Array(await response.arrayBuffer());
  };
  const { checks } = await import(`/tests/browser/node/${file}`);
  const results = [];
  for (const [name, check] of checks(read)) {
    try {
      await check();
      results.push([name, "ok"]);
    } catch (error) {
      results.push([name, error.stack]);
    }
  }
  return results;
}"""


@pytest.mark.parametrize("file", ["recorded.mjs", "contracts.mjs"])
def test_checks_pass_in_a_page(page, file):
    results = page.evaluate(CHECKS, file)
    assert len(results) >= 8
    assert [result for result in results if result[1] != "ok"] == []


def test_an_insecure_origin_is_an_error(page, site):
    """Over plain http a browser has no Web Cryptography, and there is no fallback."""
    port = site.rsplit(":", 1)[1]
    # A host name that is served from here, but is not local for the browser.
    page.context.route(
        "http://elsewhere.example/**",
        lambda route: route.fulfill(
            response=route.fetch(
                url=route.request.url.replace("elsewhere.example", f"127.0.0.1:{port}")
            )
        ),
    )
    page.goto("http://elsewhere.example/")
    message = page.evaluate("""async () => {
      const { loadRelease } = await import("/src/offaxis/collector/pages/client/index.js");
      const file = await (await fetch("/tests/vectors/laplace.release")).arrayBuffer();
      return loadRelease(file).then(() => "loaded", (error) => error.message);
    }""")
    assert message == "this page has no Web Cryptography: serve it by https or from localhost"


def test_a_browser_without_ed25519_is_an_error(page):
    page.evaluate("""() => {
      const real = crypto.subtle.importKey.bind(crypto.subtle);
      crypto.subtle.importKey = (form, key, algorithm, ...more) =>
        algorithm === "Ed25519"
          ? Promise.reject(new DOMException("Algorithm: Unrecognized name", "NotSupportedError"))
          : real(form, key, algorithm, ...more);
    }""")
    error = page.evaluate("""async () => {
      const { verifyRelease } = await import("/src/offaxis/collector/pages/client/index.js");
      return verifyRelease("ab".repeat(32), "cd".repeat(32), new Uint8Array(64)).then(
        () => "verified",
        (error) => [error.name, error.message],
      );
    }""")
    assert error[0] == "InvalidDocument"
    assert error[1].startswith("this browser cannot use the publisher's key")
