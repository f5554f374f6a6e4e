"""Errors as clients see them: problem details of RFC 9457."""

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
    "closed": 410,
    "too-large": 413,
    "invalid-request": 422,
    "invalid-report": 422,
    "invalid-release": 422,
    "invalid-round": 422,
    "too-many": 429,
    "internal": 500,
    "unavailable": 503,
}
"""Every kind of problem, and its status code."""

_TITLES: Final = {
    "unknown-token": "No valid token",
    "forbidden": "Not with this token's role",
    "not-found": "Not here",
    "method-not-allowed": "No such method here",
    "timeout": "The body took too long",
    "conflict": "Something else is stored under this name",
    "not-open": "The round is not open yet",
    "no-means": "This release has no unbiased means",
    "closed": "The round is closed",
    "too-large": "The body is too large",
    "invalid-request": "The request is not as described",
    "invalid-report": "Not a report of the round's release",
    "invalid-release": "Not a release as asked for",
    "invalid-round": "Not a round as asked for",
    "too-many": "Too many requests",
    "internal": "Something went wrong here",
    "unavailable": "The database is not available",
}


class Problem(Exception):
    """An answer that says what is wrong; ``more`` are further members of the document."""

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
        """Return the answer."""
        return Response(
            json.dumps(self.document),
            self.status,
            {"cache-control": "no-store", **self.headers},
            "application/problem+json",
        )


def unavailable(detail: str = "try again in a moment") -> Problem:
    """Say that the database does not answer, and when to come again."""
    return Problem("unavailable", detail, {"retry-after": "2"})
