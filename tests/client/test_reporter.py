"""Reports within a budget: paid first, one per call, and once per person where promised."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest

import offaxis
from offaxis.client import Reporter
from offaxis.errors import BudgetExceeded, InvalidInput, ModelNeeded, RoundRefused
from offaxis.privacy.ledger import Ledger, Limit
from tests.forks import in_child


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


def test_reports_that_were_paid_for_before_a_fork_are_made_once(reporter, public):
    parts = reporter.reports(public[:3], part=1)
    assert len(next(parts)) == 1
    assert "after a fork" in in_child(lambda: next(parts))[0]
    assert len(list(parts)) == 2
    assert reporter.ledger.spent()[0] == 3 * reporter.release.guarantee.epsilon


def test_a_release_per_person_is_reported_once_per_study(head, public, tmp_path):
    """The promise is to a person: neither a second call nor a second release may break it."""
    once, other = (
        offaxis.fit(head, public, epsilon=1, unit="user", mechanism="laplace", percentile=p)
        for p in (90, 80)
    )
    with Ledger(tmp_path / "my.ledger", Limit(10)) as ledger:
        Reporter(once, ledger).report(np.zeros(6))
        for release in (once, other):
            with pytest.raises(RoundRefused, match="one report or one sequence per person"):
                Reporter(release, ledger).report(np.zeros(6))
        with pytest.raises(RoundRefused, match="reported it before"):
            Reporter(once, ledger, "energy").report(np.zeros(6))
        Reporter(other, ledger, "energy").report(np.zeros(6))
        assert ledger.spent() == (2, 0)
    with Ledger(tmp_path / "my.ledger", Limit(10)) as ledger:
        with pytest.raises(RoundRefused):
            Reporter(other, ledger).report(np.zeros(6))
        with pytest.raises(InvalidInput, match="one at a time"):
            Reporter(once, ledger).reports(np.zeros((2, 6)))


def test_the_ledger_holds_no_vector_and_no_hash_of_one(reporter, public, tmp_path):
    reporter.report(public[0])
    secret = reporter.ledger.secret(b"unused")
    reporter.ledger.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    octets = public[0].astype("<f8").tobytes()
    assert octets[:16] not in stored
    assert hashlib.sha256(octets).digest() not in stored
    assert hmac.digest(secret, octets, "sha256") not in stored


@pytest.mark.parametrize("vector", [np.full(6, np.nan), np.zeros(5), np.zeros((2, 6)), "text"])
def test_an_invalid_vector_is_not_paid_for(reporter, vector):
    with pytest.raises(InvalidInput):
        reporter.report(vector)
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
    for report in (reporter.report, reporter.reports):
        with pytest.raises(ModelNeeded):
            report(public[0])
    assert reporter.ledger.spent() == (0, 0)


def test_a_masked_vector_is_rejected(reporter):
    """Copying it first would report what is under the mask."""
    masked = np.ma.masked_array(np.arange(6.0), mask=[0, 1, 0, 0, 0, 0])
    with pytest.raises(InvalidInput, match="must not be masked"):
        reporter.report(masked)
    assert reporter.ledger.spent() == (0, 0)


def test_only_sequences_number_their_reports(reporter):
    with pytest.raises(InvalidInput, match="only a release of sequences"):
        reporter.report(np.zeros(6), number=3)
