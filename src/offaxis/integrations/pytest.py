"""The pytest fixture ``audit``: a test fails if an audit finds that a function breaks its promise.

pytest loads this module by an entry point. Nothing else of offaxis is imported until a test uses
the fixture.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from offaxis.auditing import AuditResult

FALSE_ALARM: Final = 1e-6
"""A test suite runs often: one false alarm in a million audits."""

SECONDS: Final = "10"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option with the time of an audit."""
    parser.addini(
        "audit_seconds", "seconds that an audit by the fixture 'audit' may take", default=SECONDS
    )


@pytest.fixture
def audit(pytestconfig: pytest.Config) -> Callable[..., AuditResult]:
    """Return ``offaxis.audit``, which fails the test if it finds a violation.

    ``audit(function, epsilon=1, domain=Ball(3, 1, 2))`` takes the parameters of
    :func:`offaxis.audit`, with a false-alarm rate of 1e-6 and the seconds of the ini option
    ``audit_seconds`` (10) unless ``false_alarm``, ``reports`` or ``seconds`` are given. It returns
    the :class:`~offaxis.auditing.AuditResult`, and warns if so few calls could not have
    contradicted ε.
    """

    def run(target: Any, **settings: Any) -> AuditResult:
        __tracebackhide__ = True
        from offaxis.auditing import audit as attack

        if "reports" not in settings and "seconds" not in settings:
            settings["seconds"] = float(pytestconfig.getini("audit_seconds"))
        result = attack(target, **({"false_alarm": FALSE_ALARM} | settings))
        if result.violated:
            found = [finding.evidence for finding in result.by_verdict("violation")]
            raise AssertionError("\n  ".join([result.summary, *found]))
        if "could not have contradicted" in result.summary:
            warnings.warn(result.summary, stacklevel=2)
        return result

    return run
