"""Prometheus metrics of one process, in a registry of their own. No label names a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_ROWS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "offaxis_requests", "Requests", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "offaxis_request_seconds",
            "Time to answer",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.reports = Counter(
            "offaxis_reports", "Uploaded reports by outcome", ("outcome",), registry=self.registry
        )
        self._rows = Histogram(
            "offaxis_commit_rows", "Reports in a commit", buckets=_ROWS, registry=self.registry
        )
        self._commit = Histogram(
            "offaxis_commit_seconds", "Time of a commit", buckets=_SECONDS, registry=self.registry
        )
        self.failures = Counter(
            "offaxis_database_failures", "Work the database refused", registry=self.registry
        )
        self.drift = Gauge(
            "offaxis_drift_warning",
            "1 if a round's reports do not fit the public vectors, when last asked",
            ("round",),
            registry=self.registry,
        )

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Show how many reports wait for the database."""
        gauge = Gauge("offaxis_waiting_reports", "Reports not committed", registry=self.registry)
        gauge.set_function(waiting)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def committed(self, rows: int, seconds: float) -> None:
        """Count a commit of reports."""
        self._rows.observe(rows)
        self._commit.observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
