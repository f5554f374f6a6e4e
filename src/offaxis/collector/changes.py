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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import chdtrc

from offaxis.collector.drift import FEWEST
from offaxis.collector.means import LEVEL
from offaxis.collector.questions import Question
from offaxis.decoding.shares import ShareDifference, Shares
from offaxis.errors import InvalidInput
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
        Why it is unknown where, if it is.
    warning : str
        What speaks against the populations.
    """

    since: str
    p_value: float
    where: tuple[dict[str, Any], ...]
    missing: str = ""
    warning: str = ""


def compare_crowds(
    own: Population, since: str, earlier: Population, questions: Mapping[str, Question]
) -> Change:
    """Return how the people of a round differ from those of an earlier one."""
    difference = own.compare(earlier)
    models = [part for part in questions.values() if part.answers and part.model is not None]
    # All intervals, of cells and of answers, hold at once.
    statements = len(own.fit.shares) + sum(len(part.answers or ()) for part in models)
    level = 1 - (1 - LEVEL) / statements
    where: list[dict[str, Any]] = []
    missing = ""
    try:
        where += _answers_changed(difference, models, level)
        where += _cells_changed(difference, models, level)
    except InvalidInput as error:
        missing = str(error)
    return Change(since, difference.p_value, tuple(where), missing, difference.warning)


def _answers_changed(
    difference: Difference, questions: Sequence[Question], level: float
) -> list[dict[str, Any]]:
    """Return by how much the shares of answers to questions differ, the largest first."""
    rows = []
    for question in questions:
        found = difference.share(question.model)
        now = difference.first.share(question.model).estimate
        low, high = found.interval(level)
        for place, name in enumerate(found.names):
            change = float(found.estimate[place])
            rows.append(
                {
                    "name": f"{question.name}: {name}",
                    "before": float(now[place]) - change,
                    "now": float(now[place]),
                    "change": change,
                    "low": float(low[place]),
                    "high": float(high[place]),
                    "coordinates": [],
                    "answers": [],
                }
            )
    return _largest(rows)


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: abs(row["change"]), reverse=True)[:_SHOWN]


def _cells_changed(
    difference: Difference, questions: Sequence[Question], level: float
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
            "answers": _answers(support.vectors[cell_of == cell], questions),
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


def _answers(vectors: Vectors, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return the most frequent answer of a cell's public vectors to every question."""
    rows = []
    for question in questions:
        assert question.model is not None
        assert question.answers is not None
        chosen = question.model.outputs(vectors).argmax(axis=1)
        counts = np.bincount(chosen, minlength=len(question.answers))
        best = int(counts.argmax())
        share = float(counts[best] / len(vectors))
        rows.append({"question": question.name, "answer": question.answers[best], "share": share})
    return rows


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
        return f"{text}; there are too few reports to tell where."
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
