"""The work of a collector: decode reports, and average them by group."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.groups import task
from benchmarks.harness import OURS, Contender, Effort, Race
from offaxis.release import Release

_ROWS: Final = 10_000
_ALONE: Final = 200
"""Reports that are decoded one at a time."""

_DRAWN: Final = {"laplace": _ROWS, "privunit2": 1_000, "response": _ROWS}
"""Number of reports that are drawn, by mechanism; they are repeated to fill the rows."""


def measure(effort: Effort) -> Iterator[Race]:
    """Race decoding in bulk against one report at a time."""
    for name in _DRAWN:
        release, reports = task.release(name), _reports(name)
        alone = reports[:_ALONE]
        contenders = {
            OURS: Contender(partial(release.decode, reports), len(reports)),
            "one report at a time": Contender(partial(_one_by_one, release, alone), len(alone)),
        }
        yield effort.race("decode", f"{name}, m = 64", "reports/s", contenders)
    release, reports = task.release("laplace"), _reports("laplace")
    groups = [i % 10 for i in range(len(reports))]
    aggregate = partial(release.aggregate, reports, groups=groups)
    contenders = {
        OURS: Contender(aggregate, len(reports)),
        "decoding alone": Contender(partial(release.decode, reports), len(reports)),
    }
    yield effort.race("decode", "laplace, means of ten groups", "reports/s", contenders)


def _reports(name: str) -> list[bytes]:
    reports = task.release(name).privatize(task.vectors(_DRAWN[name]))
    assert isinstance(reports, list)
    return reports * (_ROWS // len(reports))


def _one_by_one(release: Release, reports: list[bytes]) -> None:
    for report in reports:
        release.decode(report)
