"""The auditor on reports made in JavaScript: the verdict that Python's own get, and broken twins.

False alarms: ALPHA an audit, all its tests together. Bounds on ε of the twins lie far beyond the
promise: the odds of a twin are e^1.5 or e^2 where e^1 is promised.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from offaxis.audit import audit
from tests.browser.maker import TWINS, audited, broken_client, in_javascript, shown
from tests.checks import ALPHA

REPORTS = 20_000
KINDS = tuple(TWINS)


def verdicts(result) -> list[tuple[str, str]]:
    """Every test and what it found, but for times, which are no part of the promise."""
    return [(f.test, f.verdict) for f in result.findings if not f.test.startswith("timing")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_is_pythons(node, kind):
    release = audited(Fraction(1))[kind]
    own = audit(release, reports=REPORTS // 4, false_alarm=ALPHA)
    with in_javascript(release, node) as same:
        result = audit(same, reports=REPORTS, false_alarm=ALPHA)
    assert not result.violated, result.summary
    assert not own.violated, own.summary
    assert verdicts(result) == verdicts(own)
    # It sees most of the budget, and the run could have contradicted it.
    assert 0.6 < shown(result) <= 1
    assert result.resolution > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_twin_is_caught(node, kind, tmp_path):
    release = audited(Fraction(1))[kind]
    with in_javascript(release, node, broken_client(tmp_path, kind)) as twin:
        result = audit(twin, reports=REPORTS, false_alarm=ALPHA)
    assert "worst-pair" in {finding.test for finding in result.by_verdict("violation")}
    assert shown(result) > 1
