"""MLflow: what a release promises and what it was found to keep, as entries of a run.

Only what is public is logged: parameters, scores and the release file. No function here takes a
vector or a report.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from offaxis.audit.result import AuditResult
from offaxis.card import guarantee_facts
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.evaluation.metrics import Evaluation
from offaxis.evaluation.recommendation import Recommendation
from offaxis.release import Release

__all__ = ["Entries", "entries", "log_release"]

Findings = Release | Evaluation | Recommendation | AuditResult

_LONGEST_PARAMETER: Final = 500
_LONGEST_TAG: Final = 5000
_ODD: Final = re.compile(r"[^\w.\-]+", re.ASCII)


@dataclass(frozen=True)
class Entries:
    """Flat entries of a run: keys that every tracking store takes, finite numbers, short texts.

    Attributes
    ----------
    params : dict of str
        Settings, as exact text.
    metrics : dict of float
        Scores; what is not a finite number is left out.
    tags : dict of str
        Sentences.

    Examples
    --------
    >>> from offaxis.integrations.mlflow import Entries
    >>> one = Entries(metrics={"accuracy": 0.9, "rmse": float("nan")}, params={"epsilon": "4"})
    >>> one.metrics, one.params
    ({'accuracy': 0.9}, {'epsilon': '4'})
    >>> one.joined(Entries(tags={"a name, with signs": "text"})).tags
    {'a_name_with_signs': 'text'}
    """

    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make keys valid, texts short enough, and leave out numbers that are not finite."""
        numbers = {k: float(v) for k, v in self.metrics.items() if math.isfinite(v)}
        object.__setattr__(self, "params", _texts(self.params, _LONGEST_PARAMETER))
        object.__setattr__(self, "metrics", {_key(name): v for name, v in numbers.items()})
        object.__setattr__(self, "tags", _texts(self.tags, _LONGEST_TAG))

    def joined(self, *others: Entries) -> Entries:
        """Return all entries together; the last of a name counts."""
        every = (self, *others)
        return Entries(
            _merged(one.params for one in every),
            _merged(one.metrics for one in every),
            _merged(one.tags for one in every),
        )


def entries(found: Findings) -> Entries:
    """Return the entries of a release, an evaluation, a recommendation or an audit.

    Parameters
    ----------
    found : Release, Evaluation, Recommendation or AuditResult

    Returns
    -------
    Entries
        Under ``release.``, ``evaluation.``, ``recommendation.`` or ``audit.``.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.evaluation import evaluate
    >>> from offaxis.integrations.mlflow import entries
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:2], public, epsilon=4)
    >>> entries(release).params["release.epsilon"], entries(release).tags["release.guarantee"]
    ('4', 'ε = 4, pure')
    >>> sorted(entries(evaluate(release, np.eye(3)[:2], public, seeds=2)).metrics)
    ['evaluation.agreement.clean', 'evaluation.agreement.mean', 'evaluation.agreement.std', ...]
    """
    if isinstance(found, Release):
        return _of_release(found)
    if isinstance(found, Evaluation):
        return _of_evaluation(found)
    if isinstance(found, Recommendation):
        return _of_recommendation(found)
    if isinstance(found, AuditResult):
        return _of_audit(found)
    raise InvalidInput(
        f"there are entries of a release, an evaluation, a recommendation or an audit, "
        f"got {type(found).__name__}"
    )


def log_release(
    release: Release, *found: Evaluation | Recommendation | AuditResult, folder: str = "release"
) -> None:
    """Log a release to the active MLflow run: its entries, what was found of it, and its file.

    Parameters
    ----------
    release : Release
    *found : Evaluation, Recommendation or AuditResult
        Logged beside it.
    folder : str
        Of the run's artifacts, where the release file goes, named by the start of its hash.

    Raises
    ------
    InvalidInput
        If no run is active.
    MissingExtra
        If MLflow is not installed.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.integrations.mlflow import log_release
    >>> release = fit(np.eye(3)[:2], np.random.default_rng(0).normal(size=(99, 3)), epsilon=4)
    >>> log_release(release)                       # inside: with mlflow.start_run():
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: no MLflow run is active: ...
    """
    tracking = _mlflow()
    if tracking.active_run() is None:
        raise InvalidInput("no MLflow run is active: log inside of `with mlflow.start_run():`")
    whole = entries(release).joined(*(entries(one) for one in found))
    tracking.log_params(whole.params)
    tracking.log_metrics(whole.metrics)
    tracking.set_tags(whole.tags)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{release.hash[:16]}.release"
        release.save(path)
        tracking.log_artifact(str(path), folder)


