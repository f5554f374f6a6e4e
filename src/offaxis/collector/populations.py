"""Populations of rounds: which weighted public vectors stand for the people who reported?

A publisher attaches public vectors to a release, its *support*. The collector then estimates the
population of every round of the release (:mod:`offaxis.learning.population`), of which questions
may be asked at any time.

Contract: a population is estimated in one thread of low priority, one at a time, from at most
:data:`MOST_REPORTS` reports, and stored. It is estimated again only when a withdrawal deleted it,
other public vectors were attached, or the round has more reports: any more if it is closed, a tenth
more while it is open. Before a round's reports are deleted its population is made final: if
withdrawals prevent that, it is estimated again once the round is marked, when none changes it any
more.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from sqlalchemy.exc import SQLAlchemyError

from offaxis.collector import monitoring
from offaxis.collector.problems import Problem, unavailable
from offaxis.collector.store import Deleted, Store, StoredRound
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput, OffaxisError
from offaxis.geometry.public import PublicIdentity
from offaxis.learning.likelihoods import (
    CELLS,
    MOST_VECTORS,
    Likelihoods,
    Support,
    check_release,
    support_of,
)
from offaxis.learning.population import Population, of_likelihoods
from offaxis.learning.population_fit import Fit, Scores
from offaxis.release import Release
from offaxis.vectors import Vectors

LARGEST_SUPPORT: Final = 64 << 20
"""Largest file of public vectors, in bytes."""

FEWEST_VECTORS: Final = 60
"""Two cells of at least 30 public vectors."""

MOST_REPORTS: Final = 100_000
"""A population is estimated from at most so many reports of a round, evenly spaced."""

GROWTH: Final = 1.1
"""While a round is open, its population is estimated again when its reports grew by this factor."""

_MOST_SUPPORTS: Final = 4
_MOST_SIZES: Final = 256
_ATTEMPTS: Final = 3
_PRIORITY: Final = 10
_FIT: Final = tuple(
    field.name for field in fields(Fit) if field.name not in ("support", "count", "scores")
)


# ---- What a publisher attaches


def reason_against(release: Release) -> str | None:
    """Return why reports of a release tell nothing about a population; None if they do."""
    if isinstance(release.encoder, AnswersEncoder):
        return "people report answers alone, which are counted without public vectors"
    try:
        check_release(release)
    except OffaxisError as error:
        return str(error)
    return None


def read_support(body: bytes, release: Release) -> Support:
    """Read public vectors, an untrusted ``.npy`` file, and divide them into cells.

    Raises
    ------
    InvalidInput
        If the file is damaged, has another dimension than the release, too few or too many vectors,
        or vectors that reports of the release cannot tell apart.
    """
    reason = reason_against(release)
    if reason is not None:
        raise InvalidInput(reason)
    vectors = _read_vectors(body)
    if vectors.shape[1] != release.input_dim:
        raise InvalidInput(
            f"these public vectors have {vectors.shape[1]} numbers, those of the release have "
            f"{release.input_dim}"
        )
    if not FEWEST_VECTORS <= len(vectors) <= MOST_VECTORS:
        raise InvalidInput(
            f"attach {FEWEST_VECTORS} to {MOST_VECTORS:,} public vectors, got {len(vectors):,}: "
            f"`offaxis collector attach` thins more of them out"
        )
    if not np.isfinite(vectors).all():
        raise InvalidInput("public vectors must be finite")
    return support_of(vectors, [release], CELLS)


def _read_vectors(body: bytes) -> Vectors:
    """Return the array of a ``.npy`` file, whose size must be as its header says."""
    stream = io.BytesIO(body)
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = read(stream)
    except Exception:
        # NumPy evaluates the header, and a hostile one may fail anywhere in that.
        raise InvalidInput("public vectors are a .npy file, as numpy.save writes it") from None
    rest = body[stream.tell() :]
    plain = all(type(length) is int for length in shape)
    if dtype.str not in ("<f4", "<f8") or fortran or len(shape) != 2 or not plain:
        raise InvalidInput("public vectors are a C-ordered array (n, m) of float32 or float64")
    if min(shape) < 1 or len(rest) != math.prod(shape) * dtype.itemsize:
        raise InvalidInput("the .npy file does not have the size that its header says")
    return np.frombuffer(rest, dtype).reshape(shape).astype(np.float64)


def write_support(support: Support) -> tuple[str, bytes]:
    """Return the hash and the stored form of public vectors in cells."""
    arrays = {"vectors": support.vectors, "parts": support.parts, "cells": support.cells}
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    buffer = io.BytesIO()
    identity = np.frombuffer(bytes.fromhex(support.identity.sha256), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, identity=identity, **arrays)
    return digest.hexdigest(), buffer.getvalue()


def _stored_support(content: bytes) -> Support:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        vectors, parts, cells = (arrays[name] for name in ("vectors", "parts", "cells"))
        sha256 = arrays["identity"].tobytes().hex()
    count, dim = vectors.shape
    return Support(vectors, parts, cells, PublicIdentity(count, dim, sha256))


# ---- Estimates, and how they are kept


class Populations:
    """The populations of rounds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._pending: dict[int, Future[Population]] = {}
        self._supports: dict[str, Support] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._thread = ThreadPoolExecutor(1, "offaxis-population", initializer=yield_to_uploads)

    def support(self, hash_: str) -> Support | None:
        """Return the public vectors that are attached to a release."""
        found = self._support(hash_)
        return None if found is None else found[1]

    def support_facts(self, hash_: str) -> dict[str, Any] | None:
        """Return the hash and the size of the public vectors that are attached to a release."""
        own = self._store.support_hash(hash_)
        if own is None:
            return None
        size = self._sizes.get(own)
        if size is None:
            found = self._support(hash_)
            if found is None:
                return None
            own, support = found
            size = len(support.vectors), len(support.shares)
            with self._lock:
                while len(self._sizes) >= _MOST_SIZES:
                    self._sizes.pop(next(iter(self._sizes)))
                self._sizes[own] = size
        return {"hash": own, "vectors": size[0], "cells": size[1]}

    def _support(self, hash_: str) -> tuple[str, Support] | None:
        # One at a time, so that many requests do not read the same public vectors.
        with self._loading:
            own = self._store.support_hash(hash_)
            known = self._supports.get(own) if own is not None else None
            if own is not None and known is not None:
                return own, known
            stored = self._store.support_content(hash_)
            if stored is None:
                return None
            support = _stored_support(stored[1])
            while len(self._supports) >= _MOST_SUPPORTS:
                self._supports.pop(next(iter(self._supports)))
            self._supports[stored[0]] = support
            return stored[0], support

    def of(self, stored: StoredRound, release: Release, now: datetime) -> Future[Population]:
        """Return the population of a round as soon as it is known; it may have to be estimated.

        The future fails with a :class:`Problem` if there is none.
        """
        known: Future[Population] = Future()
        try:
            population = self._known(stored, release, now)
        except Problem as problem:
            known.set_exception(problem)
            return known
        if population is not None:
            known.set_result(population)
            return known
        with self._lock:
            pending = self._pending.get(stored.key)
            if pending is not None:
                return pending
            pending = self._submit(self._estimate, stored, release, now)
            self._pending[stored.key] = pending
        # Outside the lock: it is called at once if the estimate is done already.
        pending.add_done_callback(lambda _: self._forget(stored.key))
        return pending

    def _forget(self, key: int) -> None:
        with self._lock:
            self._pending.pop(key, None)

    def finish(self, stored: StoredRound, release: Release, now: datetime) -> None:
        """Store the population of a closed round, if it has one, before reports are deleted.

        Deleting them was promised, so an estimate that fails does not prevent it. Withdrawals may
        prevent that it is stored; then :meth:`finish_marked` estimates it again.
        """
        self._finished(lambda: self.of(stored, release, now), "population failed")

    def finish_marked(self, stored: StoredRound, release: Release) -> None:
        """Store the population of a marked round whose rows are all there, unless it is stored.

        Its reports are those of the final moments: a withdrawal no longer changes either.
        """
        self._finished(
            lambda: self._submit(self._estimate_marked, stored, release), "population lost"
        )

    def _finished(self, begin: Callable[[], Future[Any]], failure: str) -> None:
        """Wait for an estimate before a deletion; raise if the deletion must wait as well."""
        try:
            begin().result()
        except CancelledError:
            raise _stopping() from None
        except Problem as problem:
            if problem.kind != "no-population":
                raise
        except SQLAlchemyError:
            raise  # nothing can be deleted now, either
        except Exception as error:
            monitoring.event(failure, logging.ERROR, **monitoring.error_facts(error))

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            return self._thread.submit(work, *arguments)
        except RuntimeError:
            raise _stopping() from None

    def close(self) -> None:
        """Finish the estimate that is running, and drop those that wait."""
        self._thread.shutdown(cancel_futures=True)

    def _known(self, stored: StoredRound, release: Release, now: datetime) -> Population | None:
        """Return the stored population if it is that of the present reports."""
        hash_, support = self._support_or_problem(release)
        own = self._stored(stored, hash_)
        if stored.deleted_at is not None:
            if own is None and self._store.final_count(stored.key) is not None:
                raise Problem(
                    "computing",
                    "the population is being made final; try again soon",
                    {"retry-after": "3"},
                )
            if own is None:
                raise Problem(
                    "no-population",
                    "the reports of this round were deleted, and no population of it was "
                    "estimated with the public vectors that are attached now",
                )
            return _read(own[2], support, release)
        if own is None:
            return None
        count, counted = self._store.count(stored.key), own[1]
        growing = stored.state(now) == "open" and counted <= count < GROWTH * counted
        return _read(own[2], support, release) if growing or count == counted else None

    def _stored(self, stored: StoredRound, hash_: str) -> tuple[str, int, bytes] | None:
        """Return the stored population with these public vectors, if this version can read it."""
        found = self._store.population(stored.key)
        return found if found and found[0] == hash_ and _is_readable(found[2]) else None

    def _support_or_problem(self, release: Release) -> tuple[str, Support]:
        reason = reason_against(release)
        if reason is not None:
            raise Problem("no-population", reason)
        found = self._support(release.hash)
        if found is None:
            raise Problem(
                "no-population",
                "no public vectors are attached to this release: a publisher attaches them with "
                "offaxis collector attach --support",
            )
        return found

    def _estimate(self, stored: StoredRound, release: Release, now: datetime) -> Population:
        for _ in range(_ATTEMPTS):
            known = self._known(stored, release, now)
            if known is not None:
                return known
            hash_, support = self._support_or_problem(release)
            withdrawn, count = self._store.withdrawn(stored.key), self._store.count(stored.key)
            if not count:
                raise Problem("no-population", "there are no reports yet")
            pages = self._store.by_arrival(stored.key)
            population = _population_of(release, support, count, pages)
            state = _written(population)
            if self._store.store_population(stored.key, hash_, count, state, withdrawn):
                break
        return population

    def _estimate_marked(self, stored: StoredRound, release: Release) -> None:
        count = self._store.final_count(stored.key)
        if not count:
            return  # there were no reports, or another process deletes them already
        hash_, support = self._support_or_problem(release)
        known = self._stored(stored, hash_)
        if known is not None and known[1] == count:
            return
        pages = self._store.by_arrival(stored.key, marked=True)
        population = _population_of(release, support, count, pages)
        self._store.store_population(stored.key, hash_, count, _written(population), None)


