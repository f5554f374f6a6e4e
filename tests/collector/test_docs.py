"""docs/api.md and docs/operations.md agree with the collector, and their examples run."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from offaxis.collector.app import create_app
from offaxis.collector.monitoring import Metrics
from offaxis.collector.problems import STATUS
from offaxis.collector.service import Settings
from offaxis.formats.documents import save_key
from tests.collector.running import KEY, http_request, running
from tests.collector.scripts import ROOT, run_script

API = (ROOT / "docs/api.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    app = create_app(Settings(f"sqlite:///{tmp_path_factory.mktemp('operations')}/one.db"))
    app.state.collector.close()
    return {
        (method.upper(), path): facts
        for path, methods in app.openapi()["paths"].items()
        for method, facts in methods.items()
    }


def test_the_api_page_lists_exactly_the_endpoints(operations):
    parts = re.split(r"^### `([A-Z]+) (\S+)`\n", API, flags=re.M)[1:]
    page = {tuple(parts[i : i + 2]): parts[i + 2] for i in range(0, len(parts), 3)}
    assert page.keys() == operations.keys()
    everywhere = {"401", "403", "429", "500", "503"}
    for request, facts in operations.items():
        text = re.split(r"^## ", page[request], flags=re.M)[0]
        assert facts["description"].split(".")[0] + ". " in text, request
        for status, response in facts["responses"].items():
            if status not in everywhere:
                assert re.search(rf"\b{status}\b", text), (request, status)
                kinds = response["description"].split(", ") if int(status) >= 400 else []
                assert all(f"`{kind}`" in text for kind in kinds), (request, status)
        assert "```sh" in text, request


def test_the_api_page_lists_every_problem():
    table = dict.fromkeys(STATUS)
    for names, status in re.findall(r"^\| (`.*`) \| (\d{3}) \|", API, re.M):
        table |= dict.fromkeys(re.findall(r"`([a-z-]+)`", names), int(status))
    assert table == STATUS


def test_the_examples_of_the_api_page_run(new_database, tmp_path, for_means, public, printed):
    for_means.save(tmp_path / "my.release")
    np.save(tmp_path / "public.npy", public)
    save_key(KEY, tmp_path / "publisher.key")
    for kind, body in printed.items():
        (tmp_path / f"{kind}.json").write_bytes(body)
    blocks = re.findall(r"```sh\n(.*?)```", API, re.S)
    with running(new_database("sqlite")) as server:
        for role, token in server.tokens.items():
            (tmp_path / f"{role}.token").write_text(token)
        address = f"export OFFAXIS_COLLECTOR=http://127.0.0.1:{server.port}\n"
        output = run_script(address + "\n".join(blocks), tmp_path)
    for expected in (
        '{"status": "ready"}',
        '"strength": "weak"',
        '"caveat":"An audit can find faults',
        "offaxis_requests_total",
        '{"outcome": "accepted"}',
        '{"accepted": 2, "repeated": 0, "conflicts": []}',
        '"means": [{"group": null, "reports": 2,',
        '"form": "cells", "alone": {"reports": 100, "answers": [{"name": "answer", "classes": 2,',
        '"state": "closed"',
        '{"deleted": 3}',
    ):
        assert expected in output


def test_the_operations_page_lists_exactly_the_metrics():
    metrics = Metrics()
    metrics.watch_queue(lambda: 0)
    # A metric with labels appears after its first use.
    metrics.request_done("GET", "/", 200, 0.1)
    metrics.reports.labels("conflict").inc()
    metrics.drift.labels("r").set(1)
    exported = set(re.findall(r"^(offaxis_\w+)", metrics.text().decode(), re.M))
    families = {re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in exported}
    named = set(re.findall(r"\boffaxis_(?!collector|backup)\w+", OPERATIONS))
    assert named <= exported | families
    assert {re.sub(r"_(total|bucket)$", "", name) for name in named} == families


def test_a_lost_admin_token_is_replaced_while_the_collector_runs(tmp_path):
    (rescue,) = re.findall(r"```sh\n(.*?)```", OPERATIONS, re.S)
    with running(f"sqlite:///{tmp_path}/collector.db") as server:
        token = run_script(rescue, tmp_path).strip()
        deadline = time.monotonic() + 180
        while (status := http_request(server.port, "GET", "/v1/tokens", token=token).status) == 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert status == 200
