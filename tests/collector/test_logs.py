"""Logs state where an error occurred, and never contain what a client sent."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging

import pytest

from offaxis.collector import monitoring, service
from tests.collector.running import running

SECRET = "1234567890abcdef"


@pytest.fixture
def logged():
    """Return a function that returns the log lines of a collector; restore the loggers after."""
    names = ("offaxis.collector", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
    before = {
        name: (log.handlers, log.propagate, log.level, log.disabled)
        for name in names
        if (log := logging.getLogger(name))
    }
    stream = io.StringIO()
    monitoring.configure(stream)

    def lines() -> list[dict]:
        monitoring.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    for name, (handlers, propagate, level, disabled) in before.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate, log.disabled = handlers, propagate, disabled
        log.setLevel(level)


def test_an_unretrieved_exception_is_not_quoted(logged):
    """The event loop reports it, with the error's message on a further line."""

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


def test_maintenance_continues_after_any_error(new_database, monkeypatch, logged):
    monkeypatch.setattr(service, "REFRESH_SECONDS", 0.02)
    with running(new_database("sqlite")) as server:
        valid, errors = server.collector.store.valid_tokens, [KeyError, ValueError]

        def fail_first():
            if errors:
                raise errors.pop()(SECRET)
            return valid()

        monkeypatch.setattr(server.collector.store, "valid_tokens", fail_first)
        last = server.collector.catalogue._read
        for _ in range(500):
            if not errors and server.collector.catalogue._read > last:
                break
            server.request("nobody", "GET", "/healthz")
        else:
            pytest.fail("tokens and rounds are no longer read")
    failures = [line for line in logged() if line["event"] == "refresh failed"]
    assert [line["error"] for line in failures] == ["ValueError", "KeyError"]
    assert SECRET not in json.dumps(logged())
