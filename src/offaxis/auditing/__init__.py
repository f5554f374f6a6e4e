"""Attack a release, or any function that promises privacy, and report the findings."""

from offaxis.auditing.auditor import FALSE_ALARM, FULL, LEAST, audit
from offaxis.auditing.domains import AnyVector, Pairs
from offaxis.auditing.result import AuditResult, Finding

__all__ = [
    "FALSE_ALARM",
    "FULL",
    "LEAST",
    "AnyVector",
    "AuditResult",
    "Finding",
    "Pairs",
    "audit",
]
