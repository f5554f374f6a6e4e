"""Devices in pages of a real browser; the collector serves the pages and the rounds."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet
from playwright.sync_api import BrowserContext, Page

import offaxis
from tests.collector.running import KEY, Running

PUBLISHER = KEY.public_key().public_bytes_raw().hex()
MODULE = "/browser/client/index.js"
WAITING = "return device.report(values[0], () => new Promise((go) => { window.go = go; }));"
"""Answers a round with a vector that the test provides later."""
DOCUMENT = "/browser/client/package.json"
"""A document on the collector's origin, under its Content-Security-Policy."""

# Entries as JSON, errors by name; every call opens the device again, as a newly loaded page does.
_INIT_SCRIPT = """
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const plain = (value) =>
  Array.isArray(value) ? value.map(plain)
    : value?.nextTry
      ? { ...value, report: value.report && hex(value.report), nextTry: value.nextTry.getTime() }
      : value;
window.outcome = async (options, action) => {
  try {
    const device = await (await import("MODULE")).Device.open(options);
    return { ok: plain(await action(device)) };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
};
""".replace("MODULE", MODULE)

_numbers = itertools.count(1)


@dataclass
class Tab:
    """A page with a device, and the requests of the page."""

    page: Page
    options: dict[str, Any]
    seen: list[str] = field(default_factory=list)

    def outcome(self, action: str, *values: Any, **changes: Any) -> dict[str, Any]:
        """Return the result of an action on the device, or its error."""
        script = f"([options, values]) => outcome(options, async (device) => {{ {action} }})"
        options = self.options | changes
        outcome: dict[str, Any] = self.page.evaluate(script, [options, list(values)])
        return outcome

    def run(self, action: str, *values: Any, **changes: Any) -> Any:
        """Return the result of an action on the device, which must succeed."""
        outcome = self.outcome(action, *values, **changes)
        assert "ok" in outcome, outcome
        return outcome["ok"]

    def start(self, action: str, *values: Any) -> None:
        """Begin an action; :meth:`result` waits for it."""
        script = (
            "([options, values]) => { window.pending = "
            f"outcome(options, async (device) => {{ {action} }}); }}"
        )
        self.page.evaluate(script, [self.options, list(values)])

    def result(self) -> Any:
        """Return the result of the started action, which must succeed."""
        outcome = self.page.evaluate("() => window.pending")
        assert "ok" in outcome, outcome
        return outcome["ok"]

    def report(self, name: str, vector: Any, **changes: Any) -> Any:
        numbers = vector.tolist() if isinstance(vector, np.ndarray) else vector
        return self.run("return device.report(values[0], values[1]);", name, numbers, **changes)

    def send(self) -> Any:
        return self.run("return device.send({ atOnce: true });")

    def status(self) -> Any:
        return self.run("return device.status();")

    def spent(self) -> Any:
        return self.run("return device.spent();")

    @property
    def uploads(self) -> list[str]:
        """Requests that may have sent or withdrawn a report."""
        return [request for request in self.seen if request.startswith(("PUT", "DELETE", "POST"))]


def open_tab(context: BrowserContext, collector: Running, **options: Any) -> Tab:
    """Open a tab on the collector's origin."""
    url = f"http://127.0.0.1:{collector.port}"
    defaults = {
        "url": url,
        "publisher": PUBLISHER,
        "token": collector.tokens["device"],
        "limits": [{"epsilon": 8}],
    }
    tab = Tab(context.new_page(), defaults | options)
    tab.page.add_init_script(_INIT_SCRIPT)
    tab.page.on("request", lambda request: tab.seen.append(f"{request.method} {request.url}"))
    tab.page.goto(url + DOCUMENT)
    return tab


def new_round(collector: Running, release: offaxis.Release, **more: Any) -> str:
    """Open a round in a new study, unless another is named."""
    number = next(_numbers)
    name = f"round-{number}"
    collector.open(release, name, **{"study": f"study-{number}", **more})
    return name


def stored(collector: Running, name: str) -> list[tuple[str, bytes]]:
    """Return ids and reports of a round, as the collector exports them to analysts."""
    got = collector.request("analyst", "GET", f"/v1/rounds/{name}/export")
    assert got.status == 200, got
    table = pyarrow.parquet.read_table(io.BytesIO(got.body)).to_pydict()
    return [(id_.hex(), report) for id_, report in zip(table["id"], table["report"], strict=True)]


def replace_response(page: Page, path: str, **response: Any) -> None:
    """Replace the collector's responses, as a lying collector would."""
    page.route(path, lambda route: route.fulfill(**response))
