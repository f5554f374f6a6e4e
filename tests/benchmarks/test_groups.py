"""Groups that no other test runs, on few vectors."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np

from benchmarks import page
from benchmarks.groups import geometry, growth, simulation, task
from benchmarks.harness import OURS, Effort, Growth, Race
from benchmarks.run import Run

TINY = Effort("tiny", seconds=0, rounds=1, doublings=1, streamed=1)


def test_vectors_on_a_device_are_compared_there() -> None:
    race = simulation.on_device(TINY, "cpu", rows=1_000)
    assert list(race.seconds) == [OURS, "torch, the same steps", "offaxis on the CPU"]
    race = geometry.with_torch(TINY, "cpu", rows=50)
    assert len(race.ratios()) == 2
    assert min(race.seconds.values()) > 0


def test_a_growth_doubles_its_size() -> None:
    first = next(growth.measure(TINY))
    assert (first.task, first.variable) == ("Gram", "N")
    assert first.sizes == [8_000, 16_000]


def test_reports_contain_as_many_numbers_as_the_rank() -> None:
    sizes = [release.report_size for release in (growth.release_of_rank(64, r) for r in (8, 16))]
    header = 2 * sizes[0] - sizes[1]
    assert sizes[0] - header == task.plain_laplace(8).report_size - header
    release = growth.release_of_rank(64, 8)
    assert release.decode(release.privatize(np.ones(64))).shape == (64,)


def test_each_step_of_the_ladder_doubles_the_size() -> None:
    products = [dim * rank for dim, rank in growth.LADDER]
    assert all(after == 2 * before for before, after in pairwise(products))


def test_a_run_is_formatted_as_markdown() -> None:
    race = Race("reports", "laplace", "reports/s", {OURS: 1e-6, "OpenDP, default": 1e-3})
    grown = Growth("Gram", "N", "s", [1000, 2000, 4000], [0.001, 0.002, 0.004], 1)
    facts = json.loads(json.dumps(Run.start(TINY).with_results([race, grown]).facts()))
    text = "\n".join(page.lines(facts))
    assert "| **laplace** | 1 M reports/s |  |" in text
    assert "| … OpenDP, default | 1 k reports/s | 1,000× faster |" in text
    assert "| Gram | N | 1 k … 4 k | 1 ms … 4 ms | 1.00 ± 0.00 | 1 µs × N, within 0% |" in text
    assert page.PAGE.read_text().count(page.MARKS[0]) == 1
