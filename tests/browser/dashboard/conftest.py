"""A collector with rounds, reports and facts, and its dashboard opened for a role."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Page

import offaxis
from offaxis.evaluation.profiles import profile_of
from tests.collector.cli_facts import cli_facts
from tests.collector.running import Running, new_id, running


@pytest.fixture(scope="package")
def book(head, public) -> offaxis.Release:
    """A release whose reports are symbols, with shares."""
    return offaxis.fit(head, public, epsilon=3, mechanism="response", size=5)


@pytest.fixture(scope="package")
def leaky(public) -> offaxis.Release:
    """A release whose guarantee has a δ."""
    return offaxis.fit(None, public, epsilon=3, delta=1e-5, reshaping="none", mechanism="gaussian")


@pytest.fixture(scope="package")
def collector(book, leaky, head, public, tmp_path_factory) -> Iterator[Running]:
    """A collector with a round of symbols, a round of vectors, and facts of a release."""
    folder = tmp_path_factory.mktemp("dashboard")
    with running(f"sqlite:///{folder}/collector.db", reader_rate=1e6) as server:
        server.open(book, "answers-1", study="answers", groups=("north", "south"))
        path = f"/v1/releases/{book.hash}"
        profile = profile_of(book, public).to_json().encode()
        assert server.request("admin", "PUT", f"{path}/profile", profile).status == 204
        for kind, body in cli_facts(folder, book, head, public).items():
            assert server.request("admin", "PUT", f"{path}/facts/{kind}", body).status == 204
        send(server, book, public[:450], "north")
        send(server, book, public[450:], "south")
        other = offaxis.fit(
            None, np.tile(public, (1, 7)), epsilon=1, reshaping="none", mechanism="laplace"
        )
        server.open(other, "vectors-1", study="vectors")
        reports = other.privatize(np.tile(public[:40], (1, 7)))
        server.batch("vectors-1", [(new_id(), report) for report in reports])
        server.open(leaky, "leaky-1", study="leaky")
        path = f"/v1/releases/{leaky.hash}/facts"
        for kind, body in cli_facts(folder, leaky, head, public).items():
            assert server.request("admin", "PUT", f"{path}/{kind}", body).status == 204
        yield server


def send(server, release, vectors, group) -> None:
    pairs = [(new_id(), report) for report in release.privatize(vectors)]
    assert server.batch("answers-1", pairs, Offaxis_Group=group).json["accepted"] == len(pairs)


@pytest.fixture
def open_page(context_of, collector):
    """Return a function that opens the dashboard for a role; any console error fails the test."""
    complaints: list[str] = []

    def open_dashboard(role: str | None = "analyst", at: str = "", **options) -> Page:
        page = context_of(**options).new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        if role:
            token = json.dumps(collector.tokens[role])
            page.add_init_script(f"sessionStorage.setItem('offaxis.token', {token})")
        page.goto(f"http://127.0.0.1:{collector.port}/dashboard{at}")
        return page

    open_dashboard.complaints = complaints
    yield open_dashboard
    assert not complaints
