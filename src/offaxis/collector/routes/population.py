"""Endpoints for populations: public vectors and questions of a release, answers by round, drift."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from offaxis.collector.changes import (
    FEWEST_COMPARED,
    MOST_COMPARED,
    MOST_SYMBOLS,
    Change,
    answered,
    change_facts,
    compare_crowds,
    compare_shares,
    no_change_facts,
)
from offaxis.collector.drift import Profile, drift_facts, level_of
from offaxis.collector.means import Totals, shares_of
from offaxis.collector.models import (
    LARGEST_MODEL,
    MOST_QUESTIONS,
    attached_model,
    read_model,
)
from offaxis.collector.populations import (
    LARGEST_SUPPORT,
    read_support,
    reason_against,
    write_support,
)
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.questions import (
    BINS,
    MOST_BINS,
    Question,
    answer,
    find,
    population_facts,
    questions_of,
    reported,
)
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
from offaxis.collector.store import StoredRound
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.formats.documents import NAME
from offaxis.learning.likelihoods import Support
from offaxis.privacy.guarantee import decimal
from offaxis.release import Release
from offaxis.vectors import Vectors

router = plain_router()
_JSON: Final[tuple[str, dict[str, Any]]] = ("application/json", {"type": "object"})
_BYTES: Final = "application/octet-stream"
_ATTACH: Final = ("not-found", "invalid-release", "invalid-request", "too-large", "timeout")

_NAME: Final = re.compile(NAME)

PATIENCE: Final = 15.0
"""Seconds that a request waits for an estimate or an answer before it is told to come back."""

_RETRY: Final = {"retry-after": "3"}
_COMPARISONS: Final = 2

_Result = TypeVar("_Result")


# ---- What a publisher attaches


@router.put(
    **route_options("/v1/releases/{hash}/support", {204: ""}, _ATTACH, _BYTES, roles="admin")
)
async def attach_support(request: Request) -> Response:
    """Attach public vectors, whose weights explain the reports of every round."""
    collector, _ = authorize(request, "admin")
    hash_ = hex_parameter(request, "hash").hex()
    body = await body_of(request, LARGEST_SUPPORT)

    def store() -> None:
        support = read_support(body, collector.catalogue.release(hash_))
        collector.store.attach_support(hash_, *write_support(support))

    return await _attached(asyncio.to_thread(store))


@router.put(
    **route_options(
        "/v1/releases/{hash}/questions/{question}",
        {204: ""},
        (*_ATTACH, "conflict"),
        _BYTES,
        roles="admin",
    )
)
async def attach_question(request: Request) -> Response:
    """Attach a model as a question, replacing an earlier one of this name.

    It is tried on the public vectors, if there are any.
    """
    collector, _ = authorize(request, "admin")
    hash_, name = hex_parameter(request, "hash").hex(), _question_name(request)
    body = await body_of(request, LARGEST_MODEL)

    def store() -> None:
        layers, content = read_model(body, collector.catalogue.release(hash_), name)
        model = attached_model(layers, content)
        support = collector.populations.support(hash_)
        if support is not None:
            collector.evaluations.check(model, layers, support)
        if not collector.store.attach_question(hash_, model, content, MOST_QUESTIONS):
            raise Problem(
                "conflict", f"a release has at most {MOST_QUESTIONS} questions: remove one first"
            )

    return await _attached(asyncio.wrap_future(collector.evaluations.submit(store)))


async def _attached(stored: Awaitable[None]) -> Response:
    try:
        await stored
    except InvalidInput as error:
        raise Problem("invalid-release", str(error)) from None
    return Response(status_code=204)


@router.delete(
    **route_options(
        "/v1/releases/{hash}/questions/{question}",
        {204: ""},
        ("not-found", "invalid-request"),
        roles="admin",
    )
)
async def remove_question(request: Request) -> Response:
    """Remove a question."""
    collector, _ = authorize(request, "admin")
    hash_, name = hex_parameter(request, "hash").hex(), _question_name(request)
    if not await in_thread(collector.store.remove_question, hash_, name):
        raise Problem("not-found", "no such question")
    return Response(status_code=204)


def _question_name(request: Request) -> str:
    name: str = request.path_params["question"]
    if not _NAME.fullmatch(name):
        raise Problem("invalid-request", f"the name of a question must match {NAME}")
    return name


@router.get(
    **route_options("/v1/releases/{hash}/questions", {200: _JSON}, ("not-found", "invalid-request"))
)
async def questions(request: Request) -> Response:
    """Return what can be asked about rounds of a release, and from which public vectors."""
    collector, _ = authorize(request)
    hash_ = hex_parameter(request, "hash").hex()

    def compute() -> dict[str, Any]:
        release = collector.catalogue.release(hash_)
        alone = isinstance(release.encoder, AnswersEncoder)
        reason = None if alone else reason_against(release)
        support = None if alone or reason else collector.populations.support_facts(hash_)
        listed = {} if reason else questions_of(release, collector.store.questions(hash_))
        return {
            "release": hash_,
            "reason": reason,
            "answers_alone": alone,
            "support": support,
            "questions": [question.facts() for question in listed.values()],
        }

    return json_response(await in_thread(compute))


# ---- What analysts ask


_options = route_options(
    "/v1/rounds/{name}/population",
    {200: _JSON},
    ("not-found", "no-population", "invalid-request", "computing"),
    roles="analyst",
)
_options["openapi_extra"]["parameters"] += [
    {"name": "question", "in": "query", "schema": {"type": "string", "maxLength": 200}},
    {"name": "output", "in": "query", "schema": {"type": "integer", "minimum": 0}},
    {
        "name": "bins",
        "in": "query",
        "schema": {"type": "integer", "minimum": 2, "maximum": MOST_BINS},
    },
]


@router.get(**_options)
async def population(request: Request) -> Response:
    """Return what the people of a round would answer, or how well public vectors explain them."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])
    name = request.query_params.get("question")
    output = _number(request, "output", 0, 2**31 - 1)
    bins = _number(request, "bins", 2, MOST_BINS) or BINS
    release, question = await in_thread(_asked, collector, stored, name, output)
    facts = {
        "round": stored.document.name,
        "study": stored.document.study,
        "number": stored.document.number,
        "release": release.hash,
        "epsilon": decimal(release.guarantee.epsilon),
        "question": name,
        "output": output,
    }
    if isinstance(release.encoder, AnswersEncoder):

        def count() -> dict[str, Any]:
            totals = collector.follower.follow(stored.key, release)
            stored_reports = {"stored": totals.observed.count}
            return facts | stored_reports | _or_problem(reported, release, totals, name)

        return json_response(await in_thread(count))
    future = await in_thread(collector.populations.of, stored, release, collector.now())
    await _settled([future], _ESTIMATING)
    found = future.result()

    def ask(question: Question) -> dict[str, Any]:
        outputs = _outputs(collector, release, question, found.support)
        return answer(found, question, outputs, output, bins)

    def compute() -> dict[str, Any]:
        own = _or_problem(ask, question) if question else {}
        reports = found.fit.count if stored.deleted_at else collector.store.count(stored.key)
        return {**facts, "stored": reports, **population_facts(found), **own}

    return json_response(await _computed(collector, compute))


