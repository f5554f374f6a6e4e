"""Any sequence of deliveries agrees with a simple model in which the first delivery counts."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_people = st.integers(0, 5)
_reports = st.integers(0, 3)
_pair = st.tuples(_people, _reports)
_step = st.one_of(
    st.tuples(st.just("one"), _pair),
    st.tuples(st.just("batch"), st.lists(_pair, min_size=1, max_size=8)),
    st.tuples(st.just("withdraw"), _people),
    st.tuples(st.just("means"), st.none()),
)
_names = (f"schedule-{number}" for number in itertools.count())


class Model:
    """The expected content of a round: the first report per id, or None once it was withdrawn."""

    def __init__(self) -> None:
        self.stored: dict[int, int | None] = {}

    def put(self, person: int, report: int) -> str:
        if person not in self.stored:
            self.stored[person] = report
            return "accepted"
        return "repeated" if self.stored[person] == report else "conflict"

    @property
    def reports(self) -> list[int]:
        return [report for report in self.stored.values() if report is not None]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=st.lists(_step, max_size=14))
def test_any_sequence_of_deliveries_agrees_with_the_model(
    schedule, server, for_means, some_reports
):
    name = next(_names)
    server.open(for_means, name)
    ids = [os.urandom(32) for _ in range(6)]
    model = Model()
    for kind, target in schedule:
        if kind == "one":
            person, report = target
            got = server.upload(name, ids[person], some_reports[report])
            outcome = {201: "accepted", 200: "repeated", 409: "conflict"}[got.status]
            assert outcome == model.put(person, report)
        elif kind == "batch":
            got = server.batch(name, [(ids[p], some_reports[r]) for p, r in target]).json
            expected = [model.put(person, report) for person, report in target]
            for outcome in ("accepted", "repeated"):
                assert got[outcome] == expected.count(outcome)
            conflicts = [i for i, outcome in enumerate(expected) if outcome == "conflict"]
            assert got["conflicts"] == conflicts
        elif kind == "withdraw":
            path = f"/v1/rounds/{name}/reports/{ids[target].hex()}"
            assert server.request("device", "DELETE", path).status == 204
            model.stored[target] = None
        else:
            check_means(server, name, for_means, some_reports, model)
    check_means(server, name, for_means, some_reports, model)


def check_means(server, name, release, reports, model) -> None:
    got = server.request("analyst", "GET", f"/v1/rounds/{name}/means").json
    assert got["reports"] == len(model.reports)
    if model.reports:
        observations = release.observe([reports[i] for i in model.reports])
        expected = release.unbiased_decoder.decode(observations).mean(axis=0)
        assert got["means"][0]["mean"] == pytest.approx(np.asarray(expected), rel=1e-9, abs=1e-9)
