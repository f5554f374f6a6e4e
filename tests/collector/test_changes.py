"""Changes of a crowd: unchanged ones are reported at the stated rate; others are found, and where.

Of answers alone, the share of p-values below x must be at most about x without a change. Each check
allows counts that a binomial count with that share exceeds with probability 1e-6 (`_most`); they
are seeded. Rounds with public vectors are compared as populations are
(tests/learning/test_population_changes.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import offaxis
from offaxis.collector.changes import (
    FEWEST_COMPARED,
    MOST_COMPARED,
    Change,
    change_facts,
    compare_shares,
    no_change_facts,
)
from offaxis.collector.drift import FALSE_ALARM, drift_facts
from offaxis.decoding.aggregate import Moments
from offaxis.decoding.shares import Shares
from offaxis.evaluation.profiles import profile_of
from offaxis.learning import fit_answers
from offaxis.randomizers import KaryResponse
from offaxis.simulation import draw_observations
from tests.checks import ALPHA
from tests.collector.running import new_id
from tests.collector.test_population import COLOUR, NAMES, PUBLIC, asks, drawn, npy, send, weights

PAIRS = 200
EVEN, MOVED = (1 / 3, 1 / 3, 1 / 3), (0.6, 0.3, 0.1)


def _most(share: float) -> int:
    """Return the largest allowed count; 1.1 times the share, because the tests are asymptotic."""
    return int(binom.isf(1e-6, PAIRS, 1.1 * share))


def is_near(row, change):
    """Return whether a change lies within 2.5 intervals of 95 %: one false alarm in a million."""
    return abs(row["change"] - change) < 2.5 * max(
        row["high"] - row["change"], row["change"] - row["low"]
    )


def test_answers_are_compared_at_the_stated_rate():
    """Also with answers that hardly anybody gives."""
    randomizer, rng = KaryResponse(12, epsilon=8), np.random.default_rng(2)
    chances = np.array([0.5, 0.3, *[0.2 / 4] * 4, *[0.0] * 6])
    reported = randomizer.other_chance + chances * (randomizer.own_chance - randomizer.other_chance)
    names = list(map(str, range(12)))

    def pairs(moved=0.0, count=PAIRS):
        other = reported + moved * (np.eye(12)[0] - np.eye(12)[1])
        for _ in range(count):
            yield tuple(
                Shares(rng.multinomial(FEWEST_COMPARED, law), randomizer)
                for law in (reported, other)
            )

    found = np.array([compare_shares(a, "b", b, names).p_value for a, b in pairs()])
    for share in (FALSE_ALARM, 0.01, 0.1, 0.5):
        assert (found < share).sum() <= _most(share), share
    assert (found < 0.5).sum() > PAIRS / 4
    for own, earlier in pairs(moved=0.2, count=10):
        change = compare_shares(own, "before", earlier, names)
        assert change.p_value < FALSE_ALARM
        assert [row["name"] for row in change.where[:2]] in (["0", "1"], ["1", "0"])


def test_several_rounds_share_the_false_alarm_rate():
    changes = [Change(f"r{i}", p, ()) for i, p in enumerate((0.4, FALSE_ALARM / 3, 0.2, 0.9))]
    facts = change_facts(changes, FALSE_ALARM)
    assert facts["p_value"] == pytest.approx(4 * FALSE_ALARM / 3)
    assert facts["changed"] is False
    assert "since rounds r0, r1, r2 and r3" in facts["summary"]
    changes[1] = replace(changes[1], p_value=FALSE_ALARM / 5)
    facts = change_facts(changes, FALSE_ALARM)
    assert (facts["changed"], facts["since"]) == (True, "r1")
    assert [part["round"] for part in facts["compared"]] == ["r0", "r1", "r2", "r3"]
    assert len(changes) == MOST_COMPARED


def test_the_profile_and_the_change_share_it_too(for_means, public):
    profile = profile_of(for_means, public)
    rng = np.random.default_rng(3)
    people = public[rng.integers(0, len(public), 2000)]
    observed = draw_observations(for_means.randomizer, for_means.encoder.encode(people), rng)
    moments = Moments.of(observed, np.ones(len(observed)))
    alone = drift_facts(for_means, profile, moments)
    assert (alone["p_value"], alone["change"]) == (alone["fit"]["p_value"], None)
    for p, changed in ((FALSE_ALARM / 1.5, False), (FALSE_ALARM / 2.5, True)):
        change = change_facts([Change("before", p, ())], FALSE_ALARM / 2)
        facts = drift_facts(for_means, profile, moments, change)
        assert facts["p_value"] == pytest.approx(2 * p)
        assert facts["warning"] is facts["change"]["changed"] is changed
        assert facts["summary"].startswith("The reports fit the public vectors; the crowd has")
        assert facts["summary"].endswith(".")
    nothing = no_change_facts("No earlier round.")
    facts = drift_facts(for_means, profile, moments, nothing)
    assert facts["p_value"] == alone["p_value"]
    assert drift_facts(for_means, None, moments, nothing)["summary"] == "No earlier round."


# ---- The endpoint


@pytest.fixture(scope="module")
def release():
    # Another seed of public vectors than in other files: rounds of this release are its own.
    return offaxis.fit(None, drawn(500, 77), epsilon=4, reshaping="none", mechanism="privunit2")


def drift(server, name):
    got = server.request("analyst", "GET", f"/v1/rounds/{name}/drift")
    assert got.status == 200, got
    return got.json


def test_the_collector_finds_a_changed_crowd_and_where(server, release, tmp_path):
    server.publish(release)
    path = f"/v1/releases/{release.hash}"
    server.open(release, "moving-1", study="moving", number=1)
    send(server, "moving-1", release.privatize(drawn(2000, 20)))
    facts = drift(server, "moving-1")
    assert (facts["change"], facts["p_value"]) == (None, None)
    assert facts["summary"] == "This release has no profile of public vectors to compare with."
    assert server.request("admin", "PUT", f"{path}/support", npy(PUBLIC)).status == 204
    facts = drift(server, "moving-1")
    assert facts["change"]["changed"] is None
    assert "No earlier round of this study and release has 500 reports" in facts["summary"]

    server.open(release, "moving-2", study="moving", number=2)
    send(server, "moving-2", release.privatize(drawn(FEWEST_COMPARED - 1, 21)))
    facts = drift(server, "moving-2")
    assert (facts["warning"], facts["p_value"]) == (False, None)
    assert "499 of 500" in facts["summary"]
    send(server, "moving-2", release.privatize(drawn(1, 22)))
    facts = drift(server, "moving-2")
    # Reports are not seeded, and the rate of the warning is too high for a test: use ALPHA.
    assert facts["p_value"] > ALPHA
    assert facts["warning"] is facts["change"]["changed"] is (facts["p_value"] < FALSE_ALARM)
    assert facts["change"]["compared"][0]["round"] == "moving-1"

    # The reports of an earlier round may be deleted; its population is compared all the same.
    server.request("admin", "POST", "/v1/rounds/moving-1/close")
    server.request("admin", "DELETE", "/v1/rounds/moving-1/reports")
    server.open(release, "moving-3", study="moving", number=3)
    send(server, "moving-3", release.privatize(drawn(3000, 23, (0.7, 0.2, 0.1))))
    facts = drift(server, "moving-3")
    change = facts["change"]
    assert (facts["warning"], change["changed"]) == (True, True)
    assert change["p_value"] < ALPHA
    assert {part["round"] for part in change["compared"]} == {"moving-1", "moving-2"}
    assert facts["summary"].startswith(f"The crowd has changed since round {change['since']} (p <")
    cell = change["where"][0]
    assert cell["name"].startswith("cell ")
    assert cell["coordinates"]
    metrics = server.request("admin", "GET", "/metrics").body.decode()
    assert 'offaxis_drift_warning{round="moving-3"} 1.0' in metrics

    # With a model the change is told in its answers, before cells.
    assert (
        server.request("admin", "PUT", f"{path}/questions/colour", weights(COLOUR, tmp_path)).status
        == 204
    )
    facts = drift(server, "moving-3")
    red = facts["change"]["where"][0]
    assert red["name"] == f"colour: {NAMES[0]}"
    assert is_near(red, 0.7 - 1 / 3)
    assert red["now"] - red["before"] == pytest.approx(red["change"])
    assert "the share of colour: red rose by" in facts["summary"]
    cells = [row for row in facts["change"]["where"] if row["name"].startswith("cell ")]
    assert len(cells) == 5
    assert cells[0]["answers"][0]["question"] == "colour"


def test_rounds_of_other_studies_are_not_compared(server, release):
    server.publish(release)
    path = f"/v1/releases/{release.hash}/support"
    assert server.request("admin", "PUT", path, npy(PUBLIC)).status == 204
    for study in ("here", "there"):
        server.open(release, f"{study}-1", study=study, number=1)
        send(server, f"{study}-1", release.privatize(drawn(FEWEST_COMPARED, 30)))
    assert drift(server, "there-1")["change"]["compared"] == []


def test_answers_alone_are_compared_by_round(server):
    asked = fit_answers(["yes", "no", "perhaps"], epsilon=3)
    server.publish(asked)
    rng = np.random.default_rng(4)
    for number, chances in ((1, EVEN), (2, EVEN), (3, (0.6, 0.3, 0.1))):
        name = f"opinions-{number}"
        server.open(asked, name, study="opinions", number=number)
        answers = rng.choice(["yes", "no", "perhaps"], 3000, p=chances).tolist()
        send(server, name, asked.privatize(answers=answers))
    assert drift(server, "opinions-2")["p_value"] > ALPHA
    facts = drift(server, "opinions-3")
    assert facts["change"]["p_value"] < ALPHA
    yes = facts["change"]["where"][0]
    assert yes["name"] in ("yes", "perhaps")
    assert is_near(yes, 0.6 - 1 / 3 if yes["name"] == "yes" else 0.1 - 1 / 3)
    assert "the share of" in facts["summary"]


def test_a_round_that_cannot_be_compared_says_why(server):
    other = offaxis.fit(None, drawn(400, 78), epsilon=4, reshaping="none", mechanism="privunit2")
    server.publish(other)
    path = f"/v1/releases/{other.hash}/support"
    assert server.request("admin", "PUT", path, npy(PUBLIC)).status == 204
    server.open(other, "stuck-1", study="stuck", number=1)
    send(server, "stuck-1", other.privatize(drawn(FEWEST_COMPARED, 40)))
    server.request("admin", "POST", "/v1/rounds/stuck-1/close")
    server.request("admin", "DELETE", "/v1/rounds/stuck-1/reports")
    server.collector.catalogue.refresh()
    assert asks(server, "stuck-1").status == 200
    assert server.request("admin", "PUT", path, npy(PUBLIC[:300])).status == 204
    server.open(other, "stuck-2", study="stuck", number=2)
    ids = [new_id() for _ in range(FEWEST_COMPARED)]
    reports = other.privatize(drawn(FEWEST_COMPARED, 41))
    server.batch("stuck-2", list(zip(ids, reports, strict=True)))
    facts = drift(server, "stuck-2")
    assert (facts["warning"], facts["change"]["changed"]) == (False, None)
    assert "Rounds cannot be compared: the reports of this round were deleted" in facts["summary"]
