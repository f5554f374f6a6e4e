"""Attacks that guess: which candidate, a member or not, which label, one person or two.

Every attack is a function of what a channel shows and of what the attacker knows. A trial draws
fresh people and fresh reports, so trials are independent, and the number of right guesses has exact
limits. Ties are broken at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from offaxis.errors import InvalidInput, InvalidReport
from offaxis.leakage.channels import (
    Channel,
    FloatLaplace,
    Likelihood,
    ReleaseChannel,
    Rng,
    several,
)
from offaxis.learning.estimators import ReportRegressor, learn
from offaxis.vectors import Vectors

Indices = NDArray[np.intp]

_PAIRS: Final = 1 << 21
"""The numbers held at a time where every candidate of every trial is compared."""


@dataclass(frozen=True)
class Guesses:
    """How often an attack was right.

    Attributes
    ----------
    attack, setting : str
    hits, trials : int
    candidates : int
        Number of equally likely answers.
    reports : int
        Number of reports of the person attacked.
    exact : bool
        Whether the reports were exact ones.
    """

    attack: str
    setting: str
    hits: int
    trials: int
    candidates: int = 2
    reports: int = 1
    exact: bool = False


@dataclass(frozen=True, eq=False)
class Arena:
    """One channel, what the attacker knows, and the people who are attacked.

    Attributes
    ----------
    channel : Channel
    known, people : (J, m) and (P, m) arrays
        Rows of disjoint halves of the public vectors.
    known_labels, people_labels : (J,) and (P,) integer arrays
    trials : int
    rng : numpy.random.Generator
    """

    channel: Channel
    known: Vectors
    people: Vectors
    known_labels: NDArray[np.int64]
    people_labels: NDArray[np.int64]
    trials: int
    rng: Rng

    @property
    def exact(self) -> bool:
        """Whether single reports are exact ones."""
        return isinstance(self.channel, ReleaseChannel) and self.channel.exact

    @cached_property
    def likelihood_of_known(self) -> Likelihood:
        """The likelihood of the vectors that the attacker knows."""
        return self.channel.likelihood(self.known)

    @cached_property
    def likelihood_of_people(self) -> Likelihood:
        """The likelihood of the people attacked, for attackers who know their vectors."""
        return self.channel.likelihood(self.people)

    @cached_property
    def pair(self) -> Vectors:
        """The two people that are easiest to tell apart; fewer rows if all send the same."""
        return self.channel.chosen(self.people, 2)

    @cached_property
    def who(self) -> Indices:
        """The people of the main trials, drawn with replacement."""
        return self.rng.integers(len(self.people), size=self.trials)

    @cached_property
    def seen(self) -> Vectors:
        """One report of each of them."""
        return self.channel.draw(self.people[self.who], self.rng)

    @cached_property
    def by_person(self) -> Vectors:
        """Log densities of the main reports for every person attacked, (trials, P)."""
        return self.likelihood_of_people(self.seen)

    @cached_property
    def by_known(self) -> Vectors:
        """Log densities of the main reports for every known vector, (trials, J)."""
        return self.likelihood_of_known(self.seen)

    def with_last_bits(self, scores: Vectors, seen: Vectors, rows: Vectors, at: Indices) -> Vectors:
        """Add what the last bits tell of candidates ``rows[at]``, (trials, N), that are known."""
        if not isinstance(self.channel, FloatLaplace):
            return scores
        total = scores.copy()
        block = max(1, _PAIRS // (at.shape[1] * rows.shape[1]))
        for start in range(0, len(at), block):
            part = at[start : start + block]
            shown = np.repeat(seen[start : start + block], part.shape[1], axis=0)
            bits = self.channel.last_bits(shown, rows[part.ravel()])
            total[start : start + block] += bits.reshape(part.shape)
        return total

    def others(self, people: Indices, count: int) -> Indices:
        """Return ``count`` distinct people other than each given one, uniform, (n, count)."""
        keys = self.rng.random((len(people), len(self.people)))
        keys[np.arange(len(people)), people] = 2.0
        if count == 1:
            return np.asarray(keys.argmin(axis=1)[:, None])
        return np.asarray(np.argpartition(keys, count - 1, axis=1)[:, :count])

    def largest(self, scores: Vectors) -> Indices:
        """Return the column of the largest score of each row; among equal ones, a random one."""
        tied = scores == scores.max(axis=1, keepdims=True)
        return np.asarray(np.where(tied, self.rng.random(scores.shape), -1.0).argmax(axis=1))

    def yes(self, scores: Vectors) -> NDArray[np.bool_]:
        """Return whether each score is positive; zero is a coin."""
        coins = self.rng.random(len(scores)) < 0.5
        return np.where(scores == 0, coins, scores > 0)


def mixture(scores: Vectors) -> Vectors:
    """Return the log density of a report of a random vector, from those of all vectors, (n,)."""
    density: Vectors = logsumexp(scores, axis=1) - np.log(scores.shape[1])
    return density


# ---- Candidates

CANDIDATES: Final = "nearest candidate"
SEVERAL: Final = "several reports"
MEMBERSHIP: Final = "membership"
ATTRIBUTE: Final = "attribute"
LINKAGE: Final = "linkage"
MEAN: Final = "mean"
MODEL: Final = "learnt model"

SIZES: Final = (2, 10, 100)


def among_people(arena: Arena) -> Iterator[Guesses]:
    """Name the person, among N people that the attacker knows, from one report."""
    who, trials = arena.who, len(arena.who)
    for size in sorted({*(n for n in SIZES if n < len(arena.people)), len(arena.people)}):
        at = np.concatenate([who[:, None], arena.others(who, size - 1)], axis=1)
        scores = np.take_along_axis(arena.by_person, at, axis=1)
        scores = arena.with_last_bits(scores, arena.seen, arena.people, at)
        hits = int((arena.largest(scores) == 0).sum())
        setting = f"{size} random people"
        yield Guesses(CANDIDATES, setting, hits, trials, size, exact=arena.exact)


def among_chosen(arena: Arena) -> Iterator[Guesses]:
    """Name the person, among people that are as easy to tell apart as the attacker can find."""
    done = set()
    for size in SIZES:
        rows = arena.channel.chosen(arena.people, size)
        if len(rows) in done or len(rows) < 2:
            continue
        done.add(len(rows))
        who = arena.rng.integers(len(rows), size=arena.trials)
        seen = arena.channel.draw(rows[who], arena.rng)
        at = np.broadcast_to(np.arange(len(rows)), (arena.trials, len(rows)))
        scores = arena.with_last_bits(arena.channel.likelihood(rows)(seen), seen, rows, at)
        hits = int((arena.largest(scores) == who).sum())
        setting = f"{len(rows)} chosen people"
        yield Guesses(CANDIDATES, setting, hits, arena.trials, len(rows), exact=arena.exact)


def from_several(arena: Arena, count: int, size: int) -> Guesses:
    """Name the person among N random people, from ``count`` reports of the person."""
    who = arena.rng.integers(len(arena.people), size=arena.trials)
    at = np.concatenate([who[:, None], arena.others(who, size - 1)], axis=1)
    scores = np.zeros(at.shape)
    for seen in several(arena.channel, arena.people[who], count, arena.rng):
        each = np.take_along_axis(arena.likelihood_of_people(seen), at, axis=1)
        scores += arena.with_last_bits(each, seen, arena.people, at)
    hits = int((arena.largest(scores) == 0).sum())
    setting = f"{count} reports, {size} random people"
    return Guesses(SEVERAL, setting, hits, arena.trials, size, count)


def chosen_from_several(arena: Arena, count: int) -> Guesses:
    """Name the person among the two easiest to tell apart, from ``count`` reports."""
    rows = arena.pair
    who = arena.rng.integers(len(rows), size=arena.trials)
    at = np.broadcast_to(np.arange(len(rows)), (arena.trials, len(rows)))
    of_rows, scores = arena.channel.likelihood(rows), np.zeros(at.shape)
    for seen in several(arena.channel, rows[who], count, arena.rng):
        scores += arena.with_last_bits(of_rows(seen), seen, rows, at)
    hits = int((arena.largest(scores) == who).sum())
    setting = f"{count} reports, {len(rows)} chosen people"
    return Guesses(SEVERAL, setting, hits, arena.trials, len(rows), count)


# ---- Membership, attributes, linkage


def membership(arena: Arena) -> Guesses:
    """Say whether a report is of a given person or of a random other one."""
    who, trials = arena.who, len(arena.who)
    member = arena.rng.random(trials) < 0.5
    target = np.where(member, who, arena.others(who, 1)[:, 0])[:, None]
    own = np.take_along_axis(arena.by_person, target, axis=1)
    own = arena.with_last_bits(own, arena.seen, arena.people, target)[:, 0]
    hits = int((arena.yes(own - mixture(arena.by_known)) == member).sum())
    return Guesses(MEMBERSHIP, "one person or another", hits, trials, exact=arena.exact)


def attributes(arena: Arena) -> Iterator[Guesses]:
    """Name the label of a person: of anybody, and of one of some known people."""
    labels = np.intersect1d(arena.known_labels, arena.people_labels)
    count = len(labels)
    if count < 2:
        raise InvalidInput(
            f"an attribute needs two labels or more that occur in both halves of the public "
            f"vectors, got {count}"
        )
    if count < 2:
        raise InvalidInput("fewer than two labels occur in both halves of the vectors compared")
    members = [np.flatnonzero(arena.people_labels == label) for label in labels]
    columns = [np.flatnonzero(arena.known_labels == label) for label in labels]
    own = arena.rng.integers(count, size=arena.trials)
    # One person of every label, each uniform; the person who reports is that of the label drawn.
    drawn = np.stack([arena.rng.choice(group, arena.trials) for group in members], axis=1)
    seen = arena.channel.draw(arena.people[drawn[np.arange(arena.trials), own]], arena.rng)
    scores = arena.likelihood_of_known(seen)
    by_label = np.stack([mixture(scores[:, part]) for part in columns], axis=1)
    hits = int((arena.largest(by_label) == own).sum())
    rest: dict[str, Any] = {"trials": arena.trials, "exact": arena.exact}
    yield Guesses(ATTRIBUTE, f"one of {count} labels, anybody", hits, candidates=count, **rest)
    other = (own + arena.rng.integers(1, count, size=arena.trials)) % count
    two = np.take_along_axis(drawn, np.stack([own, other], axis=1), axis=1)
    by_person = arena.likelihood_of_people(seen)
    for at, right in ((two, np.zeros_like(own)), (drawn, own)):
        scores = np.take_along_axis(by_person, at, axis=1)
        scores = arena.with_last_bits(scores, seen, arena.people, at)
        hits = int((arena.largest(scores) == right).sum())
        setting = f"{at.shape[1]} known people of different labels"
        yield Guesses(ATTRIBUTE, setting, hits, candidates=at.shape[1], **rest)
        if count == 2:
            return


def linkage(arena: Arena) -> Iterator[Guesses]:
    """Say whether two reports are of one person or of two people."""
    same = arena.rng.random(arena.trials) < 0.5
    second = np.where(same, arena.who, arena.others(arena.who, 1)[:, 0])
    seen = arena.channel.draw(arena.people[second], arena.rng)
    score = _link(arena.by_known, arena.likelihood_of_known(seen))
    hits = int((arena.yes(score) == same).sum())
    yield Guesses(LINKAGE, "two reports of anybody", hits, arena.trials, exact=arena.exact)
    rows = arena.pair
    if len(rows) < 2:
        return
    first = arena.rng.integers(2, size=arena.trials)
    second = np.where(same, first, 1 - first)
    at = np.broadcast_to(np.arange(2), (arena.trials, 2))
    scores, of_rows = [], arena.channel.likelihood(rows)
    for who in (first, second):
        seen = arena.channel.draw(rows[who], arena.rng)
        scores.append(arena.with_last_bits(of_rows(seen), seen, rows, at))
    hits = int((arena.yes(_link(*scores)) == same).sum())
    yield Guesses(LINKAGE, "two reports, 2 chosen people", hits, arena.trials, exact=arena.exact)


def _link(first: Vectors, second: Vectors) -> Vectors:
    """Return the log odds of one person, for people drawn from the columns."""
    return mixture(first + second) - mixture(first) - mixture(second)


# ---- Means and models
#
# A game fixes a target, an alternative and everybody else, all of whom the attacker knows. In
# every trial a coin decides which of the two takes part. The attacker simulates both worlds as
# often as wanted, and compares what is published along the direction that tells them apart best.

_GAMES: Final = 4
_ALONE: Final = 1000
"""Simulated reports of the target and of the alternative."""

_WORLDS: Final = 200
_MODEL_PEOPLE: Final = 20
_BANK: Final = 30
_NUMBERS: Final = 1 << 23
"""The numbers of simulated worlds held at a time."""

_FLOOR: Final = 1e-12


def _direction(gap: Vectors, variance: Vectors) -> Vectors:
    """Return weights of the best linear statistic for independent coordinates."""
    weights: Vectors = gap / (variance + _FLOOR * max(float(variance.max()), 1e-300) + 1e-300)
    return weights


def _draw(arena: Arena, rows: Vectors) -> Vectors:
    """Return simulated reports: a mean takes many."""
    if isinstance(arena.channel, ReleaseChannel):
        return arena.channel.simulate(rows, arena.rng)
    return arena.channel.draw(rows, arena.rng)


def on_a_mean(arena: Arena, size: int, *, chosen: bool = False) -> Guesses:
    """Say whether the target or the alternative is among the people of a released mean.

    What is published is the mean of what was read from reports: every mean, share or table of a
    release is a function of it.
    """
    hits = total = 0
    for _ in range(_GAMES):
        pair = arena.pair if chosen else _pair(arena)
        rest = arena.people[arena.rng.choice(len(arena.people), size - 1, replace=True)]
        alone = [_draw(arena, np.repeat(row[None], _ALONE, axis=0)) for row in pair]
        means = [part.mean(axis=0) for part in alone]
        worlds = max(8, min(_WORLDS, _NUMBERS // (size * alone[0].shape[1])))
        sums = _sums(arena, rest, worlds)
        variance = sums.var(axis=0) + (alone[0].var(axis=0) + alone[1].var(axis=0)) / 2
        weights = _direction(means[0] - means[1], variance)
        middle = weights @ (sums.mean(axis=0) + (means[0] + means[1]) / 2)
        trials = arena.trials // _GAMES
        first = arena.rng.random(trials) < 0.5
        own = _draw(arena, pair[np.where(first, 0, 1)])
        score = (own + _sums(arena, rest, trials)) @ weights - middle
        hits += int((arena.yes(score) == first).sum())
        total += trials
    setting = f"of {size} people, {'2 chosen' if chosen else 'one person or another'}"
    return Guesses(MEAN, setting, hits, total)


def _pair(arena: Arena) -> Vectors:
    return arena.people[arena.rng.choice(len(arena.people), 2, replace=False)]


def _sums(arena: Arena, rest: Vectors, worlds: int) -> Vectors:
    """Return sums over one report of each row, (worlds, d), drawn in blocks."""
    parts = []
    block = max(1, _NUMBERS // (len(rest) * max(rest.shape[1], 64)))
    for start in range(0, worlds, block):
        count = min(block, worlds - start)
        seen = _draw(arena, np.tile(rest, (count, 1)))
        parts.append(seen.reshape(count, len(rest), -1).sum(axis=1))
    return np.concatenate(parts)


def on_a_model(arena: Arena) -> Guesses:
    """Say which of two people of the same label took part in a model fitted on decoded reports.

    The model is least squares with a ridge, from reports to public labels; its coefficients are
    published.
    """
    hits = total = 0
    for _ in range(_GAMES):
        first = int(arena.rng.integers(len(arena.people)))
        alike = np.flatnonzero(arena.people_labels == arena.people_labels[first])
        alike = alike[alike != first]
        second = int(arena.rng.choice(alike)) if len(alike) else first
        members = arena.rng.choice(len(arena.people), _MODEL_PEOPLE - 1, replace=True)
        labels = arena.people_labels[np.append(members, first)]
        targets = (labels[:, None] == np.unique(arena.people_labels)).astype(float)
        pair, rest = arena.people[[first, second]], arena.people[members]

        def fitted(
            choice: Indices, pair: Vectors = pair, rest: Vectors = rest, targets: Vectors = targets
        ) -> tuple[Vectors, Vectors]:
            """Return coefficients with the chosen person, and with the other, rest unchanged."""
            worlds = len(choice)
            shared = _draw(arena, np.tile(rest, (worlds, 1))).reshape(worlds, len(rest), -1)
            own, other = (_draw(arena, pair[at]) for at in (choice, 1 - choice))
            return _ridge(shared, own, targets), _ridge(shared, other, targets)

        learnt, other = fitted(np.zeros(_WORLDS, dtype=np.intp))
        variance = (learnt.var(axis=0) + other.var(axis=0)) / 2
        weights = _direction(learnt.mean(axis=0) - other.mean(axis=0), variance)
        middle = weights @ (learnt.mean(axis=0) + other.mean(axis=0)) / 2
        trials = arena.trials // _GAMES
        choice = arena.rng.integers(2, size=trials)
        published, _ = fitted(choice)
        hits += int((arena.yes(published @ weights - middle) == (choice == 0)).sum())
        total += trials
    return Guesses(MODEL, f"least squares, {_MODEL_PEOPLE} people", hits, total)


def _ridge(shared: Vectors, own: Vectors, targets: Vectors) -> Vectors:
    """Return the coefficients of every world, flat, by the dual form."""
    inputs = np.concatenate([shared, own[:, None, :]], axis=1)
    gram = inputs @ inputs.transpose(0, 2, 1)
    size = gram.shape[1]
    ridge = np.trace(gram, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
    dual = np.linalg.solve(gram + ridge + 1e-300 * np.eye(size), targets[None])
    return (inputs.transpose(0, 2, 1) @ dual).reshape(len(inputs), -1)


def on_learning(arena: Arena, labels: Any) -> Guesses:
    """Say which of two people took part in a model that :func:`offaxis.learn` made of reports.

    Raises
    ------
    InvalidInput
        If nothing can be learnt from so few reports of this release.
    """
    channel = arena.channel
    assert isinstance(channel, ReleaseChannel)
    release, hits, total = channel.release, 0, 0
    games = 2
    for _ in range(games):
        pair, rest = _pair(arena), arena.rng.choice(len(arena.people), _MODEL_PEOPLE - 1)
        rows = np.concatenate([pair, arena.people[rest]])
        bank = np.array(release.privatize(np.repeat(rows, _BANK, axis=0)), dtype=object)
        bank = bank.reshape(len(rows), _BANK)
        public = None if labels is None else np.append(labels[rest], labels[rest[0]])

        def published(reports: list[bytes], public: Any = public) -> Vectors:
            model = learn(release, reports, labels=public)
            scale = model.coef_ if isinstance(model, ReportRegressor) else model.layers_.weights[-1]
            return np.ravel(scale)

        def world(first: int, bank: Any = bank) -> tuple[Vectors, Vectors]:
            places = arena.rng.integers(_BANK, size=len(bank))
            taken = bank[np.arange(len(bank)), places].tolist()
            own, other = taken[first], taken[1 - first]
            return published([*taken[2:], own]), published([*taken[2:], other])

        worlds = [world(0) for _ in range(_WORLDS // 5)]
        learnt, other = (np.array(side) for side in zip(*worlds, strict=True))
        variance = (learnt.var(axis=0) + other.var(axis=0)) / 2
        weights = _direction(learnt.mean(axis=0) - other.mean(axis=0), variance)
        middle = weights @ (learnt.mean(axis=0) + other.mean(axis=0)) / 2
        trials = max(10, min(arena.trials, 200) // games)
        choice = arena.rng.integers(2, size=trials)
        fresh = np.stack([np.concatenate([pair[[at]], arena.people[rest]]) for at in choice])
        reports = np.array(release.privatize(fresh.reshape(-1, fresh.shape[2])), dtype=object)
        for at, own, *others in zip(choice, *reports.reshape(trials, -1).T, strict=True):
            score = published([*others, own]) @ weights - middle
            hits += int(arena.yes(np.array([score]))[0] == (at == 0))
        total += trials
    return Guesses(MODEL, f"offaxis.learn, {_MODEL_PEOPLE} people", hits, total, exact=True)


REFUSALS: Final = (InvalidInput, InvalidReport)
"""What an attack raises on a release that it does not fit."""
