"""Reports within a budget: paid first, kept on request, and one per call."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import offaxis
from offaxis.client import Reporter
from offaxis.errors import BudgetExceeded, InvalidInput, ModelNeeded
from offaxis.privacy.ledger import Ledger, Limit


@pytest.fixture
def reporter(release, tmp_path):
    with Ledger(tmp_path / "my.ledger", Limit(3 * release.guarantee.epsilon)) as ledger:
        yield Reporter(release, ledger)


def test_every_report_is_paid_for(reporter, public):
    reports = {reporter.report(public[0]) for _ in range(3)}
    assert len(reports) == 3
    assert reporter.ledger.spent()[0] == 3 * reporter.release.guarantee.epsilon
    with pytest.raises(BudgetExceeded):
        reporter.report(public[0])
    assert reporter.release.decode(list(reports)).shape == (3, 6)


def test_a_kept_report_is_paid_for_once(reporter, public):
    first = reporter.same_report(public[0])
    assert all(reporter.same_report(public[0]) == first for _ in range(20))
    assert reporter.ledger.spent()[0] == reporter.release.guarantee.epsilon
    assert reporter.same_report(public[1]) != first
    assert reporter.ledger.spent()[0] == 2 * reporter.release.guarantee.epsilon


def test_a_kept_report_survives_a_restart(release, public, tmp_path):
    path = tmp_path / "my.ledger"
    with Ledger(path, Limit(10)) as ledger:
        first = Reporter(release, ledger).same_report(public[0])
    with Ledger(path, Limit(10)) as ledger:
        assert Reporter(release, ledger).same_report(public[0]) == first


def test_another_release_gives_another_report(head, release, public, tmp_path):
    other = offaxis.fit(head, public, epsilon=2, mechanism="laplace")
    with Ledger(tmp_path / "my.ledger", Limit(10)) as ledger:
        Reporter(release, ledger).same_report(public[0])
        Reporter(other, ledger).same_report(public[0])
        assert ledger.spent()[0] == 5


def test_zero_and_minus_zero_are_one_vector(reporter):
    first = reporter.same_report(np.zeros(6))
    assert reporter.same_report(-np.zeros(6)) == first


def test_the_ledger_holds_no_vector(reporter, public, tmp_path):
    reporter.same_report(public[0])
    reporter.ledger.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert public[0].astype("<f8").tobytes()[:16] not in stored
    assert hashlib.sha256(public[0].astype("<f8").tobytes()).digest() not in stored


@pytest.mark.parametrize("vector", [np.full(6, np.nan), np.zeros(5), np.zeros((2, 6)), "text"])
def test_an_invalid_vector_is_not_paid_for(reporter, vector):
    for report in (reporter.report, reporter.same_report):
        with pytest.raises(InvalidInput):
            report(vector)
    assert reporter.ledger.spent() == (0, 0)


def test_payment_precedes_the_report(reporter, public, monkeypatch):
    """A crash while the report is made costs budget; there is never a report without payment."""
    monkeypatch.setattr(type(reporter.release), "privatize", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reporter.report(public[0])
    assert reporter.ledger.spent()[0] == reporter.release.guarantee.epsilon


def test_a_release_without_its_model_costs_nothing(tmp_path, public):
    """The model is missing for every vector, so the error says nothing about one."""
    offaxis.fit(lambda Z: np.sin(Z[:, :2]), public, epsilon=1).save(tmp_path / "answers.release")
    reporter = Reporter(
        offaxis.load(tmp_path / "answers.release"), Ledger(tmp_path / "a.ledger", Limit(5))
    )
    for report in (reporter.report, reporter.same_report, reporter.reports):
        with pytest.raises(ModelNeeded):
            report(public[0])
    assert reporter.ledger.spent() == (0, 0)
