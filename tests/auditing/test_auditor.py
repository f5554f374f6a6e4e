"""Sound releases pass, and the result states what the run could and could not show."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import offaxis
from offaxis.auditing import LEAST, attacks, audit
from offaxis.auditing.inputs import is_ranked
from offaxis.auditing.result import AuditResult, Finding
from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers import NAMES
from tests.auditing.conftest import EPSILON
from tests.checks import ALPHA

REPORTS = 40_000
AUDITED = (*NAMES, "response", "subset", "coordinatewise-laplace")


def by_name(result: AuditResult) -> dict[str, Finding]:
    return {finding.test: finding for finding in result.findings}


# One audit per randomizer: it takes seconds, and parallel runs would repeat a shared fixture.
# benchmarks/mechanisms.py audits the mechanisms around a randomizer that is audited here.
@pytest.mark.parametrize("kind", AUDITED)
def test_a_sound_release_is_not_accused(audited, kind):
    release = audited[kind]
    # Directions are slow to draw, and half as many reports show as much.
    reports = REPORTS // 2 if is_ranked(release.randomizer) else REPORTS
    result = audit(release, reports=reports, false_alarm=ALPHA)
    assert not result.violated
    assert result.reports > 2 * reports
    symbols = kind in ("response", "subset")
    assert [f.test for f in result.by_verdict("not run")] == ["freshness"] * symbols
    assert result.summary.startswith(f"No violation found at ε = {EPSILON}")
    check_that_the_attacks_have_power(result, kind)
    check_shares(result)
    check_facts(result, reports)


def check_that_the_attacks_have_power(result, kind):
    """Check that bounds are not far below the true ε.

    Repeated runs of all randomizers show bounds from 1.7 to 1.9 by the worst pair and the reduced
    reports, and from 1.0 to 1.7 by the classifier; if coordinates share the privacy loss, from 1.0,
    1.5 and 0.5 on.
    """
    findings = by_name(result)
    if result.randomizer == "gaussian":
        # Only rare events approach (ε, δ); the size of the noise is measured well.
        allowed = float(findings["reduced-noise"].result.split()[-1])
        assert 0.4 * allowed < findings["reduced-noise"].shift <= allowed
        return
    # If six coordinates share the privacy loss, it is rarely all of ε.
    shared = result.randomizer == "spherical-laplace" or kind == "coordinatewise-laplace"
    assert (0.7 if shared else 1.4) < findings["worst-pair"].epsilon <= EPSILON
    assert (0.3 if shared else 0.5) < findings["classifier-worst"].epsilon <= EPSILON
    if "reduced" in findings:  # symbols have no dimension
        assert (1.2 if shared else 1.4) < findings["reduced"].epsilon <= EPSILON


def check_shares(result):
    """Check that every test has the same part of the false-alarm rate, and that they add up."""
    shares = [finding.alpha for finding in result.findings if finding.alpha is not None]
    unused = len(result.by_verdict("not run"))
    assert sum(shares) + unused * shares[0] == pytest.approx(ALPHA)
    assert len(set(shares)) == 1


def check_facts(result, reports):
    """Check that the facts are plain data, complete, and claim no more than was shown."""
    facts = json.loads(json.dumps(result.facts()))
    assert facts["release"] == result.release
    assert facts["epsilon"] == "2"
    assert facts["violation"] is False
    assert facts["false_alarm"] == ALPHA
    assert facts["reports"] == result.reports
    assert set(facts["versions"]) == {"offaxis", "Python", "NumPy", "SciPy"}
    worst = next(f for f in facts["findings"] if f["test"] == "worst-pair")
    assert worst["reports"] == reports
    assert worst["event"]["trials"] == worst["event"]["other_trials"] == reports // 4
    assert worst["epsilon_at_least"] < worst["resolution"]
    for words in ("verified", "proved", "safe"):
        assert words not in json.dumps(facts)


def test_few_reports_cannot_contradict_a_large_budget(public):
    release = offaxis.fit(None, public, epsilon=10, reshaping="none", mechanism="laplace")
    result = audit(release, reports=LEAST, false_alarm=ALPHA)
    assert result.resolution < 10
    assert "this run could not have contradicted ε = 10; run at least" in result.summary
    assert result.needed > 10**5
    assert f"{result.needed:,} reports" in result.summary


def test_the_number_of_reports_needed_is_sufficient(public):
    release = offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")
    needed = audit(release, reports=LEAST, false_alarm=ALPHA).needed
    result = audit(release, reports=needed, false_alarm=ALPHA)
    assert by_name(result)["worst-pair"].resolution > 3
    assert "could have shown up to" in result.summary


def test_some_budgets_cannot_be_contradicted_at_all():
    result = AuditResult(
        "00", "laplace", Guarantee(1000), (), 0, 1e-3, None, (), "1", {"offaxis": "0"}, 1.0
    )
    assert "no number of reports within reach could" in result.summary
    assert result.strongest is None


def test_the_seed_is_the_auditors_and_progress_runs_to_the_end(audited):
    progress = {}
    once, again = (
        audit(
            audited["laplace"],
            reports=LEAST,
            rng=np.random.default_rng(5),
            progress=lambda name, done, total: progress.update({name: (done, total)}),
        )
        for _ in "ab"
    )
    assert once.seed == again.seed == "5"
    assert by_name(once)["worst-pair"].count != by_name(again)["worst-pair"].count
    assert {"worst-pair", "reduced", "coarse-lattice"} <= set(progress)
    assert all(done == total for done, total in progress.values())


def test_without_scikit_learn_the_classifier_is_listed_as_not_run(audited, monkeypatch):
    monkeypatch.setattr(attacks, "find_spec", lambda name: None)
    result = audit(audited["laplace"], reports=LEAST, false_alarm=ALPHA)
    (not_run,) = result.by_verdict("not run")
    assert not_run.test == "classifier"
    assert ".[sklearn]" in not_run.result
    assert not result.violated


@pytest.mark.parametrize("dim", [1, 2, 700])
def test_releases_of_any_dimension_are_audited(dim):
    public = np.random.default_rng(0).standard_normal((max(50, dim + 1), dim))
    release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    result = audit(release, reports=LEAST, false_alarm=ALPHA)
    assert not result.violated
    assert ("reduced" in by_name(result)) == (dim > 2)


def test_bad_parameters_are_rejected(audited):
    with pytest.raises(InvalidInput, match="at least 400"):
        audit(audited["laplace"], reports=LEAST - 1)
    for rate in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="false_alarm"):
            audit(audited["laplace"], false_alarm=rate)
