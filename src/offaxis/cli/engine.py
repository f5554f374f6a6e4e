"""``--engine``: run a command on Parquet files too large for memory, locally or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from offaxis.cli.options import UsageError
from offaxis.cli.terminal import progress_bar
from offaxis.geometry import PublicVectors

Engine = Literal["local", "spark"]
EngineName = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="Process Parquet files and folders in batches, on this machine or on Spark. "
        "Vectors are then named PATH:COLUMN.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="With --engine spark: the Spark master, such as local[4] or spark://host:7077; by "
        "default all cores of this machine.",
    ),
]
IDS = "id"


@dataclass(frozen=True)
class OpenEngine:
    """A running engine: its functions, how it opens a path, and its progress callback."""

    functions: Any
    open: Callable[[str], Any]
    callbacks: dict[str, Any]

    def public_vectors(self, source: str) -> PublicVectors:
        """Return a column of public vectors."""
        path, column = locate_column(source)
        vectors: PublicVectors = self.functions.public_vectors(self.open(path), column)
        return vectors


@contextmanager
def open_engine(engine: Engine, master: str | None, label: str) -> Iterator[OpenEngine]:
    """Start an engine with a progress bar, and stop it at the end.

    Engines are imported here because most calls of a command use none.
    """
    check_engine(engine, master)
    with progress_bar(label) as update:
        update(label, 0, None)
        if engine == "local":
            from offaxis.engines import local

            done = 0

            def advance(records: int) -> None:
                nonlocal done
                done += records
                update(label, done, None)

            yield OpenEngine(local, local.ParquetRecords, {"advance": advance})
            return

        def progress(finished: int, total: int) -> None:
            update(label, finished, total)

        from offaxis.engines import spark

        with spark.opened(master) as session:
            yield OpenEngine(spark, spark.reader(session), {"progress": progress})


def check_engine(engine: Engine | None, master: str | None, **others: Any) -> None:
    """Reject options that the selected engine does not support; ``others`` are local only."""
    if master is not None and engine != "spark":
        raise UsageError("--master requires --engine spark")
    for name, value in others.items():
        if value and engine is not None:
            raise UsageError(f"--{name} cannot be used with --engine")


def locate_column(source: str) -> tuple[str, str]:
    """Split PATH:COLUMN; the default column is ``vector``."""
    path, _, column = source.rpartition(":")
    if not path or "/" in column or Path(source).exists():
        return source, "vector"
    return path, column