def _of_release(release: Release) -> Entries:
    promised, origin = guarantee_facts(release), release.provenance
    params: dict[str, Any] = {name: promised[name] for name in ("epsilon", "delta", "unit")}
    params |= {
        "hash": release.hash,
        "randomizer": release.randomizer.kind,
        "encoder": release.encoder.kind,
        "input_dim": release.input_dim,
        "encoded_dim": release.encoder.output_dim,
        "report_bytes": release.report_size,
        "public_vectors": origin.public.count,
        "model": origin.model.name if origin.model else "none",
    }
    params |= {f"settings.{name}": value for name, value in origin.settings.items()}
    # As numbers, too, for the axis of a chart.
    budget = release.guarantee
    metrics = {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
    tags = {"guarantee": str(release.guarantee)}
    if origin.statement:
        tags["statement"] = origin.statement
    return _under("release", Entries(params, metrics, tags))


def _of_evaluation(found: Evaluation) -> Entries:
    metrics: dict[str, float] = {}
    for name, clean in found.clean.items():
        metrics |= {
            f"{name}.mean": found.mean(name),
            f"{name}.std": found.std(name),
            f"{name}.clean": clean,
        }
    repetitions = {len(runs) for runs in found.runs.values()}
    params = {"repetitions": str(max(repetitions, default=0))}
    return _under("evaluation", Entries(params, metrics))


def _of_recommendation(found: Recommendation) -> Entries:
    params = {
        "goal": found.goal,
        "epsilon": str(found.epsilon),
        "candidate": found.candidate.title,
        "finalists": str(len(found.candidates)),
    }
    metrics = {
        "expected": found.expected.score,
        "standard_error": found.expected.error,
        "ceiling": found.ceiling,
        "cautions": float(len(found.cautions)),
    }
    for name, utility in found.expected_by_task.items():
        metrics[f"task.{name}.expected"] = utility.score
        metrics[f"task.{name}.ceiling"] = found.ceiling_by_task[name]
    tags = {"summary": found.summary, "cautions": " ".join(found.cautions)}
    return _under("recommendation", Entries(params, metrics, tags))


def _of_audit(found: AuditResult) -> Entries:
    strongest = found.strongest
    metrics = {
        "reports": float(found.reports),
        "violations": float(len(found.by_verdict("violation"))),
        "side_channels": float(len(found.by_verdict("side channel"))),
        "epsilon_at_least": math.nan if strongest is None else strongest.epsilon or 0.0,
        "resolution": found.resolution,
        "false_alarm": found.false_alarm,
        "seconds": found.seconds,
    }
    params = {"release": found.release, "auditor_seed": found.seed}
    return _under("audit", Entries(params, metrics, {"summary": found.summary}))


def _under(prefix: str, found: Entries) -> Entries:
    parts = ({f"{prefix}.{name}": value for name, value in part.items()} for part in _parts(found))
    params, metrics, tags = parts
    return Entries(params, metrics, tags)


def _parts(found: Entries) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return found.params, found.metrics, found.tags


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _key(name: str) -> str:
    return _ODD.sub("_", name).strip("_.")[:250]


def _texts(given: Mapping[str, Any], longest: int) -> dict[str, str]:
    return {_key(name): str(value)[:longest] for name, value in given.items()}


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingExtra(
            f"offaxis.integrations.mlflow logs to MLflow: {installing('mlflow')}"
        ) from None
    return mlflow
