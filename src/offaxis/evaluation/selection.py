"""One search for every choice: releases tried against each other on public vectors.

Contract: the public vectors are split at random, by a public seed, in three parts. Candidates are
fitted on the first part. All are scored on a few vectors of the second part; the best of them, for
the goal or for the other goal, are scored again on all of it, and only these scores are reported.
The third part is held out: the utility of the chosen release is estimated there, without optimism.
The simulated noise is the same for all candidates and budgets.

``recommend``, ``tune`` and ``best_decoder`` (recommend.py) differ only in the candidates they try.
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
from offaxis.evaluation.utility import Goal, PublicSide, Scorer, Scores, Utility
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import evenly, places
from offaxis.release import Release
from offaxis.vectors import Vectors

Progress = Callable[[str, int, int], None]
"""Called with the title of a candidate, how many are done, and how many there are."""

MOST_HELD_OUT: Final = 3000
"""Vectors of a held-out part, at most: so many are simulated in every comparison."""

LEAST_HELD_OUT: Final = 10
"""Fewer compare nothing and estimate nothing."""

SHARE: Final = 0.2
"""Of the public vectors, for each held-out part."""

_ROWS: Final = 8192


def sample(public: Any, most: int) -> tuple[Vectors, Vectors]:
    """Return ``most`` public vectors at even distances, (n, m), and as many of the others.

    All of them, and none, where there are not more.
    """
    source = PublicVectors(public)
    chosen = evenly(source, most)
    count = sum(len(batch) for batch in source.batches(_ROWS))
    if count <= most:
        return chosen, chosen[:0]
    left = np.ones(count, dtype=bool)
    left[places(count, most)] = False

    def others() -> Iterator[Vectors]:
        seen = 0
        for batch in source.batches(_ROWS):
            yield batch[left[seen : seen + len(batch)]]
            seen += len(batch)

    return chosen, evenly(others, most)


class Split:
    """Public vectors, split at random by their place in the order they come in.

    Parameters
    ----------
    public : array (n, m), or callable returning an iterator of batches
    seed : int
        Public.
    held_out : int
        Number of held-out parts.
    share, most, least
        Share of the vectors in each of these; vectors in each, at most and at least.

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
                f"public vectors are split in {held_out + 1} parts, to fit to and to judge on, and "
                f"that takes at least {math.ceil(least / share)} of them, got {count}"
            )
        self._part: NDArray[np.int8] = np.zeros(count, dtype=np.int8)
        order = np.random.default_rng([seed, 0]).permutation(count)
        for index in range(held_out):
            self._part[order[index * held : (index + 1) * held]] = index + 1

    def _walk(self, which: int) -> Iterator[Vectors]:
        seen = 0
        for batch in self._source.batches(_ROWS):
            kept = batch[self._part[seen : seen + len(batch)] == which]
            seen += len(batch)
            if len(kept):
                yield kept

    def part(self, which: int) -> Vectors:
        """Return the part to fit to (0) or a held-out part (1, 2 …) as one array, (n, m)."""
        return np.concatenate(list(self._walk(which)))


# ----------------------------------------------------------------------------
# The search

_SCREENED: Final = 300
"""Vectors that all candidates are scored on."""

_FINALISTS: Final = 12
_OTHERS: Final = 4
"""Finalists for the goal; and for the other goal, and among releases of vectors."""

_REACH: Final = 0.1
"""A decoder is trained where the best release of a vector is no further from the best of all."""


