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
"""Answers a round with a vector that the test gives later."""
PLACE = "/browser/client/package.json"
"""A document of the collector's origin, under its own Content-Security-Policy."""

# Entries as JSON, errors by name; every call opens the device anew, as a page that was loaded does.
_STARTED = """
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const plain = (value) =>
  Array.isArray(value) ? value.map(plain)
    : value?.nextTry
      ? { ...value, report: value.report && hex(value.report), nextTry: value.nextTry.getTime() }
      : value;
window.told = async (options, action) => {
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
    """A page with a device, and what the page asked of the network."""

    page: Page
    options: dict[str, Any]
    seen: list[str] = field(default_factory=list)

    def tell(self, action: str, *values: Any, **changes: Any) -> dict[str, Any]:
        """Return what an action on the device gave, or which error."""
        script = f"([options, values]) => told(options, async (device) => {{ {action} }})"
        found: dict[str, Any] = self.page.evaluate(script, [self.options | changes, list(values)])
        return found

    def ask(self, action: str, *values: Any, **changes: Any) -> Any:
        """Return what an action on the device gave."""
        found = self.tell(action, *values, **changes)
        assert "ok" in found, found
        return found["ok"]

    def start(self, action: str, *values: Any) -> None:
        """Begin an action; :meth:`result` waits for it."""
        script = (
            "([options, values]) => { window.going = "
            f"told(options, async (device) => {{ {action} }}); }}"
        )
        self.page.evaluate(script, [self.options, list(values)])

    def result(self) -> Any:
        """Return what the action gave that was started."""
        found = self.page.evaluate("() => window.going")
        assert "ok" in found, found
        return found["ok"]

    def report(self, name: str, vector: Any, **changes: Any) -> Any:
        given = vector.tolist() if isinstance(vector, np.ndarray) else vector
        return self.ask("return device.report(values[0], values[1]);", name, given, **changes)

    def send(self) -> Any:
        return self.ask("return device.send({ atOnce: true });")

    def status(self) -> Any:
        return self.ask("return device.status();")

    def spent(self) -> Any:
        return self.ask("return device.spent();")

    @property
    def uploads(self) -> list[str]:
        """Requests by which a report may have left, or was asked back."""
        return [one for one in self.seen if one.startswith(("PUT", "DELETE", "POST"))]


def open_tab(context: BrowserContext, collector: Running, **options: Any) -> Tab:
    """Open a tab at the collector's own origin."""
    url = f"http://127.0.0.1:{collector.port}"
    given = {
        "url": url,
        "publisher": PUBLISHER,
        "token": collector.tokens["device"],
        "limits": [{"epsilon": 8}],
    }
    tab = Tab(context.new_page(), given | options)
    tab.page.add_init_script(_STARTED)
    tab.page.on("request", lambda request: tab.seen.append(f"{request.method} {request.url}"))
    tab.page.goto(url + PLACE)
    return tab


def new_round(collector: Running, release: offaxis.Release, **more: Any) -> str:
    """Open a round of a study of its own, unless another is named."""
    number = next(_numbers)
    name = f"round-{number}"
    collector.open(release, name, **{"study": f"study-{number}", **more})
    return name


def stored(collector: Running, name: str) -> list[tuple[str, bytes]]:
    """Return ids and reports of a round, as the collector gives them to analysts."""
    got = collector.ask("analyst", "GET", f"/v1/rounds/{name}/export")
    assert got.status == 200, got
    table = pyarrow.parquet.read_table(io.BytesIO(got.body)).to_pydict()
    return [(id_.hex(), report) for id_, report in zip(table["id"], table["report"], strict=True)]


def answer_instead(page: Page, path: str, **answer: Any) -> None:
    """Let the collector's answers be replaced on the way: so does one that lies."""
    page.route(path, lambda route: route.fulfill(**answer))
