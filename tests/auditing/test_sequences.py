"""Audits of releases of sequences: sound ones pass, and faults over a year are found."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.auditing import attacks, audit, auditor, checks
from offaxis.auditing.attacks import Averaging, sequences_of_reports
from offaxis.auditing.auditor import PlannedTest, PlannedTrial, judge
from offaxis.auditing.trials import Trial
from offaxis.client import sequences
from tests.auditing.broken_controls import (
    Forgetful,
    LoudLater,
    LoudPermanent,
    SwappedAges,
    TellingAges,
    endless,
    renewing_on_change,
    with_broken_control,
)

ALPHA = 1e-6
PUBLIC = np.random.default_rng(0).standard_normal((300, 3))


def memoised(draws: int, epsilon: float = 2, period: int = 40) -> offaxis.Release:
    single = offaxis.fit(np.eye(3), PUBLIC, epsilon=epsilon, mechanism="class-response")
    return offaxis.memoise(single, draws=draws, period=period)


def violations(release: offaxis.Release, reports: int = 20_000) -> set[str]:
    result = audit(release, reports=reports, false_alarm=ALPHA, rng=np.random.default_rng(1))
    return {finding.test for finding in result.by_verdict("violation")}


def found_by(release: offaxis.Release, test: str, reports: int) -> bool:
    """Return whether one test of an audit finds a violation."""
    run = auditor._Run(release, auditor._pace(reports), ALPHA, np.random.default_rng(1), None)
    [trial] = [each for each in run._trials if test in {planned.test for planned in each.tests}]
    return test in {f.test for f in run._attack(trial) if f.verdict == "violation"}


def is_scheduled(release: offaxis.Release) -> bool:
    [finding] = checks.schedule(release, auditor.pairs(release)[0])
    return finding.verdict == "nothing found"


@pytest.mark.parametrize(
    ("draws", "period", "watched"),
    [(1, 40, 70), (4, 40, 160), (0, 1, 70), (0, 30, 100), (3, 200, auditor.YEAR)],
)
def test_a_sound_sequence_passes(draws, period, watched, monkeypatch):
    """Rounds that are watched include all draws, or several if there is no last one."""
    monkeypatch.setattr(auditor, "YEAR", watched)
    assert violations(memoised(draws, period=period)) == set()


def test_a_sound_sequence_of_directions_passes(monkeypatch):
    monkeypatch.setattr(auditor, "YEAR", 60)
    single = offaxis.fit(None, PUBLIC, epsilon=2, goal="means")
    assert violations(offaxis.memoise(single, draws=2, period=12), 4_000) == set()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Forgetful, "averaging-answer"),
        (LoudPermanent, "averaging-answer"),
        (LoudLater, "later-report"),
    ],
)
@pytest.mark.parametrize("draws", [1, 4])
def test_a_broken_sequence_is_found(broken, test, draws):
    """Each would pass every test of first reports, or hide behind a large total ε."""
    assert found_by(with_broken_control(memoised(draws), broken), test, 40_000)


@pytest.mark.parametrize("broken", [TellingAges, SwappedAges])
@pytest.mark.parametrize("draws", [1, 4])
def test_ages_that_tell_of_the_vector_are_found(broken, draws):
    assert is_scheduled(memoised(draws))
    assert not is_scheduled(with_broken_control(memoised(draws), broken))


@pytest.mark.parametrize("draws", [1, 4])
def test_a_device_that_never_stops_drawing_is_found(draws, monkeypatch):
    monkeypatch.setattr(sequences, "is_due", endless)
    assert not is_scheduled(memoised(draws, period=300))


def test_a_draw_that_follows_a_change_of_the_vector_is_found(monkeypatch):
    """It keeps to the number of draws and their distance, but its time tells of the change."""
    for module in (attacks, checks):
        monkeypatch.setattr(module, "next_reports", renewing_on_change)
    monkeypatch.setattr(auditor, "YEAR", 100)  # after both draws
    assert is_scheduled(memoised(2))
    assert found_by(memoised(2), "draws-change", 40_000)


def test_reports_of_the_current_vector_are_found(monkeypatch):
    """A device that answers with the vector of every round, instead of the one it drew with."""
    release = memoised(2)
    real = auditor.sequences_of_reports

    def careless(release, histories, rounds):
        sound = real(release, histories, rounds)
        now = real(release, ((histories[0][1],) * 2, (histories[1][1],) * 2), rounds)
        return lambda side, count: now(side, count) if side else sound(side, count)

    monkeypatch.setattr(auditor, "sequences_of_reports", careless)
    assert found_by(release, "between-draws", 60_000)


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
