"""Node, which runs the JavaScript client without a browser, and a real browser with pages."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import playwright
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import offaxis
from tests import once
from tests.browser.devices import Tab, open_tab
from tests.collector.running import Running, running
from tests.programs import find_program, install_package

FOLDER = Path(__file__).parent / "node"
ROOT = Path(__file__).parents[2]
PATIENCE = 180_000
"""Milliseconds that a page may take on a shared machine; only a failing test waits so long."""


@pytest.fixture(scope="session")
def node() -> str:
    """The path of Node, which playwright includes."""
    path = str(Path(playwright.__file__).parent / "driver" / "node")
    if subprocess.run([path, "--version"], capture_output=True).returncode != 0:
        install_package("libatomic1")  # the only library that a minimal Debian lacks for it
    subprocess.run([path, "--version"], check=True, capture_output=True)
    return path


class Bridge:
    """The client in a Node process: one request per line, one response per line."""

    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            [node, str(FOLDER / "bridge.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, action: str, **arguments: Any) -> Any:
        """Return the result of an action; bytes are sent as base64."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"action": action, **arguments}
        line = json.dumps(request, default=lambda b: base64.b64encode(b).decode())
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        response = json.loads(self._process.stdout.readline())
        assert "failed" not in response, response["failed"]
        return response["result"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def client(node: str) -> Iterator[Bridge]:
    """The client in Node."""
    bridge = Bridge(node)
    yield bridge
    bridge.close()


# One for all files of this folder, closed after them: while it is open, its thread has a running
# event loop, which may disturb tests of other packages.
@pytest.fixture(scope="package")
def browser(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real headless Chromium."""
    once.register_start("browser", tmp_path_factory)
    path = find_program("chromium")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def context_of(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Return a function that creates isolated browser contexts, closed after the test."""
    opened: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        opened.append(browser.new_context(**options))
        opened[-1].set_default_timeout(PATIENCE)
        return opened[-1]

    yield make
    for context in opened:
        context.close()


class _Files(SimpleHTTPRequestHandler):
    """Serves files, and an empty page at /, without logging."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address at which this checkout is served, a secure context for browsers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(ROOT)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="package")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A collector, which also serves the client's modules."""
    with running(f"sqlite:///{tmp_path_factory.mktemp('pages')}/c.db", reader_rate=1e6) as server:
        yield server


@pytest.fixture(scope="session")
def plain(public: np.ndarray) -> offaxis.Release:
    """A release at ε = 3."""
    return offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")


@pytest.fixture
def tab(context_of: Callable[..., BrowserContext], collector: Running) -> Tab:
    """A page with a device that trusts the publisher and allows ε = 8 in total."""
    return open_tab(context_of(), collector)


@pytest.fixture
def page(context_of: Callable[..., BrowserContext], site: str) -> Page:
    """An empty page on the origin of the checkout's files."""
    empty = context_of().new_page()
    empty.goto(site + "/")
    return empty
