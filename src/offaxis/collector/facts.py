"""Facts that a publisher attaches to a release: the curve of utility against ε, and an audit.

They are what ``offaxis recommend --json`` and ``offaxis audit --json`` print, read strictly and
written again without what belongs to nobody else, such as the name of a file. People look at them;
nothing is computed from them, and no device reads them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from offaxis.errors import InvalidInput
from offaxis.formats.fields import Sha256
from offaxis.privacy.guarantee import decimal
from offaxis.release import Release

Kind = Literal["curve", "audit"]
KINDS: Final[tuple[Kind, ...]] = ("curve", "audit")

LARGEST_FACTS: Final = 1 << 20
"""Bytes."""

_HOW: Final = {
    "curve": "a curve is what offaxis recommend --epsilon 0.5:10 --json prints",
    "audit": "an audit is what offaxis audit --json prints",
}
_Name = Annotated[str, Field(max_length=200)]
_Text = Annotated[str, Field(max_length=2000)]
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Setting = bool | int | float | _Name | None


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _Utility(_Part):
    score: float
    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.score <= self.high:
            raise ValueError("a score lies within its interval")
        return self


class _Task(_Utility):
    ceiling: float | None


class _Tried(_Part):
    title: _Name
    score: float | None
    error: float | None
    answers: float | None
    fidelity: float | None
    frontier: bool


class _Budget(_Part):
    epsilon: Annotated[float, Field(gt=0, le=10_000)]
    goal: Literal["answers", "fidelity", "mean"]
    choice: _Name
    settings: Annotated[dict[_Name, _Setting], Field(max_length=100)]
    decoder: _Name
    expected: _Utility
    ceiling: float | None
    tasks: Annotated[dict[_Name, _Task], Field(max_length=100)]
    sentence: _Text
    cautions: Annotated[list[_Text], Field(max_length=100)]
    release: Sha256
    tried: Annotated[list[_Tried], Field(max_length=1000)]
    left_out: Annotated[list[_Name], Field(max_length=1000)]


class Curve(_Part):
    """What is recommended at every budget, beside the ceiling."""

    budgets: Annotated[list[_Budget], Field(min_length=2, max_length=100)]

    @model_validator(mode="after")
    def _one_line(self) -> Self:
        if len({one.goal for one in self.budgets}) > 1:
            raise ValueError("all budgets have one goal")
        if any(one.epsilon >= other.epsilon for one, other in pairwise(self.budgets)):
            raise ValueError("budgets ascend")
        return self

    def check(self, release: Release) -> None:
        """Take it as it is: a curve is of a task, and a task has many releases."""


class _Event(_Part):
    threshold: float | None
    speaks_for_first: bool
    hits: _Count
    trials: _Count
    other_hits: _Count
    other_trials: _Count


class _Finding(_Part):
    test: _Name
    group: Literal["white box", "black box", "bytes", "conduct"]
    tried: _Text
    verdict: Literal["nothing found", "violation", "side channel", "not run"]
    result: _Text
    reports: _Count
    resolution: float | None
    shift: float | None
    p_value: _Share | None
    alpha: _Share | None
    epsilon_at_least: float | None
    event: _Event | None


class Audit(_Part):
    """What was found by attacking a release."""

    release: Sha256
    randomizer: _Name
    epsilon: _Name
    delta: _Name
    violation: bool
    sentence: _Text
    caveat: _Text
    reports: _Count
    epsilon_at_least: float | None
    resolution: float | None
    reports_needed: _Count | None
    false_alarm: _Share
    auditor_seed: _Name
    seconds: Annotated[float, Field(ge=0)]
    versions: Annotated[dict[_Name, _Name], Field(max_length=100)]
    findings: Annotated[list[_Finding], Field(max_length=200)]
    curve: Annotated[
        list[Annotated[list[_Share], Field(min_length=2, max_length=2)]], Field(max_length=1000)
    ]
    html: str | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _is_told(self) -> Self:
        if self.violation != any(one.verdict == "violation" for one in self.findings):
            raise ValueError("a violation is one of the findings")
        return self

    def check(self, release: Release) -> None:
        """Refuse an audit of another release, or of another promise than this one makes."""
        promised = (decimal(release.guarantee.epsilon), decimal(release.guarantee.delta))
        if self.release != release.hash or (self.epsilon, self.delta) != promised:
            raise InvalidInput("this audit is of another release")


_MODELS: Final[dict[Kind, type[Curve | Audit]]] = {"curve": Curve, "audit": Audit}


def read_facts(kind: Kind, body: bytes, release: Release) -> str:
    """Read untrusted facts about a release; return the JSON to keep, or InvalidInput."""
    try:
        found = _MODELS[kind].model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        raise InvalidInput(f"{_HOW[kind]}; {where or 'this'}: {first['msg']}") from None
    found.check(release)
    return found.model_dump_json()
