"""How far a Spark job is, and what went wrong in it, in words of this package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from threading import Event, Thread
from typing import Any, Final

from offaxis import errors
from offaxis.errors import OffaxisError

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