def _outputs(
    collector: Collector, release: Release, question: Question, support: Support
) -> Vectors:
    """Return what a question gives for public vectors."""
    if question.model is None:
        return support.vectors
    return collector.evaluations.outputs(release.hash, question.model, support)


def _number(request: Request, name: str, least: int, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise Problem("invalid-request", f"{name} must be an integer from {least} to {most}")
    return int(text)


def _asked(
    collector: Collector, stored: StoredRound, name: str | None, output: int | None
) -> tuple[Release, Question | None]:
    """Return a round's release, and the question about it."""
    release = collector.catalogue.release(stored.document.release)
    alone = isinstance(release.encoder, AnswersEncoder)
    reason = None if alone else reason_against(release)
    if reason is not None:
        raise Problem("no-population", reason)
    if name is None:
        return release, None
    try:
        question = find(questions_of(release, collector.store.questions(release.hash)), name)
        if question.answers is None or output is not None:
            question.place(output)
        if alone and output is not None:
            raise InvalidInput("an answer that people reported has no outputs to choose from")
    except InvalidInput as error:
        raise Problem("invalid-request", str(error)) from None
    return release, question


def _or_problem(compute: Any, *arguments: Any) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = compute(*arguments)
    except InvalidInput as error:
        raise Problem("no-population", str(error)) from None
    return facts


_ESTIMATING: Final = "the population is being estimated; try again soon"


async def _computed(collector: Collector, compute: Callable[[], _Result]) -> _Result:
    """Return what a thread for questions computes, or raise a problem if it takes too long."""
    future = collector.evaluations.submit(compute)
    try:
        await _settled([future], "the answer is being computed; try again soon")
    finally:
        # Nobody waits for it any more; what is running goes on, and its outputs are kept.
        future.cancel()
    return future.result()


async def _settled(futures: Sequence[Future[Any]], reason: str) -> None:
    """Wait for results, or raise a problem if they take too long or the collector stops."""
    waiting = [asyncio.wrap_future(future) for future in futures]
    for task in waiting:
        # An error is raised by the future itself; nobody asks this copy of it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    _, late = await asyncio.wait(waiting, timeout=PATIENCE)
    if late:
        raise Problem("computing", reason, _RETRY)
    if any(future.cancelled() for future in futures):
        raise unavailable("the collector is stopping")


# ---- Drift


@router.get(
    **route_options(
        "/v1/rounds/{name}/drift", {200: _JSON}, ("not-found", "computing"), roles="analyst"
    )
)
async def drift(request: Request) -> Response:
    """Return whether the reports fit the public vectors, and whether the crowd has changed."""
    collector, _ = authorize(request, "analyst")
    stored = collector.catalogue.round(request.path_params["name"])

    def read() -> tuple[Release, Profile | None, Totals]:
        release = collector.catalogue.release(stored.document.release)
        text = collector.store.attached(release.hash, "profile")
        profile = None if text is None else Profile.from_json(text, release)
        return release, profile, collector.follower.follow(stored.key, release)

    release, profile, totals = await in_thread(read)
    changes = await _changes(collector, stored, release, totals)
    level = level_of(profile, changed=True)
    change = change_facts(changes, level) if isinstance(changes, list) else changes
    facts = await in_thread(drift_facts, release, profile, totals.observed, change)
    collector.metrics.drift.labels(stored.document.name).set(facts["warning"])
    return json_response({"round": stored.document.name, **facts})


async def _changes(
    collector: Collector, stored: StoredRound, release: Release, totals: Totals
) -> list[Change] | dict[str, Any] | None:
    """Return how the crowd differs from earlier rounds, why that is unknown, or None."""
    alone = isinstance(release.encoder, AnswersEncoder)
    if alone and release.encoder.output_dim > MOST_SYMBOLS:
        return None
    if not alone and (
        reason_against(release) is not None
        or await in_thread(collector.store.support_hash, release.hash) is None
    ):
        return None
    count = totals.observed.count
    if count < FEWEST_COMPARED:
        return no_change_facts(
            f"There are too few reports to compare with earlier rounds: {count:,} of "
            f"{FEWEST_COMPARED:,}."
        )
    earlier = await in_thread(_large_earlier, collector, stored, release)
    if not earlier:
        return no_change_facts(
            f"No earlier round of this study and release has {FEWEST_COMPARED:,} reports to "
            f"compare with."
        )
    if alone:
        names = release.symbol_names or ()
        own = shares_of(release, totals.observed)
        return await in_thread(
            lambda: [
                compare_shares(own, name, shares_of(release, part.observed), names)
                for name, _, part in earlier
            ]
        )
    rounds = {name: other for name, other, _ in earlier}
    for _ in range(_COMPARISONS):
        try:
            return await _crowds_changed(collector, stored, release, rounds)
        except InvalidInput:
            pass  # other public vectors were attached between two estimates
    raise Problem("computing", "the public vectors have changed; try again soon", _RETRY)


async def _crowds_changed(
    collector: Collector, stored: StoredRound, release: Release, earlier: dict[str, StoredRound]
) -> list[Change] | dict[str, Any]:
    """Return how the population of a round differs from earlier ones, or why that is unknown.

    Raises
    ------
    InvalidInput
        If they are of different public vectors.
    """
    now = collector.now()
    rounds = [stored, *earlier.values()]
    futures = [await in_thread(collector.populations.of, other, release, now) for other in rounds]
    await _settled(futures, _ESTIMATING)
    problems = [future.exception() for future in futures]
    if problems[0] is not None or all(problems[1:]):
        return no_change_facts(f"Rounds cannot be compared: {problems[0] or problems[1]}.")

    def compare() -> list[Change]:
        own = futures[0].result()
        asked = questions_of(release, collector.store.questions(release.hash))
        models, missing = answered(
            asked, lambda question: _outputs(collector, release, question, own.support)
        )
        return [
            compare_crowds(own, name, future.result(), models, missing)
            for name, future in zip(earlier, futures[1:], strict=True)
            if future.exception() is None
        ]

    return await _computed(collector, compare)


def _large_earlier(
    collector: Collector, stored: StoredRound, release: Release
) -> list[tuple[str, StoredRound, Totals]]:
    """Return the newest earlier rounds with enough reports to be compared, the newest first."""
    own, found = stored.document, []
    rounds = [
        other
        for other in collector.catalogue.rounds.values()
        if (other.document.study, other.document.release) == (own.study, own.release)
        and other.document.number < own.number
    ]
    for other in sorted(rounds, key=lambda other: other.document.number, reverse=True):
        totals = collector.follower.follow(other.key, release)
        if totals.observed.count >= FEWEST_COMPARED:
            found.append((other.document.name, other, totals))
        if len(found) == MOST_COMPARED:
            break
    return found