@dataclass(frozen=True, eq=False)
class ScoredCandidate:
    """One candidate, and its scores on the vectors it was compared on.

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
        """For the goal, over all tasks."""
        return self.scores.utility


@dataclass(frozen=True, eq=False)
class Comparison:
    """The outcome at one budget.

    Attributes
    ----------
    finalists : tuple of ScoredCandidate
        Best first.
    releases : tuple of Release
        As they were compared, in the same order.
    screened_out : tuple of Candidate
        Those that were no finalists.
    """

    finalists: tuple[ScoredCandidate, ...]
    releases: tuple[Release, ...]
    screened_out: tuple[Candidate, ...]


class Selection:
    """Fits candidates once, and compares them at any budget.

    Parameters
    ----------
    side : PublicSide
        Of the vectors that releases are fitted to.
    options : sequence of Candidate
    compare_on, estimate_on : (n, m) arrays
        The second and the third part of the public vectors.
    goal, people, seed
        As in :func:`offaxis.recommend`.
    """

    def __init__(
        self,
        side: PublicSide,
        options: Sequence[Candidate],
        compare_on: Vectors,
        estimate_on: Vectors,
        goal: Goal,
        people: int,
        seed: int,
    ) -> None:
        self._side, self._options, self._seed = side, options, seed
        self._second, self._third = compare_on, estimate_on
        self._scorer: Scorer = side.scorer(goal, people)
        self._maps: dict[Hashable, Release] = {}

    @property
    def compared_on(self) -> int:
        """Number of vectors that finalists are scored on."""
        return len(self._second)

    @property
    def measured_on(self) -> int:
        """Number of held-out vectors, on which the best one is measured."""
        return len(self._third)

    def compare(
        self, epsilon: Any, ceiling: float | None, progress: Progress | None = None
    ) -> Comparison:
        """Score all candidates at a budget.

        Parameters
        ----------
        epsilon : number
        ceiling : float or None
            Where it is reached, no decoder is trained to do better; nor for None.
        """
        made = self._made(epsilon, progress)
        if not made:
            raise InvalidInput("no release could be fitted to these public vectors")
        few = self._second if self._scorer.goal == "mean" else self._second[:_SCREENED]
        screened = [
            (option, release, self._scorer(release, few, self._seed)) for option, release in made
        ]
        kept = range(len(screened)) if len(few) == len(self._second) else _finalists(screened)
        scored = []
        for index in kept:
            option, release, scores = screened[index]
            if len(few) < len(self._second):
                scores = self._scorer(release, self._second, self._seed)
            scored.append((ScoredCandidate(option, scores), release))
        scored.sort(key=_by_score)
        scored = sorted([*scored, *self._trained(scored, ceiling)], key=_by_score)
        chosen = set(kept)
        return Comparison(
            tuple(each for each, _ in scored),
            tuple(release for _, release in scored),
            tuple(made[i][0] for i in range(len(made)) if i not in chosen),
        )

    def estimate(self, release: Release) -> Scores:
        """Return the scores of a release on held-out vectors."""
        return self._scorer(release, self._third, self._seed + 1)

    def _made(self, epsilon: Any, progress: Progress | None) -> list[tuple[Candidate, Release]]:
        made, fitted = [], dict[Hashable, Release | None]()
        for done, option in enumerate(self._options):
            if progress:
                progress(option.title, done, len(self._options))
            if option.base not in fitted:
                fitted[option.base] = self._fitted(option, epsilon)
            base = fitted[option.base]
            release = None if base is None else option.finished(base, self._side)
            if release is not None:
                made.append((option, release))
        return _without_repetitions(made)

    def _fitted(self, option: Candidate, epsilon: Any) -> Release | None:
        """Fit a candidate, or take the map of another budget where it is the same."""
        known = self._maps.get(option.base)
        release = None if known is None else option.at_budget(known, epsilon)
        if release is None:
            release = option.fitted(self._side, epsilon)
        if release is not None:
            self._maps[option.base] = release
        return release

    def _trained(
        self, scored: Sequence[tuple[ScoredCandidate, Release]], ceiling: float | None
    ) -> Iterator[tuple[ScoredCandidate, Release]]:
        """Try a network as the decoder of the best release of a vector, where it could win."""
        if ceiling is None or self._scorer.goal == "mean" or find_spec("torch") is None:
            return
        best = scored[0][0].utility
        silent = max((t.utility.score for t, _ in scored if t.candidate.is_silent), default=0.0)
        if best.interval()[1] >= ceiling or best.interval()[0] <= silent:
            return  # nothing is left to gain, or reports carry too little to learn from
        for each, release in scored:
            if each.candidate.is_vector:
                if best.score - each.utility.score <= _REACH:
                    option = each.candidate.decoded("noise-aware")
                    trained = option.finished(release, self._side)
                    if trained is not None:
                        scores = self._scorer(trained, self._second, self._seed)
                        yield ScoredCandidate(option, scores), trained
                return


def _without_repetitions(
    made: Sequence[tuple[Candidate, Release]],
) -> list[tuple[Candidate, Release]]:
    """Leave out codebooks with fewer cells than requested, if there is one of that many."""
    kept, sizes = [], set[Hashable]()
    for option, release in made:
        size, cells = option.settings.get("size"), release.encoder.output_dim
        book = option.settings.get("mechanism"), option.decoding, cells
        if size is None or cells == size or book not in sizes:
            kept.append((option, release))
        if "size" in option.settings:
            sizes.add(book)
    return kept


def _by_score(pair: tuple[ScoredCandidate, Release]) -> float:
    return -pair[0].utility.score


def _finalists(screened: Sequence[tuple[Candidate, Release, Scores]]) -> list[int]:
    """Return the indices of the candidates that are scored again.

    The best for the goal, the best for the other goal, the best releases of vectors, those about
    the answers, and those that use no report.
    """
    order = range(len(screened))
    scores = [each for _, _, each in screened]
    by_goal = _ranked([each.utility for each in scores])
    kept = set(by_goal[:_FINALISTS])
    kept.update(_ranked([each.answers for each in scores])[:_OTHERS])
    kept.update(_ranked([each.fidelity for each in scores])[:_OTHERS])
    kept.update([i for i in by_goal if screened[i][0].is_vector][:_OTHERS])
    kept.update(i for i in order if screened[i][0].is_answer or screened[i][0].is_silent)
    return sorted(kept)


def _ranked(utilities: Sequence[Utility | None]) -> list[int]:
    """Return the indices of those that have a utility, best first."""
    scores = {i: each.score for i, each in enumerate(utilities) if each is not None}
    return sorted(scores, key=lambda i: -scores[i])
