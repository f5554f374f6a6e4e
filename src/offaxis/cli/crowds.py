"""How each kind of release answers the questions of ``offaxis ask``.

===========================  ===============================================================
release                      questions
===========================  ===============================================================
of vectors                   share of MODEL · accuracy of MODEL · mean · mean of X · median of
                             X · quantile .9 of X · histogram of X in 10 bins · covariance, with
                             X a coordinate or MODEL[:OUTPUT] · principal directions
of private answers alone     shares · share, histogram, mean, median and quantile of an answer
of second moments            mean · covariance · principal directions
===========================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from scipy.special import ndtri

from offaxis.cli.inputs import load_model
from offaxis.cli.options import UsageError
from offaxis.cli.questions import (
    FORMS,
    WRITTEN,
    Numbers,
    Question,
    Result,
    is_model,
    split_output,
    unbiased,
)
from offaxis.decoding.shares import ShareDifference, Shares
from offaxis.encoding import SecondMomentsEncoder
from offaxis.encoding.pairs import Asked, Classes, Number, PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput, unknown_name
from offaxis.geometry import TaskModel
from offaxis.geometry.models import answer_names
from offaxis.geometry.public import evenly
from offaxis.learning import (
    Answer,
    Difference,
    Estimate,
    Histogram,
    Population,
    SecondMoments,
    SecondMomentSums,
    histogram,
    population,
    second_moments,
)
from offaxis.learning.crowd_answers import normal_limits
from offaxis.learning.frequencies import check_enough
from offaxis.learning.likelihoods import CELLS, MOST_VECTORS
from offaxis.randomizers.memoised import Memoised
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors

OpenReports = Callable[[], AbstractContextManager[Iterator[bytes]]]
"""Opens all reports from the beginning; they may be read more than once."""


class Crowd(Protocol):
    """What answers the questions about the people who reported."""

    @property
    def comparable(self) -> tuple[str, ...]:
        """The verbs of questions that also tell what has changed."""

    def read(self, reports: OpenReports, earlier: OpenReports | None) -> None:
        """Read all reports, and those of an earlier round."""

    def answer(self, question: Question, level: float) -> Result:
        """Answer a question with intervals of this level."""

    @property
    def summary(self) -> str:
        """How well the numbers can be relied on."""

    def facts(self) -> dict[str, Any]:
        """Return the same for programs."""


def crowd_of(
    release: Release,
    questions: Sequence[Question],
    public: Any,
    cells: int | None,
    *,
    compared: bool,
) -> Crowd:
    """Return what answers questions of a release; raise for those that it cannot answer.

    Parameters
    ----------
    release : Release
    questions : sequence of Question
    public : array (n, m) or None
    cells : int or None
    compared : bool
        Whether there are reports of an earlier round.
    """
    encoder = release.encoder
    if isinstance(release.randomizer, Memoised):
        raise UsageError("this is a release of sequences: use offaxis trend")
    if isinstance(encoder, PairEncoder) and encoder.form == "right":
        raise UsageError("this release checks a model: use offaxis learn evaluate")
    if isinstance(encoder, PairEncoder) and release.asked:
        raise UsageError(
            "this release asks for a vector and private answers together: use offaxis learn fit"
        )
    kinds: tuple[tuple[type, type[_OfAnswers | _OfMoments]], ...] = (
        (AnswersEncoder, _OfAnswers),
        (SecondMomentsEncoder, _OfMoments),
    )
    for encoder_type, kind in kinds:
        if isinstance(encoder, encoder_type):
            if public is not None or cells is not None:
                option = "--public" if public is not None else "--cells"
                raise UsageError(f"{option} has no effect for {kind.what}: leave it out")
            _check(questions, kind, compared=compared)
            return kind(release, questions)
    _check(questions, _OfVectors, compared=compared)
    return _OfVectors(release, questions, public, cells)


def _check(questions: Sequence[Question], kind: Any, *, compared: bool) -> None:
    """Reject questions that a kind of release cannot answer, or of which it compares none."""
    for question in questions:
        if question.verb not in kind.verbs:
            raise UsageError(
                f"{kind.what} cannot answer {question.text!r}; it answers: {kind.listed}"
            )
    if compared and not any(question.verb in kind.comparable for question in questions):
        raise UsageError(
            f"--against cannot compare {questions[0].text!r}; for {kind.what} it compares: "
            f"{', '.join(kind.comparable)}"
        )


# ---- Releases of private answers alone


class _OfAnswers:
    what: Final = "a release of private answers alone"
    verbs: Final = ("share", "histogram", "median", "quantile", "mean")
    comparable: Final = ("share", "histogram")
    listed: Final = (
        "shares, share of NAME, and of numbers: histogram of NAME, median of NAME, quantile .9 of "
        "NAME, mean of NAME"
    )

    def __init__(self, release: Release, questions: Sequence[Question]) -> None:
        self.release = release
        self.asked: tuple[Asked, ...] = release.asked
        for question in questions:
            if question.bins is not None:
                raise UsageError(
                    f"{question.text!r}: the release fixes the bins; leave out 'in {question.bins} "
                    f"bins'"
                )
            self._asked_of(question)

    def _asked_of(self, question: Question) -> Asked | None:
        """Return which answer a question is about; None for all of them together."""
        share, about = question.verb == "share", question.about
        if share and about is None:
            return None
        kind: Any = Classes if share else Number
        fitting: list[Asked] = [part for part in self.asked if isinstance(part, kind)]
        if about is None and len(fitting) == 1:
            return fitting[0]
        for part in fitting:
            if part.name == about:
                return part
        if any(part.name == about for part in self.asked):
            kind, other = ("a number", "histogram") if share else ("no number", "share")
            raise UsageError(f"{question.text!r}: {about!r} is {kind}; ask '{other} of {about}'")
        what = "classes" if share else "numbers"
        listed = ", ".join(repr(part.name) for part in fitting)
        known = f"name one of {listed}" if fitting else f"this release asks for no {what}"
        missing = f"no {what} are called {about!r}; " if about is not None and fitting else ""
        raise UsageError(f"{question.text!r}: {missing}{known}")

    def read(self, reports: OpenReports, earlier: OpenReports | None) -> None:
        """Count the symbols that reports name."""
        self.shares = self._counted(reports)
        self.earlier = None if earlier is None else self._counted(earlier)

    def _counted(self, reports: OpenReports) -> Shares:
        with reports() as source:
            return self.release.shares(source)

    def answer(self, question: Question, level: float) -> Result:
        """Answer a question with intervals of this level."""
        part = self._asked_of(question)
        if part is None or (isinstance(part, Classes) and len(self.asked) == 1):
            return _of_shares(question, self.shares, self.earlier, level)
        if isinstance(part, Classes):
            found, before = (
                None if shares is None else self._marginal(shares, part, level)
                for shares in (self.shares, self.earlier)
            )
            assert found is not None
            names = (*part.names, *(["none"] if part.optional else []))
            change = None if before is None else found.minus(before, level)
            return unbiased(Result(question.text, names, found, True, change, "answer"))
        return self._of_number(question, part, level)

    def _marginal(self, shares: Shares, part: Asked, level: float) -> Numbers:
        """Return the shares of one of several answers: sums of the shares of joint values."""
        check_enough(shares)
        encoder = self.release.encoder
        assert isinstance(encoder, AnswersEncoder)
        place = self.asked.index(part)
        values = np.unravel_index(np.arange(encoder.output_dim), encoder.values)[place]
        members = [(values == value).astype(float) for value in range(encoder.values[place])]
        estimate = np.array([member @ shares.estimate for member in members])
        error = np.sqrt([shares.variance(member) for member in members])
        ends = normal_limits(estimate, error)(float(ndtri((1 + level) / 2)), 0.0, 1.0)
        return Numbers.of(estimate, error, ends)

    def _of_number(self, question: Question, part: Any, level: float) -> Result:
        found = histogram(self.release, self.shares, part.name)
        note = "Shares are of all people, also of those without a number."
        if question.verb == "histogram":
            change = None
            numbers = _of_histogram(found, level)
            if self.earlier is not None:
                for shares in (self.shares, self.earlier):
                    check_enough(shares)
                before = histogram(self.release, self.earlier, part.name)
                change = numbers.minus(_of_histogram(before, level), level)
            ends = zip(found.edges[:-1], found.edges[1:], strict=True)
            names = tuple(f"{low:.4g} to {high:.4g}" for low, high in ends)
            notes = (note,) if part.optional else ()
            return unbiased(
                Result(question.text, names, numbers, True, change, part.name, notes=notes)
            )
        value: Estimate = (
            found.mean(level) if question.verb == "mean" else found.quantile(question.level, level)
        )
        numbers = Numbers.of(value.estimate, np.nan, (value.low, value.high))
        note = "Medians, quantiles and means are of the people who have a number."
        return Result(question.text, ("",), numbers, notes=(note,) if part.optional else ())

    @property
    def summary(self) -> str:
        """How well the numbers can be relied on."""
        return f"{int(self.shares.count):,} reports of {self.release.guarantee}."

    def facts(self) -> dict[str, Any]:
        """Return the same for programs."""
        before = None if self.earlier is None else {"reports": int(self.earlier.count)}
        return {"reports": int(self.shares.count), "against": before}


def _of_shares(question: Question, shares: Shares, earlier: Shares | None, level: float) -> Result:
    ends = shares.interval(level, simultaneous=False)
    found, change = Numbers.of(shares.estimate, shares.standard_error, ends), None
    if earlier is not None:
        difference = ShareDifference(shares, earlier)
        ends = difference.interval(level, simultaneous=False)
        change = Numbers.of(difference.estimate, difference.standard_error, ends)
    return unbiased(Result(question.text, tuple(shares.names), found, True, change, "answer"))


def _of_histogram(found: Histogram, level: float) -> Numbers:
    ends = found.interval(level, simultaneous=False)
    return Numbers.of(found.estimate, found.standard_error, ends)


# ---- Releases of second moments


class _OfMoments:
    what: Final = "a release of second moments"
    verbs: Final = ("mean", "covariance", "principal directions")
    comparable: Final = ("mean", "covariance")
    listed: Final = "mean, covariance, principal directions"

    def __init__(self, release: Release, questions: Sequence[Question]) -> None:
        self.release = release
        for question in questions:
            if question.about is not None:
                raise UsageError(
                    f"{question.text!r}: a release of second moments knows the mean in its own "
                    f"coordinates only; ask for the mean"
                )

    def read(self, reports: OpenReports, earlier: OpenReports | None) -> None:
        """Add up what reports tell of second moments."""
        self.found = self._estimated(reports)
        self.earlier = None if earlier is None else self._estimated(earlier)

    def _estimated(self, reports: OpenReports) -> SecondMoments:
        with reports() as source:
            return second_moments(self.release, source)

    def answer(self, question: Question, level: float) -> Result:
        """Answer a question with intervals of this level."""
        if question.verb == "principal directions":
            return _principal(question, self.found, level)
        parts = [part for part in (self.found, self.earlier) if part is not None]
        covariance = question.verb == "covariance"
        tables = [(_covariance if covariance else _mean)(part, level) for part in parts]
        r = self.found.mean.size
        names = _upper_names(r) if covariance else tuple(map(str, range(r)))
        public = self.found.public_covariance if covariance else self.found.public_mean
        assert public is not None
        return Result(
            question.text,
            names,
            tables[0],
            change=tables[0].minus(tables[1], level) if len(tables) > 1 else None,
            about="coordinates" if covariance else "coordinate",
            details={"public": public[np.triu_indices(r)] if covariance else public},
            notes=(
                "Coordinates are the principal directions of the public vectors, in public "
                "standard deviations; vectors are clipped.",
            ),
        )

    @property
    def summary(self) -> str:
        """How well the numbers can be relied on."""
        return f"{self.found.count:,} reports of {self.release.guarantee}."

    def facts(self) -> dict[str, Any]:
        """Return the same for programs."""
        before = None if self.earlier is None else {"reports": self.earlier.count}
        return {"reports": self.found.count, "against": before}


def _mean(found: SecondMoments, level: float) -> Numbers:
    return Numbers.of(found.mean, found.mean_error, found.mean_interval(level))


def _covariance(found: SecondMoments, level: float) -> Numbers:
    upper = np.triu_indices(found.mean.size)
    parts = (found.covariance, found.covariance_error, *found.interval(level))
    estimate, error, low, high = (part[upper] for part in parts)
    return Numbers.of(estimate, error, (low, high))


def _upper_names(size: int) -> tuple[str, ...]:
    return tuple(f"{i}, {j}" for i, j in zip(*np.triu_indices(size), strict=True))


def _principal(question: Question, found: SecondMoments, level: float) -> Result:
    """Return the variances along principal directions, with the directions themselves."""
    principal = found.principal()
    numbers = Numbers.of(principal.values, principal.standard_error, principal.interval(level))
    names = tuple(str(place) for place in range(1, len(principal.values) + 1))
    details = {
        "angle": np.degrees(principal.angle),
        "apart": principal.apart,
        "direction": principal.directions,
    }
    notes: tuple[str, ...] = ()
    if not principal.apart.all():
        notes = (
            "Directions of about the same variance cannot be told apart: of those without an "
            "angle, neither the direction nor the interval holds.",
        )
    return Result(question.text, names, numbers, about="direction", details=details, notes=notes)


# ---- Releases of vectors: a population of public vectors


class _OfVectors:
    what: Final = "a release of vectors"
    verbs: Final = tuple(FORMS)
    comparable: Final = ("share", "mean", "histogram")
    listed: Final = ", ".join(WRITTEN.values())

    def __init__(
        self, release: Release, questions: Sequence[Question], public: Any, cells: int | None
    ) -> None:
        self.release, self.public, self.cells = release, public, cells
        self.models: dict[str, TaskModel] = {}
        self.moments: SecondMoments | None = None
        self.crowd: Population | None = None
        self.earlier: Population | None = None
        self.change: Difference | None = None
        of_public = [part for part in questions if part.verb != "principal directions"]
        self.asks_moments = len(of_public) < len(questions)
        self.asks_population = bool(of_public)
        if self.asks_moments:
            _check_moments(release)
        for question in of_public:
            self._check(question)
        option = "--public" if public is not None else "--cells" if cells is not None else None
        if option is not None and not of_public:
            raise UsageError(f"{option} has no effect for {questions[0].text!r}: leave it out")

    # ---- What a question is about

    def _check(self, question: Question) -> None:
        """Load what a question needs and try it, before any report is read."""
        if question.about is None and question.verb not in ("mean", "covariance"):
            other = ", or use offaxis decode --shares"
            symbols = question.verb == "share" and isinstance(self.release.randomizer, SymbolForm)
            raise UsageError(
                f"{question.text!r} of what? It is written {WRITTEN[question.verb]!r}"
                f"{other if symbols else ''}"
            )
        if self.public is None:
            raise UsageError(
                f"Missing option '--public': {question.text!r} is answered by public vectors that "
                f"stand for the people"
            )
        if np.ndim(self.public) != 2 or np.shape(self.public)[1] != self.release.input_dim:
            raise InvalidInput(
                f"--public must hold vectors of {self.release.input_dim} numbers, one per row, got "
                f"an array of shape {np.shape(self.public)}"
            )
        if question.about is None:
            return
        if question.verb in ("share", "accuracy"):
            source, output = split_output(question.about)
            if output is not None:
                raise UsageError(
                    f"{question.text!r}: {question.verb} is of all answers of a model, as in "
                    f"'{question.verb} of {source}'; mean, median, quantile and histogram are of "
                    f"one output, as in 'mean of {question.about}'"
                )
            self._model(question.about).outputs(self._sample)
            return
        values = self._function(question)(self._sample)
        if values.ndim > 1 and question.verb != "mean":
            outputs = ", ".join(self._names_of(question.about)[:5])
            raise UsageError(
                f"{question.text!r}: the model has several outputs, such as {outputs}; select one "
                f"as {question.about}:OUTPUT"
            )

    @cached_property
    def _sample(self) -> Vectors:
        """The public vectors that will stand for the people; zeros if there are none."""
        if len(self.public) == 0:  # an error of the population, which names the fix
            return np.zeros((1, self.release.input_dim))
        return evenly(self.public, MOST_VECTORS)

    def _model(self, source: str) -> TaskModel:
        if source not in self.models:
            self.models[source] = load_model(source)
        return self.models[source]

    def _names_of(self, about: str) -> tuple[str, ...]:
        """Return the names of the outputs of a model."""
        model = self._model(split_output(about)[0])
        size = model.outputs(self._sample[:1]).shape[1]
        return answer_names(model) or tuple(map(str, range(size)))

    def _function(self, question: Question) -> Callable[[Any], Any]:
        """Return the function of vectors that a question is about."""
        about = question.about
        assert about is not None
        if about.isdecimal():
            coordinate, size = int(about), self.release.input_dim
            if coordinate >= size:
                raise InvalidInput(f"{question.text!r}: coordinates are 0 to {size - 1}")
            return lambda Z: Z[:, coordinate]
        source, output = split_output(about)
        if not is_model(source):
            raise UsageError(
                f"{question.text!r}: {about!r} is neither the number of a coordinate nor a model, "
                f"such as head.safetensors or package.module:attribute"
            )
        names, model = self._names_of(source), self._model(source)
        if output is None:
            return model.outputs if len(names) > 1 else lambda Z: model.outputs(Z)[:, 0]
        if output in names:
            place = names.index(output)
        elif output.isdecimal() and int(output) < len(names):
            place = int(output)
        else:
            raise InvalidInput(f"{question.text!r}: {unknown_name('output', output, names)}")
        return lambda Z: model.outputs(Z)[:, place]

    # ---- Reports

    def read(self, reports: OpenReports, earlier: OpenReports | None) -> None:
        """Read all reports, once for each kind of estimate."""
        if self.asks_moments:
            with reports() as source:
                self.moments = second_moments(self.release, source)
        if self.asks_population:
            self.crowd = self._population(reports)
            if earlier is not None:
                self.earlier = self._population(earlier)
                self.change = self.crowd.compare(self.earlier)

    def _population(self, reports: OpenReports) -> Population:
        cells = CELLS if self.cells is None else self.cells
        with reports() as source:
            return population(self.release, source, self.public, cells=cells)

    def answer(self, question: Question, level: float) -> Result:
        """Answer a question with intervals of this level."""
        if question.verb == "principal directions":
            assert self.moments is not None
            return _principal(question, self.moments, level)
        result = self._result(question, self._asked(self.crowd, question), level)
        if self.change is None or question.verb not in self.comparable:
            return result
        change = self._result(question, self._asked(self.change, question), level)
        return replace(result, change=change.found)

    def _asked(self, crowd: Any, question: Question) -> Answer:
        """Ask a population, or a difference of two."""
        verb, about = question.verb, question.about
        answer: Answer
        if verb == "covariance":
            answer = crowd.covariance()
        elif about is None:
            answer = crowd.mean()
        elif verb in ("share", "accuracy"):
            answer = getattr(crowd, verb)(self._model(about))
        elif verb == "mean":
            answer = crowd.mean(self._function(question))
        elif verb == "histogram":
            answer = crowd.histogram(self._function(question), question.bins or 10)
        else:
            answer = crowd.quantile(self._function(question), question.level)
        return answer

    def _result(self, question: Question, answer: Answer, level: float) -> Result:
        found = Numbers.of(answer.estimate, answer.standard_error, answer.interval(level))
        names, verb = tuple(answer.names), question.verb
        what = {"covariance": "coordinates", "mean": "coordinate", "histogram": "values"}
        about = what.get(verb, "answer")
        if not np.ndim(answer.estimate):
            names = ("",)
        elif verb == "covariance":
            upper = np.triu_indices(self.release.input_dim)
            found, names = found.take(upper), _upper_names(self.release.input_dim)
        elif verb == "mean" and question.about is not None:
            names, about = self._names_of(question.about), "output"
        notes = (_SHRUNK, _BELIEVED) if verb == "accuracy" else (_SHRUNK,)
        shares = verb in ("share", "accuracy", "histogram")
        # That of the population is shown once, for all questions.
        warning = "" if self.crowd is not None and self.crowd.warning else answer.warning
        return Result(
            question.text, names, found, shares, about=about, notes=notes, warning=warning
        )

    @property
    def summary(self) -> str:
        """How well the numbers can be relied on."""
        if self.crowd is not None:
            return self.crowd.summary.removesuffix(self.crowd.warning).strip()
        assert self.moments is not None
        return f"{self.moments.count:,} reports of {self.release.guarantee}."

    def facts(self) -> dict[str, Any]:
        """Return the same for programs."""
        if self.crowd is None:
            assert self.moments is not None
            return {"reports": self.moments.count}
        before = None
        if self.earlier is not None and self.change is not None:
            before = _fit_facts(self.earlier) | {"p_value_of_no_change": self.change.p_value}
        return _fit_facts(self.crowd) | {"against": before}


def _check_moments(release: Release) -> None:
    """Say why, if reports of vectors show no second moments."""
    try:
        SecondMomentSums(release)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; or use offaxis fit --goal covariance") from None


def _fit_facts(crowd: Population) -> dict[str, Any]:
    return {
        "reports": crowd.fit.count,
        "cells": len(crowd.fit.shares),
        "public_vectors": len(crowd.vectors),
        "fit_p_value": crowd.fit.p_value,
        "warning": crowd.warning,
    }


_SHRUNK: Final = "Estimates are shrunk towards the public vectors; their intervals are not."
_BELIEVED: Final = "The model's own probabilities are taken to be right."
