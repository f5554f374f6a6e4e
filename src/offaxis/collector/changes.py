"""Has the crowd changed between rounds: where, and by how much?

A round is compared with the newest earlier rounds of its study and release. With public vectors,
the mean *scores* of the reports are compared: the gradient of their log-likelihood in the shares of
cells, at the public shares (:func:`~offaxis.learning.crowd_answers.p_value_of`). If the crowd is
the same, the mean of their difference is zero, whether or not the public vectors are like the
people; and scores are bounded, so the limit law is reached with fewer reports than that of
estimated shares. Of answers alone, the shares of the answers are compared by their known
covariances.

With R earlier rounds the smallest of R p-values is multiplied by R (Bonferroni), so a round of an
unchanged crowd is said to differ from any of them with at most the stated probability. A round of
fewer than :data:`FEWEST_COMPARED` reports is not compared. Where a crowd has changed, and by how
much, is said by the shares of the cells of both populations; the intervals hold for all cells at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from offaxis.collector.drift import FEWEST
from offaxis.collector.means import LEVEL
from offaxis.collector.questions import Question, classifier
from offaxis.decoding.shares import ShareDifference, Shares
from offaxis.errors import InvalidInput
from offaxis.geometry import Classifier
from offaxis.learning.crowd_answers import Difference
from offaxis.learning.population import Population
from offaxis.vectors import Vectors

FEWEST_COMPARED: Final = FEWEST
"""Smallest number of reports of rounds that are compared."""

MOST_COMPARED: Final = 4
"""A round is compared with at most so many earlier rounds."""

MOST_SYMBOLS: Final = 512
"""Answers of more symbols are not compared here."""

_RANK: Final = 1e-9
_LEAST_SHOWN: Final = 1e-6
_SHOWN: Final = 5
_COORDINATES: Final = 3
_NOTABLE: Final = 0.5
_FEWEST_NAMED: Final = 10


@dataclass(frozen=True, eq=False)
class Change:
    """How a round differs from an earlier one.

    Attributes
    ----------
    since : str
        The earlier round.
    p_value : float
        Of the hypothesis that both have the same crowd.
    where : tuple of dict
        By how much shares of answers and of cells differ, the largest differences of each first.
        With 95 % confidence the differences are in all intervals at once.
    missing : str
        Why it is unknown in some answers, or at all, where.
    warning : str
        What speaks against the populations.
    """

    since: str
    p_value: float
    where: tuple[dict[str, Any], ...]
    missing: str = ""
    warning: str = ""


@dataclass(frozen=True, eq=False)
class Answered:
    """What a model answers for the public vectors.

    Attributes
    ----------
    name : str
        Of the question.
    answers : tuple of str
    chosen : (J,) integers
        The answer for each public vector.
    """

    name: str
    answers: tuple[str, ...]
    chosen: NDArray[np.int64]

    def classifier(self) -> Classifier:
        """Return a classifier that gives these answers."""
        return classifier(np.eye(len(self.answers))[self.chosen], self.answers)


def answered(
    questions: Mapping[str, Question], outputs: Callable[[Question], Vectors]
) -> tuple[list[Answered], list[str]]:
    """Return the answers of all models for the public vectors, and why others have none."""
    found, missing = [], []
    for question in questions.values():
        if question.answers and question.model is not None:
            try:
                chosen = outputs(question).argmax(axis=1)
            except InvalidInput as error:
                missing.append(f"{question.name}: {error}")
            else:
                found.append(Answered(question.name, question.answers, chosen))
    return found, missing


def compare_crowds(
    own: Population,
    since: str,
    earlier: Population,
    models: Sequence[Answered] = (),
    missing: Sequence[str] = (),
) -> Change:
    """Return how the people of a round differ from those of an earlier one.

    Raises
    ------
    InvalidInput
        If the populations are of different public vectors.
    """
    difference = own.compare(earlier)
    # All intervals, of cells and of answers, hold at once.
    statements = len(own.fit.shares) + sum(len(part.answers) for part in models)
    level = 1 - (1 - LEVEL) / statements
    reasons, rows, warnings = list(missing), [], [difference.warning]
    for model in models:
        try:
            found, warning = _answers_changed(difference, model, level)
        except InvalidInput as error:
            reasons.append(f"{model.name}: {error}")
        else:
            rows += found
            warnings.append(warning)
    where = _largest(rows)
    try:
        where += _cells_changed(difference, models, level)
    except InvalidInput as error:
        reasons.append(f"cells: {error}")
    told = [text for text in dict.fromkeys(warnings) if text]
    # The warning of an answer may begin with that of its population.
    warning = " ".join(
        text for text in told if not any(text != other and text in other for other in told)
    )
    return Change(since, difference.p_value, tuple(where), "; ".join(reasons), warning)


def _answers_changed(
    difference: Difference, model: Answered, level: float
) -> tuple[list[dict[str, Any]], str]:
    """Return by how much the shares of a model's answers differ, and what speaks against it."""
    task = model.classifier()
    found = difference.share(task)
    now = difference.first.share(task).estimate
    low, high = (np.clip(end, -1, 1) for end in found.interval(level))
    rows = [
        {
            "name": f"{model.name}: {name}",
            "before": float(now[place]) - float(found.estimate[place]),
            "now": float(now[place]),
            "change": float(found.estimate[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "coordinates": [],
            "answers": [],
        }
        for place, name in enumerate(model.answers)
    ]
    return rows, found.warning


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: abs(row["change"]), reverse=True)[:_SHOWN]


def _cells_changed(
    difference: Difference, models: Sequence[Answered], level: float
) -> list[dict[str, Any]]:
    """Return by how much the shares of cells differ, the largest first."""
    found, support = difference.cells(), difference.first.support
    low, high = found.interval(level)
    spread = support.vectors.std(axis=0)
    apart = (difference.where() - support.vectors.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    cell_of = support.cells[support.parts]
    rows = [
        {
            "name": f"cell {cell}",
            "before": float(difference.second.fit.shares[cell]),
            "now": float(difference.first.fit.shares[cell]),
            "change": float(found.estimate[cell]),
            "low": float(low[cell]),
            "high": float(high[cell]),
            "coordinates": _coordinates(apart[cell]),
            "answers": [_most_frequent(model, cell_of == cell) for model in models],
        }
        for cell in range(len(found.names))
    ]
    return _largest(rows)


def _coordinates(apart: Vectors) -> list[dict[str, float]]:
    """Return in which coordinates a cell is farthest from the public mean, in deviations."""
    order = np.argsort(-np.abs(apart), kind="stable")[:_COORDINATES]
    return [
        {"coordinate": int(place), "deviations": float(apart[place])}
        for place in order
        if abs(apart[place]) >= _NOTABLE
    ]


def _most_frequent(model: Answered, inside: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the most frequent answer of a cell's public vectors."""
    counts = np.bincount(model.chosen[inside], minlength=len(model.answers))
    best = int(counts.argmax())
    share = float(counts[best] / np.count_nonzero(inside))
    return {"question": model.name, "answer": model.answers[best], "share": share}


def compare_shares(own: Shares, since: str, earlier: Shares, names: Sequence[str]) -> Change:
    """Return how the answers of a round differ from those of an earlier one."""
    both = own.counts + earlier.counts
    kept = np.flatnonzero(both >= _FEWEST_NAMED)
    # Symbols that hardly a report names are taken together: their counts are not normal.
    merge = np.eye(len(both))[kept]
    if len(kept) < len(both):
        rest = np.ones(len(both))
        rest[kept] = 0.0
        merge = np.vstack([merge, rest])
    apart = merge @ (own.estimate - earlier.estimate)
    covariance = merge @ (own.covariance() + earlier.covariance()) @ merge.T
    values, axes = np.linalg.eigh(covariance)
    free = values > _RANK * values[-1]
    statistic = float(np.sum(np.square(axes.T @ apart)[free] / values[free]))
    p_value = float(chdtrc(np.count_nonzero(free), statistic))
    difference = ShareDifference(own, earlier)
    low, high = difference.interval(LEVEL)
    order = np.argsort(-np.abs(difference.estimate), kind="stable")[:_SHOWN]
    where = tuple(
        {
            "name": names[place],
            "before": float(earlier.estimate[place]),
            "now": float(own.estimate[place]),
            "change": float(difference.estimate[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "coordinates": [],
            "answers": [],
        }
        for place in order.tolist()
    )
    return Change(since, p_value, where)


# ---- The verdict


def change_facts(changes: Sequence[Change], level: float) -> dict[str, Any]:
    """Return whether the crowd has changed since any of the earlier rounds, and how.

    Parameters
    ----------
    changes : sequence of Change
        One per earlier round that the round was compared with, the newest one first.
    level : float
        The probability at which an unchanged crowd is said to have changed.
    """
    clearest = min(changes, key=lambda change: change.p_value)
    p_value = min(1.0, len(changes) * clearest.p_value)
    changed = p_value < level
    shown = clearest if changed else changes[0]
    return {
        "changed": changed,
        "p_value": p_value,
        "since": shown.since,
        "compared": [{"round": change.since, "p_value": change.p_value} for change in changes],
        "where": list(shown.where),
        "missing": shown.missing,
        "warning": shown.warning,
        "summary": _summary(changes, shown, p_value, changed=changed),
    }


def no_change_facts(summary: str) -> dict[str, Any]:
    """Return that a round was compared with no other, and why."""
    return {
        "changed": None,
        "p_value": None,
        "since": None,
        "compared": [],
        "where": [],
        "missing": "",
        "warning": "",
        "summary": summary,
    }


def _summary(changes: Sequence[Change], shown: Change, p_value: float, *, changed: bool) -> str:
    chance = f"p = {p_value:.2g}" if p_value >= _LEAST_SHOWN else f"p < {_LEAST_SHOWN:f}"
    if not changed:
        rounds = [change.since for change in changes]
        listed = " and ".join([", ".join(rounds[:-1]), rounds[-1]] if len(rounds) > 1 else rounds)
        plural = "s" if len(rounds) > 1 else ""
        return f"The crowd has not measurably changed since round{plural} {listed} ({chance})."
    text = f"The crowd has changed since round {shown.since} ({chance})"
    if not shown.where:
        reason = shown.missing.removesuffix(".")
        return f"{text}; it is not known where: {reason}." if reason else f"{text}."
    clear = [row for row in shown.where if not row["low"] <= 0 <= row["high"]]
    if not clear:
        return f"{text}; no single share has clearly changed."
    largest = clear[0]  # answers to questions come before cells
    verb = "rose" if largest["change"] > 0 else "fell"
    low, high = sorted(abs(100 * largest[end]) for end in ("low", "high"))
    return (
        f"{text}: the share of {_described(largest)} {verb} by "
        f"{abs(100 * largest['change']):.1f} points (interval {low:.1f} to {high:.1f})."
    )


def _described(row: Mapping[str, Any]) -> str:
    """Return what people of a row are like."""
    if not row["coordinates"] and not row["answers"]:
        return str(row["name"])
    parts = [f"{part['question']}: {part['answer']}" for part in row["answers"][:2]] or [
        f"{'high' if part['deviations'] > 0 else 'low'} coordinate {part['coordinate']}"
        for part in row["coordinates"]
    ]
    return f"{row['name']} ({', '.join(parts)})"
