"""Auditing: attacks on a release, from ``privatize`` to the bytes, and what they found."""

from offaxis.audit.auditor import FALSE_ALARM, FULL, LEAST, audit
from offaxis.audit.result import AuditResult, Finding

__all__ = ["FALSE_ALARM", "FULL", "LEAST", "AuditResult", "Finding", "audit"]
