"""Audits of releases of sequences: sound ones pass, and faults over a year are found."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.audit import audit, auditor
from offaxis.audit.attacks import Averaging, sequences_of_reports
from offaxis.audit.auditor import PlannedTest, PlannedTrial, judge
from offaxis.audit.trials import Trial
from tests.audit.broken_controls import Forgetful, LoudPermanent, TellingAges, with_broken_control

ALPHA = 1e-6
PUBLIC = np.random.default_rng(0).standard_normal((300, 3))


def memoised(renewals: int, epsilon: float = 2, period: int = 40) -> offaxis.Release:
    single = offaxis.fit(np.eye(3), PUBLIC, epsilon=epsilon, mechanism="class-response")
    return offaxis.memoise(single, renewals=renewals, period=period)


def violations(release: offaxis.Release, reports: int = 20_000) -> set[str]:
    result = audit(release, reports=reports, false_alarm=ALPHA, rng=np.random.default_rng(1))
    return {finding.test for finding in result.by_verdict("violation")}


@pytest.mark.parametrize("renewals", [1, 4])
def test_a_sound_sequence_passes(renewals):
    assert violations(memoised(renewals)) == set()


def test_a_sound_sequence_of_directions_passes():
    single = offaxis.fit(None, PUBLIC, epsilon=2, goal="means")
    assert violations(offaxis.memoise(single, renewals=2, period=12), 4_000) == set()


@pytest.mark.parametrize(
    ("broken", "found"),
    [(Forgetful, "averaging-answer"), (LoudPermanent, "averaging-answer"), (TellingAges, "ages")],
)
@pytest.mark.parametrize("renewals", [1, 4])
def test_a_broken_sequence_is_found(broken, found, renewals):
    """Each would pass every test of single reports, or hide behind a large total ε."""
    assert found in violations(with_broken_control(memoised(renewals), broken), 40_000)


def test_reports_of_the_current_vector_are_found(monkeypatch):
    """A device that answers with the vector of every round, instead of the one it drew with."""
    release = memoised(2)
    real = auditor.sequences_of_reports

    def careless(release, histories, rounds):
        sound = real(release, histories, rounds)
        now = real(release, ((histories[0][1],) * 2, (histories[1][1],) * 2), rounds)
        return lambda side, count: now(side, count) if side else sound(side, count)

    monkeypatch.setattr(auditor, "sequences_of_reports", careless)
    assert "between-draws" in violations(release, 60_000)


def test_a_promise_of_one_answer_is_stricter_than_that_of_all():
    """More draws than promised within the rounds of one answer: judged against ε, not R·ε."""
    eager = memoised(4, period=1)
    worst = auditor.pairs(eager)[0]
    histories = ((worst.first, worst.first), (worst.second, worst.second))
    attack = Averaging(eager.randomizer, *worst.encoded(eager))
    draw = sequences_of_reports(eager, histories, 20)
    one = offaxis.Guarantee(eager.randomizer.epsilon)
    test = PlannedTest("averaging-answer", "white box", "", attack, promise=one)
    planned = PlannedTrial(draw, (test,), "main", 1.0)
    [outcome] = Trial(planned.draw, rows=500).run([attack], 4000, delta=0.0, alpha=ALPHA / 2)
    assert judge(test, outcome, eager.guarantee, ALPHA).verdict == "violation"
    assert judge(PlannedTest("year", "white box", "", attack), outcome, eager.guarantee, ALPHA)
