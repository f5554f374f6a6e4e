"""The grammar of the questions of ``offaxis ask``, and what their answers look like."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from offaxis.cli.options import UsageError
from offaxis.vectors import Vectors

# ---- The grammar

FORMS: Final = {
    "share": r"shares?(?: of (?P<about>.+))?",
    "accuracy": r"accuracy of (?P<about>.+)",
    "mean": r"mean(?: of (?P<about>.+))?",
    "median": r"median(?: of (?P<about>.+))?",
    "quantile": r"quantile (?P<level>\S+)(?: of (?P<about>.+))?",
    "histogram": r"histogram(?: of (?P<about>.+?))?(?: in (?P<bins>\d+) bins)?",
    "covariance": r"covariance",
    "principal directions": r"principal directions",
}

WRITTEN: Final = {
    "share": "share of MODEL",
    "accuracy": "accuracy of MODEL",
    "mean": "mean",
    "median": "median of 3",
    "quantile": "quantile .9 of 3",
    "histogram": "histogram of 3 in 10 bins",
    "covariance": "covariance",
    "principal directions": "principal directions",
}


@dataclass(frozen=True)
class Question:
    """A question as text, and what it asks for.

    Attributes
    ----------
    text : str
    verb : str
        A key of the grammar.
    about : str or None
        What follows "of": a model, a coordinate or the name of an answer.
    level : float
        Of a quantile.
    bins : int or None
        Of a histogram.
    """

    text: str
    verb: str
    about: str | None = None
    level: float = 0.5
    bins: int | None = None


def parse(text: str) -> Question:
    """Read a question.

    Raises
    ------
    UsageError
        If it is none of the grammar. The message shows how the nearest one is written.
    """
    words = " ".join(text.split())
    for verb, form in FORMS.items():
        if match := re.fullmatch(form, words, re.IGNORECASE):
            found = {name: value for name, value in match.groupdict().items() if value}
            level, bins = 0.5, found.get("bins")
            if "level" in found:
                level = _level(found["level"], words)
            if bins is not None and not 2 <= int(bins) <= 1000:
                raise UsageError(f"{words!r}: a histogram has 2 to 1,000 bins")
            return Question(
                words, verb, found.get("about"), level, None if bins is None else int(bins)
            )
    first = words.lower().split(" ")[0]
    if near := get_close_matches(first, [form.split(" ")[0] for form in WRITTEN.values()], 1):
        form = next(form for form in WRITTEN.values() if form.split(" ")[0] == near[0])
        raise UsageError(f"{words!r} is no question; one is written {form!r}")
    raise UsageError(f"{words!r} is no question; ask {', '.join(map(repr, WRITTEN.values()))}")


def _level(text: str, question: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = np.nan
    if not 0 < level < 1:
        raise UsageError(f"{question!r}: a quantile has a level between 0 and 1, such as .9")
    return level


_MODEL: Final = re.compile(r"\.(safetensors|pt2|onnx)$|:", re.IGNORECASE)


def is_model(source: str) -> bool:
    """Return whether a text looks like the name of a model."""
    return bool(_MODEL.search(source))


def split_output(about: str) -> tuple[str, str | None]:
    """Split ``head.safetensors:yes`` and ``package.module:attribute:2``."""
    source, colon, output = about.rpartition(":")
    return (source, output) if colon and output and is_model(source) else (about, None)


# ---- Results


@dataclass(frozen=True, eq=False)
class Numbers:
    """Estimates with intervals, (k,) each; an error is NaN where only the interval is known."""

    estimate: Vectors
    error: Vectors
    low: Vectors
    high: Vectors

    @classmethod
    def of(cls, estimate: Any, error: Any, interval: tuple[Any, Any]) -> Numbers:
        """Return numbers as arrays; single ones become arrays of length one."""
        return cls(
            *(np.atleast_1d(np.asarray(p, np.float64)) for p in (estimate, error, *interval))
        )

    def take(self, places: Any) -> Numbers:
        """Return some of the numbers."""
        return Numbers(*(part[places] for part in (self.estimate, self.error, self.low, self.high)))

    def minus(self, other: Numbers, level: float) -> Numbers:
        """Return the difference of independent estimates with normal intervals."""
        change, error = self.estimate - other.estimate, np.hypot(self.error, other.error)
        reach = float(ndtri((1 + level) / 2)) * error
        return Numbers(change, error, change - reach, change + reach)


@dataclass(frozen=True, eq=False)
class Result:
    """The answer of a question.

    Attributes
    ----------
    question : str
    names : tuple of str
        What each number is about; one without text for a question with a single number.
    found : Numbers
    shares : bool
        Whether the numbers are shares, shown in percent.
    change : Numbers or None
        By how much each exceeds that of the earlier reports.
    about : str
        What the names are: "answer", "coordinate", ….
    details : dict
        More columns by name, one value per number.
    notes : tuple of str
        What the reader must know; one that several answers share is shown once.
    warning : str
        What speaks against this answer, beyond what speaks against all of them.
    """

    question: str
    names: tuple[str, ...]
    found: Numbers
    shares: bool = False
    change: Numbers | None = None
    about: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warning: str = ""

    @property
    def single(self) -> bool:
        """Whether the answer is one number."""
        return self.names == ("",)

    @property
    def cut(self) -> bool:
        """Whether an interval of a share ends at 0 or 1, where intervals are cut."""
        return self.shares and bool((self.found.low <= 0).any() or (self.found.high >= 1).any())


_UNBIASED: Final = "Estimates are unbiased: a small share may come out below 0."


def unbiased(result: Result) -> Result:
    """Explain negative shares, if there are any."""
    if not (result.found.estimate < 0).any():
        return result
    return replace(result, notes=(_UNBIASED, *result.notes))