def _stopping() -> Problem:
    return unavailable("the collector is stopping")


def _population_of(
    release: Release, support: Support, count: int, pages: Iterator[list[bytes]]
) -> Population:
    """Return the population of about ``count`` reports, or raise a problem if there is none."""
    step = max(1, math.ceil(count / MOST_REPORTS))
    likelihoods = Likelihoods(support)
    try:
        likelihoods.add(release, _every(step, pages))
        return of_likelihoods(likelihoods)
    except (InvalidInput, Deleted) as error:
        raise Problem("no-population", str(error)) from None


def yield_to_uploads() -> None:
    """Let uploads go first; on Linux a priority is that of a thread and of those it starts."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)


def _every(step: int, pages: Iterator[list[bytes]]) -> Iterator[bytes]:
    """Yield every ``step``-th report."""
    seen = 0
    for page in pages:
        yield from page[-seen % step :: step]
        seen += len(page)


def _written(population: Population) -> bytes:
    fit = population.fit
    (scores,) = fit.scores
    arrays: dict[str, Any] = {name: np.asarray(getattr(fit, name)) for name in _FIT}
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        count=np.asarray(fit.count),
        score_mean=scores.mean,
        score_covariance=scores.covariance,
        **arrays,
    )
    return buffer.getvalue()


def _is_readable(state: bytes) -> bool:
    """Whether a stored population has what this version stores."""
    try:
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            return set(arrays.files) == {"count", "score_mean", "score_covariance", *_FIT}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        return False


def _read(state: bytes, support: Support, release: Release) -> Population:
    with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
        values: dict[str, Any] = {name: arrays[name] for name in _FIT}
        count = int(arrays["count"])
        moments = arrays["score_mean"], arrays["score_covariance"]
    values = {name: value if value.ndim else float(value) for name, value in values.items()}
    scores = (Scores(release.hash, count, *moments),)
    fit = Fit(support=support, count=count, scores=scores, **values)
    return Population(fit, (float(release.guarantee.epsilon),))
