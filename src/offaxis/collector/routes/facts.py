"""Facts that a publisher attaches to a release: the curve of utility against ε, and an audit.

They are what ``offaxis recommend --json`` and ``offaxis audit --json`` print, read strictly and
written again without what belongs to nobody else, such as the name of a file. People look at them;
nothing is computed from them, and no device reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import Response

from offaxis.card import card_facts
from offaxis.collector.access import LARGEST_PROFILE
from offaxis.collector.drift import Profile
from offaxis.collector.problems import Problem
from offaxis.collector.routes.routing import (
    admitted,
    body_of,
    described,
    hexadecimal,
    in_thread,
    json_answer,
    plain_router,
)
from offaxis.collector.service import Collector
from offaxis.collector.store import Attached
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import Sha256
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


class _Candidate(_Part):
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
    summary: _Text
    cautions: Annotated[list[_Text], Field(max_length=100)]
    release: Sha256
    candidates: Annotated[list[_Candidate], Field(max_length=1000)]
    screened_out: Annotated[list[_Name], Field(max_length=1000)]


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
    summary: _Text
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


# ----------------------------------------------------------------------------
# What people want to know of a release: its privacy card, its curve and its audit.

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_PROBLEMS: Final = ("not-found", "invalid-release", "invalid-request", "too-large", "timeout")


@router.get(**described("/v1/releases/{hash}/card", {200: _JSON}, ("not-found", "invalid-request")))
async def card(request: Request) -> Response:
    """Return the privacy card, computed from the parameters, and which facts are attached."""
    collector, _ = admitted(request)
    hash_ = hexadecimal(request, "hash").hex()

    def found() -> dict[str, Any]:
        facts = card_facts(collector.catalogue.release(hash_))
        return facts | {"facts": collector.store.kinds_attached(hash_, KINDS)}

    return json_answer(await in_thread(found))


@router.put(
    **described(
        "/v1/releases/{hash}/profile",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_profile(request: Request) -> Response:
    """Attach what reports of public vectors look like, for warnings of drift."""
    collector, _ = admitted(request, "admin")

    def read(body: bytes, release: Release) -> str:
        return Profile.from_json(body.decode("utf-8", "replace"), release).to_json()

    return await _attach(request, collector, "profile", LARGEST_PROFILE, read)


@router.put(
    **described(
        "/v1/releases/{hash}/facts/{kind}",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_facts(request: Request) -> Response:
    """Attach a curve or an audit, in place of an older one."""
    collector, _ = admitted(request, "admin")
    kind = _kind(request)
    return await _attach(request, collector, kind, LARGEST_FACTS, partial(read_facts, kind))


async def _attach(
    request: Request,
    collector: Collector,
    kind: Attached,
    most: int,
    read: Callable[[bytes, Release], str],
) -> Response:
    """Attach what ``read`` makes of the body and the release, in place of an older one."""
    hash_ = hexadecimal(request, "hash").hex()
    body = await body_of(request, most)

    def store() -> None:
        text = read(body, collector.catalogue.release(hash_))
        collector.store.attach(hash_, kind, text)

    try:
        await in_thread(store)
    except InvalidInput as error:
        raise Problem("invalid-release", str(error)) from None
    return Response(status_code=204)


@router.get(
    **described("/v1/releases/{hash}/facts/{kind}", {200: _JSON}, ("not-found", "invalid-request"))
)
async def facts(request: Request) -> Response:
    """Return the curve or the audit as it was attached."""
    collector, _ = admitted(request)
    hash_, kind = hexadecimal(request, "hash").hex(), _kind(request)
    found = await in_thread(collector.store.attached, hash_, kind)
    if found is None:
        raise Problem("not-found", f"no {kind} is attached to this release")
    return Response(found, 200, {"cache-control": "no-store"}, "application/json")


def _kind(request: Request) -> Kind:
    for kind in KINDS:
        if request.path_params["kind"] == kind:
            return kind
    raise Problem("not-found", f"facts are {' or '.join(KINDS)}")
