"""Deliveries in any order and any number, beside a model of a few lines: the first one counts."""

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
    """What a round must hold: under each id the first report, or none once it was withdrawn."""

    def __init__(self) -> None:
        self.stored: dict[int, int | None] = {}

    def put(self, person: int, report: int) -> str:
        if person not in self.stored:
            self.stored[person] = report
            return "accepted"
        return "repeated" if self.stored[person] == report else "conflict"

    @property
    def reports(self) -> list[int]:
        return [one for one in self.stored.values() if one is not None]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=st.lists(_step, max_size=14))
def test_any_schedule_leaves_what_the_first_deliveries_say(
    schedule, server, for_means, some_reports
):
    name = next(_names)
    server.open(for_means, name)
    ids = [os.urandom(32) for _ in range(6)]
    model = Model()
    for kind, what in schedule:
        if kind == "one":
            person, report = what
            got = server.upload(name, ids[person], some_reports[report])
            said = {201: "accepted", 200: "repeated", 409: "conflict"}[got.status]
            assert said == model.put(person, report)
        elif kind == "batch":
            got = server.batch(name, [(ids[p], some_reports[r]) for p, r in what]).json
            wanted = [model.put(person, report) for person, report in what]
            for outcome in ("accepted", "repeated"):
                assert got[outcome] == wanted.count(outcome)
            assert got["conflicts"] == [i for i, one in enumerate(wanted) if one == "conflict"]
        elif kind == "withdraw":
            path = f"/v1/rounds/{name}/reports/{ids[what].hex()}"
            assert server.ask("device", "DELETE", path).status == 204
            model.stored[what] = None
        else:
            check_means(server, name, for_means, some_reports, model)
    check_means(server, name, for_means, some_reports, model)


def check_means(server, name, release, reports, model) -> None:
    got = server.ask("analyst", "GET", f"/v1/rounds/{name}/means").json
    assert got["reports"] == len(model.reports)
    if model.reports:
        seen = release.observe([reports[one] for one in model.reports])
        wanted = release.unbiased_decoder.decode(seen).mean(axis=0)
        assert got["means"][0]["mean"] == pytest.approx(np.asarray(wanted), rel=1e-9, abs=1e-9)
