"""The live demo's collector, simulated crowd, data and command."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from experiments.live_demo.site import (
    EPSILON,
    EPSILONS,
    KINDS,
    PAIR_EPSILONS,
    PAIRS,
    Site,
    crowd,
    data_folder,
    demo_site,
    digit_features,
    held_out,
    release_file,
)
from experiments.models import load_model
from offaxis.client.transport import Transport
from offaxis.errors import InvalidInput
from offaxis.release import Release
from tools.ports import free_port


@pytest.fixture(scope="module")
def demo() -> Iterator[Site]:
    with demo_site(free_port()) as site:
        yield site


def get_json(site: Site, path: str) -> Any:
    response = Transport(site.url, token=site.analyst).request("GET", path)
    assert response.status == 200, response.message
    return json.loads(response.body)


def reports_at(site: Site, name: str) -> int:
    count: int = get_json(site, f"/v1/rounds/{name}")["reports"]
    return count


def test_the_collector_has_the_facts_of_its_releases(demo: Site) -> None:
    for kind in KINDS:
        release = Release.load(data_folder() / release_file(kind, EPSILON))
        card = get_json(demo, f"/v1/releases/{release.hash}/card")
        assert set(card["facts"]) == {"curve", "audit"}
        assert not get_json(demo, f"/v1/releases/{release.hash}/facts/audit")["violation"]
        curve = get_json(demo, f"/v1/releases/{release.hash}/facts/curve")["budgets"]
        assert [budget["epsilon"] for budget in curve] == list(EPSILONS)
        drift = get_json(demo, f"/v1/rounds/digits-{kind}/drift")
        assert drift["summary"].startswith("There are too few reports for a test: 0 of ")


def test_the_crowd_reports_to_every_round(demo: Site) -> None:
    people = crowd(demo)
    assert [next(people) for _ in range(3)] == [1, 2, 3]
    people.close()
    assert [reports_at(demo, f"digits-{kind}") for kind in (*KINDS, PAIRS)] == [3, 3, 3]


def test_a_port_in_use_is_an_error(demo: Site) -> None:
    with pytest.raises(InvalidInput, match="is taken"), demo_site(int(demo.url.split(":")[-1])):
        pass


def test_one_command_starts_the_demo_and_leaves_no_files(tmp_path: Any) -> None:
    port = free_port()
    command = [sys.executable, "-m", "experiments", "serve-demo", "--port", str(port)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        url = f"http://127.0.0.1:{port}"
        assert re.search(rf"{url}/demo#publisher=[0-9a-f]{{64}}&token=oxt_", lines[0])
        assert f"{url}/dashboard" in lines[1]
        site = Site("", "", lines[2].split()[-1], "", "", url)
        end = time.monotonic() + 180
        while reports_at(site, "digits-recommended") == 0:
            assert time.monotonic() < end, "the crowd has not reported"
            time.sleep(0.1)
    finally:
        # Not SIGINT: a test run in the background of a shell inherits that it is ignored.
        process.terminate()
        out, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (0, "")
    assert "nothing is kept" in out
    assert list(tmp_path.iterdir()) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_listed_files_exist_and_match() -> None:
    rows = json.loads((data_folder() / "releases.json").read_text())
    assert [row["epsilon"] for row in rows] == list(EPSILONS)
    for row in rows:
        for kind in KINDS:
            release = Release.load(data_folder() / row[kind]["file"], expect=row[kind]["hash"])
            assert release.guarantee.pure
            assert release.guarantee.epsilon == row["epsilon"]
    head = load_model("mnist-relu")
    pruned = type(head).load(data_folder() / "head.safetensors")
    for old, new in zip(head.weights, pruned.weights, strict=True):
        kept = (old == new).all(1) | (new == 0).all(1)
        assert kept.all()
    assert sum(file.stat().st_size for file in data_folder().iterdir()) < 1_000_000


def test_the_listed_releases_of_pairs_share_their_cells_and_match() -> None:
    listed = json.loads((data_folder() / "pairs.json").read_text())
    assert [row["epsilon"] for row in listed["releases"]] == list(PAIR_EPSILONS)
    vectors, answers = digit_features()
    cells = []
    for row in listed["releases"]:
        release = Release.load(data_folder() / row["file"], expect=row["hash"])
        assert release.guarantee.epsilon == row["epsilon"]
        assert release.encoder.kind == "network-normalise-cells"
        assert str(release.asked[0]) == "answer: one of 10 classes"
        cells.append(release.encoder.encode(release.pairs(vectors, answers)) // 10)
    assert all((own == cells[0]).all() for own in cells)
    judged, people = np.split(np.arange(len(answers)), [held_out()])
    table = np.zeros((10, 10))
    np.add.at(table, (cells[0][people], answers[people]), 1)
    right = table.argmax(1)[cells[0][judged]] == answers[judged]
    assert listed["without_privacy"] == np.mean(right)
    common = np.bincount(answers[people]).argmax()
    assert listed["nobody_asked"] == np.mean(answers[judged] == common)
