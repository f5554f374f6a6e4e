"""Releases tried against each other at one budget after the other, on the same public vectors.

Contract: candidates are fitted on the first part of the public vectors. All are scored on a few
vectors of the second part; those that are best there, for the goal or for the other one, are scored
again on all of it, and only these scores are told. The third part has no say: what the best one is
worth is estimated there. The noise of the simulation is the same for all candidates and budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from offaxis.errors import InvalidInput
from offaxis.evaluation.candidates import Candidate, candidates
from offaxis.evaluation.public_side import PublicSide
from offaxis.evaluation.utility import Goal, Panel, Utility, Verdict
from offaxis.release import Release
from offaxis.vectors import Vectors

Progress = Callable[[str, int, int], None]
"""Called with the title of a candidate, how many are done, and how many there are."""

_SCREENED: Final = 300
"""Vectors that all candidates are scored on."""

_FINALISTS: Final = 12
_OTHERS: Final = 4
"""Finalists for the goal; and by its counterpart, and among releases of vectors."""

_REACH: Final = 0.1
"""A decoder is trained where the best release of a vector is no further from the best of all."""


@dataclass(frozen=True, eq=False)
class Tried:
    """One release that was tried, and what it is worth on the vectors it was compared on.

    Examples
    --------
    >>> from offaxis.evaluation.recommend import Tried, recommend
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 2)), rng.standard_normal((60, 2))
    >>> best, *others = recommend(task, public, epsilon=2).tried
    >>> isinstance(best, Tried), all(best.utility.score >= each.utility.score for each in others)
    (True, True)
    """

    candidate: Candidate
    verdict: Verdict

    @property
    def utility(self) -> Utility:
        """For the goal, over all tasks."""
        return self.verdict.utility


@dataclass(frozen=True, eq=False)
class Compared:
    """The outcome at one budget.

    Attributes
    ----------
    tried : tuple of Tried
        The finalists, best first.
    releases : tuple of Release
        As they were compared, in the same order.
    left_out : tuple of Candidate
        Those that were no finalists.
    """

    tried: tuple[Tried, ...]
    releases: tuple[Release, ...]
    left_out: tuple[Candidate, ...]


class Trials:
    """Fits candidates once, and compares them at any budget.

    Parameters
    ----------
    side : PublicSide
        Of the vectors that releases are fitted to.
    second, third : (n, m) arrays
        The vectors to compare on, and those to estimate on.
    goal, people, seed
        As in :func:`offaxis.recommend`.
    """

    def __init__(
        self,
        side: PublicSide,
        second: Vectors,
        third: Vectors,
        goal: Goal,
        people: int,
        seed: int,
    ) -> None:
        self._side, self._second, self._third, self._seed = side, second, third, seed
        self._panel: Panel = side.panel(goal, people)
        self._options = candidates(side, goal)
        self._maps: dict[Hashable, Release] = {}

    @property
    def compared_on(self) -> int:
        """Vectors that finalists are scored on."""
        return len(self._second)

    @property
    def measured_on(self) -> int:
        """Vectors that had no say, on which the best one is measured."""
        return len(self._third)

    def compare(
        self, epsilon: Any, top: float | None, progress: Progress | None = None
    ) -> Compared:
        """Score all candidates at a budget.

        Parameters
        ----------
        epsilon : number
        top : float or None
            The ceiling: where it is reached, no decoder is trained to do better; nor for None.
        """
        made = self._made(epsilon, progress)
        if not made:
            raise InvalidInput("no release could be fitted to these public vectors")
        few = self._second if self._panel.goal == "mean" else self._second[:_SCREENED]
        screened = [
            (option, release, self._panel(release, few, self._seed)) for option, release in made
        ]
        kept = range(len(screened)) if len(few) == len(self._second) else _finalists(screened)
        scored = []
        for index in kept:
            option, release, verdict = screened[index]
            if len(few) < len(self._second):
                verdict = self._panel(release, self._second, self._seed)
            scored.append((Tried(option, verdict), release))
        scored.sort(key=_by_score)
        scored = sorted([*scored, *self._trained(scored, top)], key=_by_score)
        chosen = set(kept)
        return Compared(
            tuple(each for each, _ in scored),
            tuple(release for _, release in scored),
            tuple(made[i][0] for i in range(len(made)) if i not in chosen),
        )

    def estimate(self, release: Release) -> Verdict:
        """Return what a release is worth on vectors that had no say."""
        return self._panel(release, self._third, self._seed + 1)

    def _made(self, epsilon: Any, progress: Progress | None) -> list[tuple[Candidate, Release]]:
        found, fitted = [], dict[Hashable, Release | None]()
        for done, option in enumerate(self._options):
            if progress:
                progress(option.title, done, len(self._options))
            if option.base not in fitted:
                fitted[option.base] = self._fitted(option, epsilon)
            base = fitted[option.base]
            release = None if base is None else option.finished(base, self._side)
            if release is not None:
                found.append((option, release))
        return _without_repetitions(found)

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
        self, scored: Sequence[tuple[Tried, Release]], top: float | None
    ) -> Iterator[tuple[Tried, Release]]:
        """Try a network as the decoder of the best release of a vector, where it could win."""
        if top is None or self._panel.goal == "mean" or find_spec("torch") is None:
            return
        best = scored[0][0].utility
        silent = max((t.utility.score for t, _ in scored if t.candidate.is_silent), default=0.0)
        if best.interval()[1] >= top or best.interval()[0] <= silent:
            return  # nothing is left to gain, or reports tell too little to learn from
        for each, release in scored:
            if each.candidate.is_vector:
                if best.score - each.utility.score <= _REACH:
                    option = each.candidate.decoded("noise-aware")
                    trained = option.finished(release, self._side)
                    if trained is not None:
                        verdict = self._panel(trained, self._second, self._seed)
                        yield Tried(option, verdict), trained
                return


def _without_repetitions(
    made: Sequence[tuple[Candidate, Release]],
) -> list[tuple[Candidate, Release]]:
    """Leave out codebooks with fewer cells than were asked for, if there is one of so many."""
    kept, sizes = [], set[Hashable]()
    for option, release in made:
        size, cells = option.settings.get("size"), release.encoder.output_dim
        book = option.settings["randomizer"], option.decoding, cells
        if size is None or cells == size or book not in sizes:
            kept.append((option, release))
        if "size" in option.settings:
            sizes.add(book)
    return kept


def _by_score(pair: tuple[Tried, Release]) -> float:
    return -pair[0].utility.score


def _finalists(screened: Sequence[tuple[Candidate, Release, Verdict]]) -> list[int]:
    """Return who is scored again, by their numbers.

    The best for the goal, the best for the other goal, the best releases of vectors, those about
    the answers, and those that read no report.
    """
    order = range(len(screened))
    verdicts = [verdict for _, _, verdict in screened]
    by_goal = _ranked([verdict.utility for verdict in verdicts])
    kept = set(by_goal[:_FINALISTS])
    kept.update(_ranked([verdict.answers for verdict in verdicts])[:_OTHERS])
    kept.update(_ranked([verdict.fidelity for verdict in verdicts])[:_OTHERS])
    kept.update([i for i in by_goal if screened[i][0].is_vector][:_OTHERS])
    kept.update(i for i in order if screened[i][0].is_answer or screened[i][0].is_silent)
    return sorted(kept)


def _ranked(utilities: Sequence[Utility | None]) -> list[int]:
    """Return the numbers of those that have a utility, best first."""
    scores = {i: each.score for i, each in enumerate(utilities) if each is not None}
    return sorted(scores, key=lambda i: -scores[i])
