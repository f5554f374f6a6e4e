"""Disks that are full: a small file system where mounting is permitted, a limit where it is not.

Each yields an address of a database, something that fills its disk once the collector runs, and
something that makes room again.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.collector.faults.processes import Collector

Fill = Callable[[Collector], None]
Disk = tuple[str, Fill, Fill]


def nothing(_: Collector) -> None:
    """Leave it: the disk fills by itself."""


@contextmanager
def small(folder: Path, size: str) -> Iterator[Callable[[], None]]:
    """Mount a small file system; yield what makes it larger."""

    def mount(*options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    if shutil.which("mount") is None or not mount(f"size={size}"):
        pytest.skip("mounting a file system is not permitted here")

    def grow() -> None:
        assert mount("remount", "size=64m")

    try:
        yield grow
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def small_sqlite(new_database: Any, folder: Path) -> Iterator[Disk]:
    """A file system with room for some of the reports."""
    with small(folder, "640k") as grow:
        yield f"sqlite:///{folder}/collector.db", nothing, lambda _: grow()


@contextmanager
def limited_sqlite(new_database: Any, folder: Path) -> Iterator[Disk]:
    """A limit on the size of the collector's files, which the system keeps."""

    def limit(size: int) -> Fill:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def to(collector: Collector) -> None:
            resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (size, hard))

        return to

    yield f"sqlite:///{folder}/collector.db", limit(300_000), limit(64 << 20)


@contextmanager
def small_postgresql(new_database: Any, folder: Path) -> Iterator[Disk]:
    """Reports in a tablespace on a small file system."""
    url = new_database("postgresql")
    with small(folder, "512k") as grow, psycopg.connect(url, autocommit=True) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone()
        shutil.chown(folder, Path(data).owner(), Path(data).group())
        for above in folder.parents[:3]:
            above.chmod(above.stat().st_mode | 0o011)
        connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")

        def fill(_: Collector) -> None:
            connection.execute("ALTER TABLE report SET TABLESPACE small")

        try:
            yield url, fill, lambda _: grow()
        finally:
            connection.execute("ALTER TABLE report SET TABLESPACE pg_default")
            connection.execute("DROP TABLESPACE small")
            connection.execute("CHECKPOINT")


@contextmanager
def refusing_postgresql(new_database: Any, folder: Path) -> Iterator[Disk]:
    """A server that says what it says when its disk is full; needs no mount."""
    url = new_database("postgresql")
    with psycopg.connect(url, autocommit=True) as connection:

        def fill(_: Collector) -> None:
            connection.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$"
            )
            connection.execute(
                "CREATE TRIGGER refuse AFTER INSERT ON report EXECUTE FUNCTION refuse()"
            )

        yield url, fill, lambda _: connection.execute("DROP TRIGGER refuse ON report")


DISKS = (small_sqlite, limited_sqlite, small_postgresql, refusing_postgresql)
