"""Audits of reports made in JavaScript: the same verdicts as Python's reports, and broken controls.

False-alarm rate: ALPHA per audit, all its tests together. The bounds on ε of the broken controls
are far above the guarantee: their odds are e^1.5 or e^2 where e^1 is promised.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from offaxis.auditing import audit
from tests.browser.maker import BROKEN, audited, broken_client, in_javascript, largest_epsilon
from tests.checks import ALPHA

REPORTS = 20_000
KINDS = tuple(BROKEN)


def verdicts(result) -> list[tuple[str, str]]:
    """Return every test with its verdict, except timing, which the guarantee does not cover."""
    return [(f.test, f.verdict) for f in result.findings if not f.test.startswith("timing")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdicts_are_those_of_python(node, kind):
    release = audited(Fraction(1))[kind]
    in_python = audit(release, reports=REPORTS // 4, false_alarm=ALPHA)
    with in_javascript(release, node) as same:
        result = audit(same, reports=REPORTS, false_alarm=ALPHA)
    assert not result.violated, result.summary
    assert not in_python.violated, in_python.summary
    assert verdicts(result) == verdicts(in_python)
    # The audit detects most of ε, and could have detected a violation.
    assert 0.6 < largest_epsilon(result) <= 1
    assert result.resolution > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_client_is_caught(node, kind, tmp_path):
    release = audited(Fraction(1))[kind]
    with in_javascript(release, node, broken_client(tmp_path, kind)) as broken:
        result = audit(broken, reports=REPORTS, false_alarm=ALPHA)
    assert "worst-pair" in {finding.test for finding in result.by_verdict("violation")}
    assert largest_epsilon(result) > 1
