"""Full disks: a small file system where mounting is permitted, and a limit elsewhere.

Each yields the URL of a database, a function that fills its disk once the collector runs, and a
function that makes space again.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.collector.faults.processes import Collector

Fill = Callable[[Collector], None]
Disk = tuple[str, Fill, Fill]


def do_nothing(_: Collector) -> None:
    """Do nothing: the uploads fill the disk."""


@contextmanager
def small_file_system(size: str) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Mount a small file system; yield its folder and a function that enlarges it."""
    # Not in pytest's folders: a server that runs as another user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="offaxis-disk-"))
    folder.chmod(0o755)

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def grow() -> None:
        assert mount("remount,size=64m")

    if shutil.which("mount") is None or not mount(f"size={size}"):
        folder.rmdir()
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield folder, grow
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def small_sqlite(new_database: Any, folder: Path) -> Iterator[Disk]:
    """A file system with space for some of the reports."""
    with small_file_system("640k") as (mounted, grow):
        yield f"sqlite:///{mounted}/collector.db", do_nothing, lambda _: grow()


@contextmanager
def limited_sqlite(new_database: Any, folder: Path) -> Iterator[Disk]:
    """A limit of the operating system on the size of the collector's files."""

    def limit(size: int) -> Fill:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def apply(collector: Collector) -> None:
            resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (size, hard))

        return apply

    yield f"sqlite:///{folder}/collector.db", limit(300_000), limit(64 << 20)


@contextmanager
def small_postgresql(new_database: Any, folder: Path) -> Iterator[Disk]:
    """Reports in a tablespace on a small file system."""
    url = new_database("postgresql")
    with (
        small_file_system("256k") as (mounted, grow),
        psycopg.connect(url, autocommit=True) as connection,
    ):
        (data,) = connection.execute("SHOW data_directory").fetchone()
        shutil.chown(mounted, Path(data).owner(), Path(data).group())
        connection.execute(f"CREATE TABLESPACE small LOCATION '{mounted}'")

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
    """A server that raises the error of a full disk; needs no mount."""
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
