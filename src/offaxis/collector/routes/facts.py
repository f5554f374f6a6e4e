"""Endpoints for what describes a release: its privacy card, and documents attached to it.

A publisher attaches *facts*: the curve of utility against ε and an audit, as printed by ``offaxis
recommend --json`` and ``offaxis audit --json``. They are read strictly and stored without anything
local to the publisher, such as file names. The dashboard shows them; nothing is computed from them,
and no device reads them. A *profile* is used to test for drift.
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
    authorize,
    body_of,
    hex_parameter,
    in_thread,
    json_response,
    plain_router,
    route_options,
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
"""Largest document of facts, in bytes."""

_SOURCES: Final = {
    "curve": "a curve is the output of offaxis recommend --epsilon 0.5:10 --json",
    "audit": "an audit is the output of offaxis audit --json",
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
    def _check_interval(self) -> Self:
        if not self.low <= self.score <= self.high:
            raise ValueError("the score must be within its interval")
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


class _NotMade(_Part):
    title: _Name
    reason: _Text


class _Budget(_Part):
    epsilon: Annotated[float, Field(gt=0, le=10_000)]
    goal: Literal["answers", "vectors", "means"]
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
    not_made: Annotated[list[_NotMade], Field(max_length=1000)] = []


class Curve(_Part):
    """The recommendation and the ceiling at every budget."""

    budgets: Annotated[list[_Budget], Field(min_length=2, max_length=100)]

    @model_validator(mode="after")
    def _check_budgets(self) -> Self:
        if len({budget.goal for budget in self.budgets}) > 1:
            raise ValueError("all budgets must have the same goal")
        if any(budget.epsilon >= after.epsilon for budget, after in pairwise(self.budgets)):
            raise ValueError("budgets must ascend")
        return self

    def check(self, release: Release) -> None:
        """Accept any release: a curve belongs to a task, and a task has many releases."""


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
    """The findings of an audit of a release."""

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
    def _check_violation(self) -> Self:
        if self.violation != any(finding.verdict == "violation" for finding in self.findings):
            raise ValueError("violation must agree with the findings")
        return self

    def check(self, release: Release) -> None:
        """Reject an audit of another release or of another guarantee."""
        guarantee = (decimal(release.guarantee.epsilon), decimal(release.guarantee.delta))
        if self.release != release.hash or (self.epsilon, self.delta) != guarantee:
            raise InvalidInput("this audit belongs to another release")


_MODELS: Final[dict[Kind, type[Curve | Audit]]] = {"curve": Curve, "audit": Audit}


def read_facts(kind: Kind, body: bytes, release: Release) -> str:
    """Read untrusted facts about a release; return the JSON to store, or raise InvalidInput."""
    try:
        document = _MODELS[kind].model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part)[:40] for part in first["loc"])
        raise InvalidInput(f"{_SOURCES[kind]}; {field or 'this'}: {first['msg']}") from None
    document.check(release)
    return document.model_dump_json()


# ---- Endpoints

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_PROBLEMS: Final = ("not-found", "invalid-release", "invalid-request", "too-large", "timeout")


@router.get(
    **route_options("/v1/releases/{hash}/card", {200: _JSON}, ("not-found", "invalid-request"))
)
async def card(request: Request) -> Response:
    """Return the privacy card, computed from the parameters, and the kinds of attached facts."""
    collector, _ = authorize(request)
    hash_ = hex_parameter(request, "hash").hex()

    def compute() -> dict[str, Any]:
        facts = card_facts(collector.catalogue.release(hash_))
        return facts | {"facts": collector.store.kinds_attached(hash_, KINDS)}

    return json_response(await in_thread(compute))


@router.put(
    **route_options(
        "/v1/releases/{hash}/profile",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_profile(request: Request) -> Response:
    """Attach a profile of the public vectors, for warnings of drift."""
    collector, _ = authorize(request, "admin")

    def read(body: bytes, release: Release) -> str:
        return Profile.from_json(body.decode("utf-8", "replace"), release).to_json()

    return await _attach(request, collector, "profile", LARGEST_PROFILE, read)


@router.put(
    **route_options(
        "/v1/releases/{hash}/facts/{kind}",
        {204: ""},
        _PROBLEMS,
        _JSON,
        roles="admin",
    )
)
async def attach_facts(request: Request) -> Response:
    """Attach a curve or an audit, replacing an older one."""
    collector, _ = authorize(request, "admin")
    kind = _kind(request)
    return await _attach(request, collector, kind, LARGEST_FACTS, partial(read_facts, kind))


async def _attach(
    request: Request,
    collector: Collector,
    kind: Attached,
    most: int,
    read: Callable[[bytes, Release], str],
) -> Response:
    """Validate the body with ``read`` and attach the result, replacing an older one."""
    hash_ = hex_parameter(request, "hash").hex()
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
    **route_options(
        "/v1/releases/{hash}/facts/{kind}", {200: _JSON}, ("not-found", "invalid-request")
    )
)
async def facts(request: Request) -> Response:
    """Return the attached curve or audit."""
    collector, _ = authorize(request)
    hash_, kind = hex_parameter(request, "hash").hex(), _kind(request)
    document = await in_thread(collector.store.attached, hash_, kind)
    if document is None:
        raise Problem("not-found", f"no {kind} is attached to this release")
    return Response(document, 200, {"cache-control": "no-store"}, "application/json")


def _kind(request: Request) -> Kind:
    for kind in KINDS:
        if request.path_params["kind"] == kind:
            return kind
    raise Problem("not-found", f"the kind of facts must be {' or '.join(KINDS)}")
