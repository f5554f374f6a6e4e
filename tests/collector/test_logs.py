"""Log lines say where something went wrong, and never what somebody sent."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging

import pytest

from offaxis.collector import monitoring as logs
from offaxis.collector import service
from tests.collector.running import running

SECRET = "1234567890abcdef"


@pytest.fixture
def logged():
    """Return the lines of a log that all loggers of a collector write to, and undo it."""
    names = ("offaxis.collector", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
    before = {
        name: (log.handlers, log.propagate, log.level, log.disabled)
        for name in names
        if (log := logging.getLogger(name))
    }
    stream = io.StringIO()
    logs.configure(stream)

    def lines() -> list[dict]:
        logs.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    for name, (handlers, propagate, level, disabled) in before.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate, log.disabled = handlers, propagate, disabled
        log.setLevel(level)


def test_an_error_that_nobody_waited_for_is_not_quoted(logged):
    """The loop itself tells of it, with the error's message in a further line."""

    async def forget() -> None:
        async def fail() -> None:
            raise ValueError(SECRET)

        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task
        gc.collect()

    asyncio.run(forget())
    (line,) = logged()
    assert line["event"] == "Task exception was never retrieved"
    assert line["error"] == "ValueError"
    assert SECRET not in json.dumps(line)


def test_a_chore_goes_on_after_any_error(new_database, monkeypatch, logged):
    monkeypatch.setattr(service, "EVERY", 0.02)
    with running(new_database("sqlite")) as server:
        valid, errors = server.collector.store.valid_tokens, [KeyError, ValueError]

        def unlucky():
            if errors:
                raise errors.pop()(SECRET)
            return valid()

        monkeypatch.setattr(server.collector.store, "valid_tokens", unlucky)
        last = server.collector.catalogue._read
        for _ in range(500):
            if not errors and server.collector.catalogue._read > last:
                break
            server.ask("nobody", "GET", "/healthz")
        else:
            pytest.fail("tokens and rounds are not read any more")
    told = [line for line in logged() if line["event"] == "refresh failed"]
    assert [line["error"] for line in told] == ["ValueError", "KeyError"]
    assert SECRET not in json.dumps(logged())
