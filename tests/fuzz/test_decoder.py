"""The report decoder against mutants: it raises nothing but the declared error."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offaxis.errors import InvalidReport
from tests.fuzz import mutation, oracle, seeds

indices = st.integers(0, seeds.COUNT - 1)


@pytest.mark.parametrize("index", range(seeds.COUNT))
def test_mutants_of_a_report_raise_only_the_declared_error(index):
    rng, release = Random(index), seeds.releases()[index]
    valid = seeds.reports()[index]
    assert oracle.decode(release, valid) == oracle.ACCEPTED
    outcomes = set()
    for _ in range(300):
        batch = [*valid[: rng.randrange(3)], mutation.hostile_report(rng.choice(valid), rng)]
        rng.shuffle(batch)
        outcomes.add(oracle.decode(release, batch))
    assert "InvalidReport" in outcomes


@settings(max_examples=300)
@given(indices, st.lists(st.binary(max_size=40), max_size=4), st.booleans())
def test_any_bytes_after_a_valid_header_raise_only_the_declared_error(index, payloads, right_size):
    release = seeds.releases()[index]
    if right_size:
        size = release.randomizer.payload_size
        payloads = [payload[:size].ljust(size, b"\x80") for payload in payloads]
    oracle.decode(release, [oracle.framed(release, payload) for payload in payloads])
    oracle.read_payloads(release, payloads)


@settings(max_examples=100)
@given(indices, st.binary(max_size=200), st.booleans())
def test_any_file_of_reports_raises_only_the_declared_error(
    tmp_path_factory, index, content, starts_valid
):
    release = seeds.releases()[index]
    content = seeds.reports()[index][0] + content if starts_valid else content
    oracle.decode_file(release, tmp_path_factory.getbasetemp() / "fuzzed.reports", content)


THINGS = [
    *(None, 5, 1.5, True, object(), "OX", bytearray(30), memoryview(bytes(30)), np.zeros((2, 3))),
    *([], (), {}, set(), [None], [5], ["OX"], [bytearray(30)], [memoryview(bytes(30))], [[b"OX"]]),
    *([np.zeros(3)], {"a": b"OX"}, [np.bytes_(b"OX")]),
]


@pytest.mark.parametrize("method", ["observe", "decode", "decode_mean"])
def test_only_bytes_are_decoded(method):
    release = seeds.releases()[0]
    for thing in [*THINGS, iter([]), (part for part in (b"OX", None))]:
        with pytest.raises(InvalidReport):
            getattr(release, method)(thing)


def test_an_error_raised_by_the_source_of_reports_passes_through():
    class Broken(Exception):
        pass

    def source():
        yield seeds.reports()[0][0]
        raise Broken

    for method in ("observe", "decode", "decode_mean"):
        with pytest.raises(Broken):
            getattr(seeds.releases()[0], method)(source())


def test_a_source_of_reports_is_read_up_to_the_first_bad_one():
    read = []

    def source():
        for report in (seeds.reports()[0][0], b"bad", b"never"):
            read.append(report)
            yield report

    with pytest.raises(InvalidReport, match="report 1"):
        seeds.releases()[0].decode(source())
    assert b"never" not in read
