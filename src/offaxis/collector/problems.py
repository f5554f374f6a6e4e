"""Error responses as problem details (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

STATUS: Final = {
    "unknown-token": 401,
    "forbidden": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "timeout": 408,
    "conflict": 409,
    "not-open": 409,
    "no-means": 409,
    "no-model": 409,
    "no-population": 409,
    "closed": 410,
    "too-large": 413,
    "invalid-request": 422,
    "invalid-report": 422,
    "invalid-release": 422,
    "invalid-round": 422,
    "too-many": 429,
    "internal": 500,
    "computing": 503,
    "unavailable": 503,
}
"""Every problem type and its status code."""

_TITLES: Final = {
    "unknown-token": "No valid token",
    "forbidden": "Insufficient role",
    "not-found": "Not found",
    "method-not-allowed": "Method not allowed",
    "timeout": "The request body took too long",
    "conflict": "Other content is stored under this name",
    "not-open": "The round is not open yet",
    "no-means": "This release has no unbiased means",
    "no-model": "No model is learnt from these reports",
    "no-population": "No population is estimated from these reports",
    "closed": "The round is closed",
    "too-large": "The request body is too large",
    "invalid-request": "Invalid request",
    "invalid-report": "Not a report of the round's release",
    "invalid-release": "Invalid release",
    "invalid-round": "Invalid round",
    "too-many": "Too many requests",
    "internal": "Internal error",
    "computing": "The result is still being computed",
    "unavailable": "The database is not available",
}


class Problem(Exception):
    """An error response; ``more`` are further members of the problem document."""

    def __init__(
        self, kind: str, detail: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status = STATUS[kind]
        self.headers = headers or {}
        self.document = {
            "type": kind,
            "title": _TITLES[kind],
            "status": self.status,
            "detail": detail,
            **more,
        }

    def response(self) -> Response:
        """Return the HTTP response."""
        return Response(
            json.dumps(self.document),
            self.status,
            {"cache-control": "no-store", **self.headers},
            "application/problem+json",
        )


def unavailable(detail: str = "try again in a moment") -> Problem:
    """Return the problem for a database that does not respond, with a time to retry."""
    return Problem("unavailable", detail, {"retry-after": "2"})
