"""``offaxis collector``: what a collector says reaches the terminal, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from offaxis.client.transport import Response, Transport
from tests.cli.conftest import Run, assert_fails

REMEDY = (
    "a model is a weights file written by offaxis.geometry.Layers.save: convert your network with "
    "Layers.from_torch, or attach vectors with --support"
)
ASK = ("collector", "ask", "energy-7", "colour", "--token", "t")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (json.dumps({"detail": REMEDY}), (f"the collector refused: 422, '{REMEDY}'",)),
        (json.dumps({"detail": "a\x1b[2Jb\nc"}), ("422, 'a\\x1b[2Jb\\nc'",)),
        (json.dumps({"title": "Refused"}), ("422, 'Refused'",)),
        (json.dumps({"detail": ["a"], "title": "Refused"}), ("422, 'Refused'",)),
        (json.dumps(["a"]), ("refused: 422\n",)),
        ("not JSON", ("refused: 422\n",)),
        ("[" * 100_000, ("refused: 422\n",)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_refusal_is_shown_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, run: Run, body: str, words: tuple[str, ...]
) -> None:
    headers = {"content-type": "application/problem+json"}

    def refused(self: Transport, *_: Any, **__: Any) -> Response:
        return Response(422, headers, body.encode())

    monkeypatch.setattr(Transport, "request", refused)
    assert_fails(run(*ASK), 3, *words)


def test_a_refusal_is_bounded(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    body = json.dumps({"detail": "x" * 100_000}).encode()
    monkeypatch.setattr(Transport, "request", lambda *_, **__: Response(422, {}, body))
    result = run(*ASK)
    assert_fails(result, 3, "x" * 390)
    assert len(result.stderr) < 500
