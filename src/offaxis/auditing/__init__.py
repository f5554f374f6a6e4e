"""Attack a release, from ``privatize`` to the bytes of its reports, and report the findings."""

from offaxis.auditing.auditor import FALSE_ALARM, FULL, LEAST, audit
from offaxis.auditing.result import AuditResult, Finding

__all__ = ["FALSE_ALARM", "FULL", "LEAST", "AuditResult", "Finding", "audit"]
