"""``--engine``: the same commands on Parquet folders too large for memory, or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from offaxis.cli.options import Misused
from offaxis.cli.terminal import moving
from offaxis.engines import local, spark
from offaxis.geometry import PublicVectors

Engine = Literal["local", "spark"]
EngineName = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="Work on Parquet files and folders, a batch at a time: on this machine, or on Spark. "
        "Vectors are then named PATH:COLUMN.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="With --engine spark: where Spark runs, such as local[4] or spark://host:7077; all "
        "cores of this machine if not told.",
    ),
]
IDS = "id"


@dataclass(frozen=True)
class Work:
    """An engine at work: its functions, how it opens a path, and the progress it tells."""

    functions: Any
    open: Callable[[str], Any]
    told: dict[str, Any]

    def public_vectors(self, source: str) -> PublicVectors:
        """Return a column of public vectors."""
        path, column = locate_column(source)
        found: PublicVectors = self.functions.public_vectors(self.open(path), column)
        return found


@contextmanager
def working(engine: Engine, master: str | None, label: str) -> Iterator[Work]:
    """Start an engine with a progress bar, and stop it."""
    check_engine(engine, master)
    with moving(label) as move:
        move(label, 0, None)
        if engine == "local":
            done = 0

            def advance(records: int) -> None:
                nonlocal done
                done += records
                move(label, done, None)

            yield Work(local, local.ParquetRecords, {"advance": advance})
            return

        def progress(finished: int, known: int) -> None:
            move(label, finished, known)

        with spark.opened(master) as session:
            yield Work(spark, spark.reader(session), {"progress": progress})


def check_engine(engine: Engine | None, master: str | None, **others: Any) -> None:
    """Refuse options that the chosen engine does not take, by their names."""
    if master is not None and engine != "spark":
        raise Misused("--master goes with --engine spark only")
    for name, given in others.items():
        if given and engine is not None:
            raise Misused(f"--{name} does not go with --engine")


def locate_column(source: str) -> tuple[str, str]:
    """Split PATH:COLUMN; without a column it is ``vector``."""
    path, _, column = source.rpartition(":")
    if not path or "/" in column or Path(source).exists():
        return source, "vector"
    return path, column
