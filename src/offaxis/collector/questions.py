"""What would the people of a round answer? Questions about their population, or their answers.

A *question* is a public function of a vector, asked of the population of a round: a model that a
publisher attached under a name, or ``vectors``, the coordinates themselves. Its outputs are the
scores of a classifier's answers, of which people have shares, or numbers, of which they have a
mean, quantiles and a histogram. A round of answers alone has its own questions: what people were
asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from offaxis.collector.means import LEVEL, Totals, shares_of
from offaxis.collector.models import VECTORS
from offaxis.collector.store import AttachedModel
from offaxis.encoding.pairs import Asked, Classes
from offaxis.encoding.questions import AnswersEncoder, value_names
from offaxis.errors import InvalidInput
from offaxis.geometry import Classifier
from offaxis.learning.crowd_answers import Answer
from offaxis.learning.frequencies import FEWEST, Histogram, histogram
from offaxis.learning.population import Population
from offaxis.release import Release
from offaxis.vectors import Vectors

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
BINS: Final = 10
MOST_BINS: Final = 100
MOST_SHARES: Final = 200
"""The shares of more answers than that are those of the most frequent ones."""

_EXACT: Final = "Shares hold for every population whose devices report honestly."


@dataclass(frozen=True)
class Question:
    """A question about a release.

    Attributes
    ----------
    name : str
    outputs : int
        Number of numbers that it gives per vector; 1 for an answer.
    answers : tuple of str, or None
        What people can answer, if they have shares.
    model : AttachedModel, optional
        None for the vectors themselves and for answers that people reported.
    """

    name: str
    outputs: int
    answers: tuple[str, ...] | None
    model: AttachedModel | None = None

    def facts(self) -> dict[str, Any]:
        """Return the question for JSON, with the hash of its model."""
        answers = None if self.answers is None else list(self.answers)
        hash_ = None if self.model is None else self.model.hash
        return {"name": self.name, "outputs": self.outputs, "answers": answers, "hash": hash_}

    def place(self, output: int | None) -> int:
        """Return which of its outputs is the number that is asked for."""
        if output is None:
            if self.outputs > 1:
                raise InvalidInput(
                    f"the question {self.name!r} has {self.outputs} numbers: pass output=0 to "
                    f"output={self.outputs - 1}"
                )
            output = 0
        if not 0 <= output < self.outputs:
            raise InvalidInput(
                f"the question {self.name!r} has the outputs 0 to {self.outputs - 1}, not {output}"
            )
        return output


def questions_of(release: Release, attached: Iterable[AttachedModel]) -> dict[str, Question]:
    """Return the questions about a release, by name."""
    if isinstance(release.encoder, AnswersEncoder):
        return {
            part.name: Question(
                part.name, 1, value_names(part) if isinstance(part, Classes) else None
            )
            for part in release.asked
        }
    found = {VECTORS: Question(VECTORS, release.input_dim, None)}
    for model in attached:
        names = model.answers or tuple(map(str, range(model.outputs)))
        answers = names if model.outputs > 1 else None
        found[model.name] = Question(model.name, model.outputs, answers, model)
    return found


def find(questions: Mapping[str, Question], name: str) -> Question:
    """Return a question by name."""
    if name not in questions:
        listed = ", ".join(map(repr, questions))
        raise InvalidInput(f"no question {name!r:.80} about this release; there are {listed}")
    return questions[name]


def population_facts(population: Population) -> dict[str, Any]:
    """Return how well public vectors explain the reports."""
    fit = population.fit
    return {
        "reports": fit.count,
        "summary": population.summary,
        "warning": population.warning,
        "fit": {
            "warning": population.warning,
            "p_value": None if np.isnan(fit.p_value) else fit.p_value,
            "explained": population.explained,
            "cells": len(fit.shares),
            "vectors": len(population.vectors),
        },
    }


# ---- Questions about a population


def answer(
    population: Population, question: Question, outputs: Vectors, output: int | None, bins: int
) -> dict[str, Any]:
    """Return the answer of the people: shares, or the distribution of a number.

    Parameters
    ----------
    population : Population
    question : Question
    outputs : (J, k) array
        What the question gives for the public vectors of the population.
    output : int, optional
        Which of its numbers is asked for; by default the shares of its answers.
    bins : int

    Raises
    ------
    InvalidInput
        If the question has no such output, or the reports are too few for every part of the answer.
    """
    if question.answers is not None and output is None:
        shares = population.share(classifier(outputs, question.answers))
        public = np.bincount(outputs.argmax(axis=1), minlength=len(question.answers))
        rows = _rows(shares, public / len(outputs))
        named = [{"name": name, **row} for name, row in zip(question.answers, rows, strict=True)]
        warned = _with_warnings(population, [shares])
        return {**_nothing(), **warned, "shares": _most_frequent(named)}
    place = question.place(output)

    def function(Z: Vectors) -> Vectors:
        return outputs[:, place]

    values = population.values(function)
    edges = np.histogram_bin_edges(values, bins)
    found, missing = _nothing(), []
    answers: list[Answer] = []

    def noted(part: Answer) -> Answer:
        answers.append(part)
        return part

    asked: dict[str, Callable[[], Any]] = {
        "mean": lambda: _rows(noted(population.mean(function)), [values.mean()])[0],
        "histogram": lambda: _histogram(
            noted(population.histogram(function, edges)), edges, values
        ),
    }
    for name, compute in asked.items():
        try:
            found[name] = compute()
        except InvalidInput as error:
            missing.append(f"{name}: {error}")
    if len(missing) == len(asked):
        raise InvalidInput(missing[0].partition(": ")[2])
    quantiles = _rows(
        noted(population.quantile(function, list(QUANTILES))), np.quantile(values, QUANTILES)
    )
    found["quantiles"] = [{"q": q, **row} for q, row in zip(QUANTILES, quantiles, strict=True)]
    return {**found, **_with_warnings(population, answers), "missing": missing}


def classifier(outputs: Vectors, answers: Sequence[str]) -> Classifier:
    """Return the classifier with these outputs for the public vectors, in their order."""
    # A classifier may be tried on the first vector alone.
    return Classifier(lambda Z: outputs[: len(Z)], answers)


def _with_warnings(population: Population, answers: Iterable[Answer]) -> dict[str, str]:
    """Return the summary and the warning of a population, with those of its answers."""
    warning = population.warning
    own: list[str] = []
    for part in answers:
        # A population's warning is in those of its answers.
        text = part.warning.replace(warning, "").strip()
        if text and text not in own:
            own.append(text)
    return {
        "summary": " ".join([population.summary, *own]),
        "warning": " ".join(filter(None, [warning, *own])),
    }


def _nothing() -> dict[str, Any]:
    return {"shares": None, "histogram": None, "mean": None, "quantiles": None, "missing": []}


def _histogram(found: Answer, edges: Vectors, values: Vectors) -> dict[str, Any]:
    public = np.histogram(values, edges)[0] / len(values)
    return {"edges": edges.tolist(), "bins": _rows(found, public)}


def _rows(found: Answer, public: Any) -> list[dict[str, float | None]]:
    """Return every number of an answer with its error, its interval and the public number."""
    low, high = found.interval(LEVEL)
    parts = (found.estimate, found.standard_error, low, high, public)
    names = ("estimate", "standard_error", "low", "high", "public")
    columns = [
        [number if math.isfinite(number) else None for number in np.ravel(part).tolist()]
        for part in parts
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _most_frequent(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(rows) <= MOST_SHARES:
        return rows
    return sorted(rows, key=lambda row: row["estimate"], reverse=True)[:MOST_SHARES]


# ---- Answers that people reported


def reported(release: Release, totals: Totals, name: str | None) -> dict[str, Any]:
    """Return the shares or the distribution of an answer that people reported, and nothing else.

    Raises
    ------
    InvalidInput
        If there are fewer reports than :data:`~offaxis.learning.frequencies.FEWEST`.
    """
    count = totals.observed.count
    if count < FEWEST:
        raise InvalidInput(
            f"{count} reports are too few for shares of answers: at least {FEWEST} are needed"
        )
    facts = {
        "reports": count,
        "summary": f"{count:,} reports at ε = {float(release.guarantee.epsilon):g}. {_EXACT}",
        "warning": "",
        "fit": None,
    }
    if name is None:
        return facts
    (asked,) = (part for part in release.asked if part.name == name)
    shares = shares_of(release, totals.observed)
    if isinstance(asked, Classes):
        marginal = Histogram(
            np.arange(len(value_names(asked)) + 1.0), _values(release, asked), shares
        )
        rows = _bins(marginal)
        named = [
            {"name": value, **row} for value, row in zip(value_names(asked), rows, strict=True)
        ]
        return facts | {**_nothing(), "shares": _most_frequent(named)}
    found = histogram(release, shares, name)
    quantiles = [found.quantile(q, LEVEL)._asdict() for q in QUANTILES]
    empty = {"standard_error": None, "public": None}
    return facts | {
        **_nothing(),
        "histogram": {"edges": found.edges.tolist(), "bins": _bins(found)},
        "mean": {**found.mean(LEVEL)._asdict(), **empty},
        "quantiles": [
            {"q": q, **row, **empty} for q, row in zip(QUANTILES, quantiles, strict=True)
        ],
    }


def _values(release: Release, asked: Asked) -> Any:
    """Return which value of an answer each symbol of a release has."""
    encoder = release.encoder
    assert isinstance(encoder, AnswersEncoder)
    place = [part.name for part in release.asked].index(asked.name)
    values = np.unravel_index(np.arange(encoder.output_dim), encoder.values)[place]
    return values.astype(np.int64)


def _bins(found: Histogram) -> list[dict[str, Any]]:
    low, high = found.interval(LEVEL)
    columns = (found.estimate, found.standard_error, low, high)
    names = ("estimate", "standard_error", "low", "high")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [{**dict(zip(names, row, strict=True)), "public": None} for row in rows]
