"""Whether the rows of a DataFrame come out the same when they are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from offaxis.engines.spark.fold import DataFrame
from offaxis.errors import InvalidInput

_UNSTEADY: Final = frozenset(
    {"Aggregate", "Deduplicate", "Distinct", "GlobalLimit", "LocalLimit", "Offset", "Sample"}
    | {"Tail", "Window"}
)
"""What may give other rows, or sums rounded otherwise, when it is computed again."""


def check_steady(frame: DataFrame) -> None:
    """Refuse a plan that may give a record another vector when a task is tried again."""
    plan = frame._jdf.queryExecution().analyzed()
    unsteady = sorted(_UNSTEADY & set(_steps(plan)))
    if plan.deterministic() and not unsteady:
        return
    why = f"it has {', '.join(unsteady)}" if unsteady else "it has random columns"
    raise InvalidInput(
        f"these rows may come out otherwise when they are computed again ({why}), and a record "
        f"would be released twice: write them to Parquet first and privatize what was written"
    )


def _steps(plan: Any) -> Iterator[str]:
    yield plan.nodeName()
    children = plan.children()
    for at in range(children.size()):
        yield from _steps(children.apply(at))
