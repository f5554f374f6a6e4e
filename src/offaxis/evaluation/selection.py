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
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.evaluation.candidates import Candidate
from offaxis.evaluation.utility import Goal, MeasuredTasks, Scorer, Scores, Utility
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import evenly, places
from offaxis.release import Release
from offaxis.vectors import Vectors

Progress = Callable[[str, int, int], None]
"""Called with the title of a candidate, the number of candidates done, and their total."""

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

_FINALISTS: Final = 12
"""Number of finalists for the goal."""

_OTHERS: Final = 4
"""Number of finalists for each of the goals "answers" and "fidelity", and among vectors."""

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
    """

    finalists: tuple[ScoredCandidate, ...]
    releases: tuple[Release, ...]
    screened_out: tuple[Candidate, ...]


class Selection:
    """Compares candidates at any budget; maps that do not depend on the budget are fitted once.

    Parameters
    ----------
    measured : MeasuredTasks
        The tasks on the vectors that releases are fitted to.
    candidates : sequence of Candidate
    compare_on, estimate_on : (n, m) arrays
        The second and the third part of the public vectors.
    goal, people, seed
        As in :func:`offaxis.recommend`.
    """

    def __init__(
        self,
        measured: MeasuredTasks,
        candidates: Sequence[Candidate],
        compare_on: Vectors,
        estimate_on: Vectors,
        goal: Goal,
        people: int,
        seed: int,
    ) -> None:
        self._measured, self._candidates, self._seed = measured, candidates, seed
        self._compare_on, self._estimate_on = compare_on, estimate_on
        self._scorer: Scorer = measured.scorer(goal, people)
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
        fitted = self._fit_all(epsilon, progress)
        if not fitted:
            raise InvalidInput("no release could be fitted to these public vectors")
        vectors = self._compare_on
        few = vectors if self._scorer.goal == "mean" else vectors[:_SCREENED]
        screened = [
            (candidate, release, self._scorer(release, few, self._seed))
            for candidate, release in fitted
        ]
        finalists = range(len(screened)) if len(few) == len(vectors) else _finalists(screened)
        scored = []
        for index in finalists:
            candidate, release, scores = screened[index]
            if len(few) < len(vectors):
                scores = self._scorer(release, vectors, self._seed)
            scored.append((ScoredCandidate(candidate, scores), release))
        scored.sort(key=_by_score)
        scored = sorted([*scored, *self._trained(scored, ceiling)], key=_by_score)
        kept = set(finalists)
        return Comparison(
            tuple(finalist for finalist, _ in scored),
            tuple(release for _, release in scored),
            tuple(candidate for i, (candidate, _) in enumerate(fitted) if i not in kept),
        )

    def estimate(self, release: Release) -> Scores:
        """Return the scores of a release on the held-out vectors."""
        return self._scorer(release, self._estimate_on, self._seed + 1)

    def _fit_all(self, epsilon: Any, progress: Progress | None) -> list[tuple[Candidate, Release]]:
        fitted, bases = [], dict[Hashable, Release | None]()
        for done, candidate in enumerate(self._candidates):
            if progress:
                progress(candidate.title, done, len(self._candidates))
            if candidate.base_key not in bases:
                bases[candidate.base_key] = self._fit_base(candidate, epsilon)
            base = bases[candidate.base_key]
            release = None if base is None else candidate.add_decoder(base, self._measured)
            if release is not None:
                fitted.append((candidate, release))
        return _without_duplicates(fitted)

    def _fit_base(self, candidate: Candidate, epsilon: Any) -> Release | None:
        """Fit a candidate, or reuse its maps from another budget if they are the same."""
        previous = self._bases.get(candidate.base_key)
        release = None if previous is None else candidate.at_budget(previous, epsilon)
        if release is None:
            release = candidate.fit_base(self._measured, epsilon)
        if release is not None:
            self._bases[candidate.base_key] = release
        return release

    def _trained(
        self, scored: Sequence[tuple[ScoredCandidate, Release]], ceiling: float | None
    ) -> Iterator[tuple[ScoredCandidate, Release]]:
        """Yield the best release of a vector with a trained decoder, if that could win."""
        if ceiling is None or self._scorer.goal == "mean" or find_spec("torch") is None:
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
        trained = candidate.add_decoder(release, self._measured)
        if trained is not None:
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

    The best for the goal, the best for answers and for fidelity, the best releases of vectors, all
    releases of answers, and all that ignore the report.
    """
    candidates = [candidate for candidate, _, _ in screened]
    scores = [each for _, _, each in screened]
    by_goal = _ranked([each.utility for each in scores])
    kept = set(by_goal[:_FINALISTS])
    kept.update(_ranked([each.answers for each in scores])[:_OTHERS])
    kept.update(_ranked([each.fidelity for each in scores])[:_OTHERS])
    kept.update([i for i in by_goal if candidates[i].is_vector][:_OTHERS])
    kept.update(i for i, each in enumerate(candidates) if each.is_answer or each.is_silent)
    return sorted(kept)


def _ranked(utilities: Sequence[Utility | None]) -> list[int]:
    """Return the indices of the utilities that are not None, best first."""
    scores = {i: each.score for i, each in enumerate(utilities) if each is not None}
    return sorted(scores, key=lambda i: -scores[i])
