"""What do the reports of a round teach? The accuracy to expect of a model, and the model.

Reports of pairs (:mod:`offaxis.learning`) are summed in folds by the follower of a round, like the
moments of other reports, and kept with them. Of the people nothing else is needed:

* *cells*: reports that were left out judge the model; this assumes independent people alone;
* *moments*: these do not tell an accuracy, only whether there is anything to learn; a round of
  checks tells it;
* *right*: the round is such a check, and its reports are the accuracy of a public model.

A model is a function of reports, so it costs no privacy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from offaxis.collector.means import LEVEL, Totals, learns, shares_of
from offaxis.encoding.pairs import CellsEncoder, Classes, PairEncoder
from offaxis.errors import InvalidInput
from offaxis.learning.estimators import ReportClassifier, ReportRegressor, learn
from offaxis.learning.sums import PairSums
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release

MOST_FEATURES: Final = 512
MOST_CELLS: Final = 64
MOST_SYMBOLS: Final = 4096
"""What is learnt here; for more, learn from an export."""

_CHECKED: Final = "none: people say privately whether the model is right about them"


def reason_against(release: Release) -> str | None:
    """Return why nothing can be learnt from the reports of a release here; None if it can."""
    encoder = release.encoder
    if not isinstance(encoder, PairEncoder):
        return "the reports of this release hold no answers: a model is learnt from pairs"
    if isinstance(release.randomizer, Memoised):
        return "models are learnt from people who report once, not from sequences"
    if encoder.form == "right":
        return None
    if not release.asked:
        return "the collector does not know the labels: export the reports and learn with them"
    cells = isinstance(encoder, CellsEncoder)
    features = encoder.features > (MOST_CELLS if cells else MOST_FEATURES)
    if features or (cells and encoder.output_dim > MOST_SYMBOLS):
        return "this model is too large to learn here: export the reports and learn from them"
    return None


def sums_of(release: Release, parts: Sequence[Totals]) -> PairSums:
    """Return the sums over the reports of one or more rounds of a release."""
    sums = PairSums(release)
    sums.squares = None  # only for the errors of coefficients, which are not shown
    for totals in parts:
        if totals.folds is not None:
            own = PairSums(release)
            own.counts += totals.folds[:, :1].astype(np.int64)
            own.totals += totals.folds[:, None, 1:]
            sums.merge(own)
    return sums


def learning_facts(release: Release, parts: Sequence[Totals]) -> dict[str, Any]:
    """Return what the reports of one or more rounds of a release teach about each answer.

    Per answer: ``accuracy`` with its 95 % interval and what it rests on, or null; ``evidence``,
    whether there is anything to learn; and ``explained``, for a number, the standard deviation that
    the model explains.
    """
    if not learns(release):
        return _checked_facts(release, parts)
    sums = sums_of(release, parts)
    return {"reports": sums.count, "answers": [_answer_facts(sums, part) for part in release.asked]}


def _answer_facts(sums: PairSums, asked: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": asked.name,
        "classes": len(asked.names) if isinstance(asked, Classes) else None,
        "accuracy": None,
        "evidence": None,
        "explained": None,
    }
    if not sums.count:
        return facts
    try:
        model = learn(sums.release, sums, answer=asked.name)
    except InvalidInput:  # nothing can be learnt of this answer
        return facts
    facts["evidence"] = bool(model.evidence_)
    if isinstance(model, ReportRegressor):
        facts["explained"] = model.explained_deviation()
    elif isinstance(sums.release.encoder, CellsEncoder):
        facts["accuracy"] = _expected(model)
    return facts


def _expected(model: ReportClassifier) -> dict[str, Any] | None:
    try:
        found = model.expected_accuracy(level=LEVEL)
    except InvalidInput:  # too few reports to judge a model
        return None
    return _accuracy(found.estimate, found.low, found.high, found.assumption)


def _checked_facts(release: Release, parts: Sequence[Totals]) -> dict[str, Any]:
    """Return the accuracy of the public model of a check, from one round of it."""
    (totals,) = parts
    (asked,) = release.asked
    accuracy = None
    if totals.observed.count:
        shares = shares_of(release, totals.observed)
        low, high = shares.interval(LEVEL)
        estimate = min(1.0, max(0.0, float(shares.estimate[1])))
        accuracy = _accuracy(estimate, float(low[1]), float(high[1]), _CHECKED)
    classes = len(asked.names) if isinstance(asked, Classes) else None
    answer = {"name": asked.name, "classes": classes, "evidence": None, "explained": None}
    return {"reports": totals.observed.count, "answers": [{**answer, "accuracy": accuracy}]}


def _accuracy(estimate: float, low: float, high: float, assumption: str) -> dict[str, Any]:
    return {"estimate": estimate, "low": low, "high": high, "assumption": assumption}


def learnt_model(release: Release, parts: Sequence[Totals], answer: str | None) -> bytes:
    """Return the model learnt from the reports, a file that ``offaxis.geometry.Layers.load`` reads.

    Raises
    ------
    InvalidInput
        If there are no reports, or the answer is not asked for.
    """
    model = learn(release, sums_of(release, parts), answer=answer)
    with tempfile.TemporaryDirectory(prefix="offaxis-model-") as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return path.read_bytes()
