"""The selection engine: candidates are fitted, compared and estimated on public vectors.

Contract: the public vectors are split at random, with a public seed, into three parts. Candidates
are fitted on the first part. All are scored on a few vectors of the second part; the finalists, the
best for the goal and for the other goals, are scored again on all of it, and only these scores are
reported. The third part is held out: the utility of the chosen release is estimated there, so that
the estimate is not optimistic. The simulated noise is the same for all candidates and budgets.

``recommend``, ``tune`` and ``best_decoder`` (:mod:`offaxis.evaluation.recommend`) differ only in
their candidates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.evaluation.candidates import NOT_POSSIBLE, Candidate
from offaxis.evaluation.utility import MeasuredTasks, Scorer, Scores, Utility
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import evenly, places
from offaxis.release import Release
from offaxis.vectors import Vectors

Progress = Callable[[str, int, int], None]
"""Called with the title of a candidate, the number of candidates done, and their total."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield a progress callback; by default one line on standard error, if that is a terminal."""
    if progress is not None or not sys.stderr.isatty():
        yield progress or (lambda title, done, total: None)
        return

    def show(title: str, done: int, total: int) -> None:
        line = f"candidate {done + 1} of {total}: {title}"
        sys.stderr.write(f"\r\x1b[K{line[: get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


MOST_HELD_OUT: Final = 3000
"""Largest size of a held-out part: the vectors that are simulated for every finalist."""

LEAST_HELD_OUT: Final = 10
"""Smallest size of a held-out part: fewer vectors cannot compare releases."""

SHARE: Final = 0.2
"""Share of the public vectors in each held-out part."""

_ROWS: Final = 8192


def sample(public: Any, most: int) -> tuple[Vectors, Vectors]:
    """Return at most ``most`` evenly spaced public vectors, and at most as many of the others.

    Both are arrays of shape (n, m); the second is empty if the first has all vectors.
    """
    source = PublicVectors(public)
    chosen = evenly(source, most)
    count = sum(len(batch) for batch in source.batches(_ROWS))
    if count <= most:
        return chosen, chosen[:0]
    unchosen = np.ones(count, dtype=bool)
    unchosen[places(count, most)] = False

    def others() -> Iterator[Vectors]:
        seen = 0
        for batch in source.batches(_ROWS):
            yield batch[unchosen[seen : seen + len(batch)]]
            seen += len(batch)

    return chosen, evenly(others, most)


class Split:
    """Public vectors, split at random; the split depends on their order, count and the seed.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    seed : int
        Public seed.
    held_out : int
        Number of held-out parts.
    share, most, least
        Share of the vectors in each held-out part, and its largest and smallest size.

    Raises
    ------
    InvalidInput
        If a held-out part would be smaller than ``least``.
    """

    def __init__(
        self,
        public: Any,
        seed: int,
        *,
        held_out: int = 2,
        share: float = SHARE,
        most: int = MOST_HELD_OUT,
        least: int = LEAST_HELD_OUT,
    ) -> None:
        self._source = PublicVectors(public)
        count = sum(len(batch) for batch in self._source.batches(_ROWS))
        held = min(most, int(share * count))
        if held < least:
            raise InvalidInput(
                f"public vectors are split into {held_out + 1} parts, to fit and to compare, which "
                f"needs at least {math.ceil(least / share)} of them, got {count}"
            )
        self._part: NDArray[np.int8] = np.zeros(count, dtype=np.int8)
        order = np.random.default_rng([seed, 0]).permutation(count)
        for index in range(held_out):
            self._part[order[index * held : (index + 1) * held]] = index + 1

    def part(self, index: int) -> Vectors:
        """Return the part to fit to (0) or a held-out part (1, 2 …) as one array, (n, m)."""
        rows, seen = [], 0
        for batch in self._source.batches(_ROWS):
            rows.append(batch[self._part[seen : seen + len(batch)] == index])
            seen += len(batch)
        return np.concatenate(rows)


# ---- Comparison of candidates

_SCREENED: Final = 300
"""Number of vectors that all candidates are scored on."""

_SCREENED_FOR_MEANS: Final = 1000
"""The same for means, if there is a sketch; otherwise all vectors."""

_FINALISTS: Final = 12
"""Number of finalists for the goal."""

_OTHERS: Final = 4
"""Number of finalists for each of the goals "answers" and "vectors", and among vectors."""

_REACH: Final = 0.1
"""A decoder is trained only if the best release of a vector scores this close to the best one."""


@dataclass(frozen=True, eq=False)
class ScoredCandidate:
    """A candidate with its scores on the vectors of the comparison.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> best, *others = offaxis.recommend(task, public, epsilon=2).candidates
    >>> all(best.utility.score >= other.utility.score for other in others)
    True
    """

    candidate: Candidate
    scores: Scores

    @property
    def utility(self) -> Utility:
        """The utility for the goal, over all tasks."""
        return self.scores.utility


@dataclass(frozen=True)
class NotMade:
    """A candidate that could not be made, with the reason and, where one is known, the fix."""

    title: str
    reason: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """The comparison of all candidates at one budget.

    Attributes
    ----------
    finalists : tuple of ScoredCandidate
        Best first.
    releases : tuple of Release
        The releases of the finalists as they were compared, in the same order.
    screened_out : tuple of Candidate
        Candidates that are not finalists.
    not_made : tuple of NotMade
        Candidates that could not be made, with the reason.
    """

    finalists: tuple[ScoredCandidate, ...]
    releases: tuple[Release, ...]
    screened_out: tuple[Candidate, ...]
    not_made: tuple[NotMade, ...]


class Selection:
    """Compares candidates at any budget; maps that do not depend on the budget are fitted once.

    Parameters
    ----------
    measured : MeasuredTasks
        The tasks on the vectors that releases are fitted to.
    sketch : MeasuredTasks or None
        The tasks on a few of these vectors: all candidates are fitted there first, and only
        finalists to the rest.
    candidates : sequence of Candidate
    compare_on, estimate_on : (n, m) arrays
        The second and the third part of the public vectors.
    scorer : Scorer
    seed : int
        Public seed of the simulated noise.
    """

    def __init__(
        self,
        measured: MeasuredTasks,
        sketch: MeasuredTasks | None,
        candidates: Sequence[Candidate],
        compare_on: Vectors,
        estimate_on: Vectors,
        scorer: Scorer,
        seed: int,
    ) -> None:
        self._measured, self._candidates, self._seed = measured, candidates, seed
        self._sketch = sketch
        self._compare_on, self._estimate_on = compare_on, estimate_on
        self._scorer = scorer
        self._bases: dict[Hashable, Release] = {}

    @property
    def compared_on(self) -> int:
        """Number of vectors that finalists are scored on."""
        return len(self._compare_on)

    @property
    def measured_on(self) -> int:
        """Number of held-out vectors, on which the utility of the best one is estimated."""
        return len(self._estimate_on)

    def compare(
        self, epsilon: Any, ceiling: float | None, progress: Progress | None = None
    ) -> Comparison:
        """Score all candidates at a budget.

        Parameters
        ----------
        epsilon : number
        ceiling : float or None
            No decoder is trained if the best candidate reaches the ceiling, or if it is None.
        """
        screen_on = self._measured if self._sketch is None else self._sketch
        fitted, not_made = self._fit_all(self._candidates, screen_on, epsilon, progress)
        if all(candidate.is_silent for candidate, _ in fitted):
            reasons = "; ".join(sorted({failure.reason for failure in not_made}))
            raise InvalidInput(f"no release could be fitted to these public vectors: {reasons}")
        vectors = self._compare_on
        few = self._few(vectors)
        screened = [
            (candidate, release, self._scorer(release, few, self._seed))
            for candidate, release in fitted
        ]
        kept = range(len(screened)) if len(few) == len(vectors) else _finalists(screened)
        if self._sketch is not None:
            chosen = [screened[index][0] for index in kept]
            finalists, _ = self._fit_all(chosen, self._measured, epsilon, progress)
        else:
            finalists = [fitted[index] for index in kept]
        scored = []
        for index, (candidate, release) in zip(kept, finalists, strict=False):
            scores = screened[index][2]
            if self._sketch is not None or len(few) < len(vectors):
                scores = self._scorer(release, vectors, self._seed)
            scored.append((ScoredCandidate(candidate, scores), release))
        scored.sort(key=_by_score)
        scored = sorted([*scored, *self._trained(scored, ceiling)], key=_by_score)
        remaining = set(range(len(fitted))) - set(kept)
        return Comparison(
            tuple(finalist for finalist, _ in scored),
            tuple(release for _, release in scored),
            tuple(fitted[index][0] for index in sorted(remaining)),
            tuple(not_made),
        )

    def _few(self, vectors: Vectors) -> Vectors:
        """Return the vectors that all candidates are scored on."""
        if self._scorer.goal == "means":
            return vectors if self._sketch is None else vectors[:_SCREENED_FOR_MEANS]
        return vectors[:_SCREENED]

    def estimate(self, release: Release) -> Scores:
        """Return the scores of a release on the held-out vectors."""
        return self._scorer(release, self._estimate_on, self._seed + 1)

    def _fit_all(
        self,
        candidates: Sequence[Candidate],
        measured: MeasuredTasks,
        epsilon: Any,
        progress: Progress | None,
    ) -> tuple[list[tuple[Candidate, Release]], list[NotMade]]:
        fitted, not_made = [], []
        bases: dict[Hashable, Release | str] = {}
        for done, candidate in enumerate(candidates):
            if progress:
                progress(candidate.title, done, len(candidates))
            key = candidate.base_key
            if key not in bases:
                bases[key] = self._fit_base(candidate, measured, epsilon)
            base = bases[key]
            try:
                if isinstance(base, str):
                    not_made.append(NotMade(candidate.title, base))
                else:
                    fitted.append((candidate, candidate.add_decoder(base, measured)))
            except NOT_POSSIBLE as error:
                not_made.append(NotMade(candidate.title, str(error)))
        return _without_duplicates(fitted), not_made

    def _fit_base(
        self, candidate: Candidate, measured: MeasuredTasks, epsilon: Any
    ) -> Release | str:
        """Fit a candidate, or reuse its maps from another budget; or return why it cannot be."""
        key = id(measured), candidate.base_key
        previous = self._bases.get(key)
        release = None if previous is None else candidate.at_budget(previous, epsilon)
        if release is None:
            try:
                release = candidate.fit_base(measured, epsilon)
            except NOT_POSSIBLE as error:
                return str(error)
        self._bases[key] = release
        return release

    def _trained(
        self, scored: Sequence[tuple[ScoredCandidate, Release]], ceiling: float | None
    ) -> Iterator[tuple[ScoredCandidate, Release]]:
        """Yield the best release of a vector with a trained decoder, if that could win."""
        if ceiling is None or self._scorer.goal == "means" or find_spec("torch") is None:
            return
        best = scored[0][0].utility
        silent = max((s.utility.score for s, _ in scored if s.candidate.is_silent), default=0.0)
        if best.interval()[1] >= ceiling or best.interval()[0] <= silent:
            return  # nothing is left to gain, or reports carry too little to learn from
        vectors = (pair for pair in scored if pair[0].candidate.is_vector)
        finalist, release = next(vectors, (None, None))
        if finalist is None or release is None or best.score - finalist.utility.score > _REACH:
            return
        candidate = finalist.candidate.with_decoding("noise-aware")
        try:
            trained = candidate.add_decoder(release, self._measured)
        except NOT_POSSIBLE:
            return
        scores = self._scorer(trained, self._compare_on, self._seed)
        yield ScoredCandidate(candidate, scores), trained


def _without_duplicates(
    fitted: Sequence[tuple[Candidate, Release]],
) -> list[tuple[Candidate, Release]]:
    """Drop codebooks with fewer cells than requested if one with that many is already there."""
    kept, codebooks = [], set[Hashable]()
    for candidate, release in fitted:
        size, cells = candidate.settings.get("size"), release.encoder.output_dim
        codebook = candidate.settings.get("mechanism"), candidate.decoding, cells
        if size is None or cells == size or codebook not in codebooks:
            kept.append((candidate, release))
        if "size" in candidate.settings:
            codebooks.add(codebook)
    return kept


def _by_score(pair: tuple[ScoredCandidate, Release]) -> float:
    return -pair[0].utility.score


def _finalists(screened: Sequence[tuple[Candidate, Release, Scores]]) -> list[int]:
    """Return the indices of the candidates that are scored again.

    The best for the goal, the best for answers and for fidelity, the best releases of vectors, the
    best of every requested mechanism, all releases of answers, and all that ignore the report.
    """
    candidates = [candidate for candidate, _, _ in screened]
    scores = [each for _, _, each in screened]
    by_goal = _ranked([each.utility for each in scores])
    kept = set(by_goal[:_FINALISTS])
    kept.update(_ranked([each.answers for each in scores])[:_OTHERS])
    kept.update(_ranked([each.fidelity for each in scores])[:_OTHERS])
    kept.update([i for i in by_goal if candidates[i].is_vector][:_OTHERS])
    kept.update({candidates[i].requested: i for i in reversed(by_goal)}.values())
    kept.update(i for i, each in enumerate(candidates) if each.is_answer or each.is_silent)
    return sorted(kept)


def _ranked(utilities: Sequence[Utility | None]) -> list[int]:
    """Return the indices of the utilities that are not None, best first."""
    scores = {i: each.score for i, each in enumerate(utilities) if each is not None}
    return sorted(scores, key=lambda i: -scores[i])
