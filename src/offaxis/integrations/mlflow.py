"""MLflow: the guarantee and the measured utility of a release, as entries of a run.

Only public facts are logged: parameters, scores and the release file. No function here accepts a
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

from offaxis.auditing.result import AuditResult
from offaxis.card import guarantee_facts
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.evaluation.metrics import Evaluation
from offaxis.evaluation.recommendation import Recommendation
from offaxis.release import Release

__all__ = ["Entries", "entries", "log_release"]

Loggable = Release | Evaluation | Recommendation | AuditResult

_LONGEST_PARAMETER: Final = 500
_LONGEST_TAG: Final = 5000
_INVALID_IN_KEY: Final = re.compile(r"[^\w.\-]+", re.ASCII)


@dataclass(frozen=True)
class Entries:
    """Flat entries of a run: keys valid in every tracking store, finite numbers, short texts.

    Attributes
    ----------
    params : dict of str
        Settings, as exact text.
    metrics : dict of float
        Scores; values that are not finite are left out.
    tags : dict of str
        Sentences.

    Examples
    --------
    >>> from offaxis.integrations.mlflow import Entries
    >>> run = Entries(metrics={"accuracy": 0.9, "rmse": float("nan")}, params={"epsilon": "4"})
    >>> run.metrics, run.params
    ({'accuracy': 0.9}, {'epsilon': '4'})
    >>> run.joined(Entries(tags={"data set, public": "digits"})).tags
    {'data_set_public': 'digits'}
    """

    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make keys valid, shorten texts, and leave out numbers that are not finite."""
        numbers = {k: float(v) for k, v in self.metrics.items() if math.isfinite(v)}
        object.__setattr__(self, "params", _texts(self.params, _LONGEST_PARAMETER))
        object.__setattr__(self, "metrics", {_key(name): v for name, v in numbers.items()})
        object.__setattr__(self, "tags", _texts(self.tags, _LONGEST_TAG))

    def joined(self, *others: Entries) -> Entries:
        """Return all entries together; later entries replace earlier ones of the same name."""
        parts = (self, *others)
        return Entries(
            _merged(part.params for part in parts),
            _merged(part.metrics for part in parts),
            _merged(part.tags for part in parts),
        )


def entries(result: Loggable) -> Entries:
    """Return the entries of a release, an evaluation, a recommendation or an audit.

    Parameters
    ----------
    result : Release, Evaluation, Recommendation or AuditResult

    Returns
    -------
    Entries
        With the prefix ``release.``, ``evaluation.``, ``recommendation.`` or ``audit.``.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.evaluation import evaluate
    >>> from offaxis.integrations.mlflow import entries
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:2], public, epsilon=4, mechanism="laplace")
    >>> entries(release).params["release.epsilon"], entries(release).tags["release.guarantee"]
    ('4', 'ε = 4, pure')
    >>> sorted(entries(evaluate(release, np.eye(3)[:2], public, seeds=2)).metrics)
    ['evaluation.agreement.clean', 'evaluation.agreement.mean', 'evaluation.agreement.std', ...]
    """
    if isinstance(result, Release):
        return _of_release(result)
    if isinstance(result, Evaluation):
        return _of_evaluation(result)
    if isinstance(result, Recommendation):
        return _of_recommendation(result)
    if isinstance(result, AuditResult):
        return _of_audit(result)
    raise InvalidInput(
        f"only a release, an evaluation, a recommendation or an audit has entries, "
        f"got {type(result).__name__}"
    )


def log_release(
    release: Release, *results: Evaluation | Recommendation | AuditResult, folder: str = "release"
) -> None:
    """Log a release, its results and its file to the active MLflow run.

    Parameters
    ----------
    release : Release
    *results : Evaluation, Recommendation or AuditResult
        Logged together with it.
    folder : str
        Folder among the run's artifacts for the release file, named by the start of its hash.

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
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:2], public, epsilon=4, mechanism="laplace")
    >>> log_release(release)                       # call it inside: with mlflow.start_run():
    Traceback (most recent call last):
    offaxis.errors.InvalidInput: no MLflow run is active: ...
    """
    mlflow = _import_mlflow()
    if mlflow.active_run() is None:
        raise InvalidInput("no MLflow run is active: log inside `with mlflow.start_run():`")
    logged = entries(release).joined(*(entries(result) for result in results))
    mlflow.log_params(logged.params)
    mlflow.log_metrics(logged.metrics)
    mlflow.set_tags(logged.tags)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / f"{release.hash[:16]}.release"
        release.save(path)
        mlflow.log_artifact(str(path), folder)


def _of_release(release: Release) -> Entries:
    guarantee, origin = guarantee_facts(release), release.provenance
    params: dict[str, Any] = {name: guarantee[name] for name in ("epsilon", "delta", "unit")}
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
    # Also as numbers, for the axis of a chart.
    budget = release.guarantee
    metrics = {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
    tags = {"guarantee": str(release.guarantee)}
    if origin.statement:
        tags["statement"] = origin.statement
    return _under("release", Entries(params, metrics, tags))


def _of_evaluation(evaluation: Evaluation) -> Entries:
    metrics: dict[str, float] = {}
    for name, clean in evaluation.clean.items():
        metrics |= {
            f"{name}.mean": evaluation.mean(name),
            f"{name}.std": evaluation.std(name),
            f"{name}.clean": clean,
        }
    repetitions = {len(runs) for runs in evaluation.runs.values()}
    params = {"repetitions": str(max(repetitions, default=0))}
    return _under("evaluation", Entries(params, metrics))


def _of_recommendation(recommendation: Recommendation) -> Entries:
    params = {
        "goal": recommendation.goal,
        "epsilon": str(recommendation.epsilon),
        "candidate": recommendation.candidate.title,
        "finalists": str(len(recommendation.candidates)),
    }
    metrics = {
        "expected": recommendation.expected.score,
        "standard_error": recommendation.expected.error,
        "ceiling": recommendation.ceiling,
        "cautions": float(len(recommendation.cautions)),
    }
    for name, utility in recommendation.expected_by_task.items():
        metrics[f"task.{name}.expected"] = utility.score
        metrics[f"task.{name}.ceiling"] = recommendation.ceiling_by_task[name]
    tags = {"summary": recommendation.summary, "cautions": " ".join(recommendation.cautions)}
    return _under("recommendation", Entries(params, metrics, tags))


def _of_audit(audit: AuditResult) -> Entries:
    strongest = audit.strongest
    metrics = {
        "reports": float(audit.reports),
        "violations": float(len(audit.by_verdict("violation"))),
        "side_channels": float(len(audit.by_verdict("side channel"))),
        "epsilon_at_least": math.nan if strongest is None else strongest.epsilon or 0.0,
        "resolution": audit.resolution,
        "false_alarm": audit.false_alarm,
        "seconds": audit.seconds,
    }
    params = {"release": audit.release or audit.target or "", "auditor_seed": audit.seed}
    return _under("audit", Entries(params, metrics, {"summary": audit.summary}))


def _under(prefix: str, part: Entries) -> Entries:
    def prefixed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{prefix}.{name}": value for name, value in values.items()}

    return Entries(prefixed(part.params), prefixed(part.metrics), prefixed(part.tags))


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _key(name: str) -> str:
    return _INVALID_IN_KEY.sub("_", name).strip("_.")[:250]


def _texts(values: Mapping[str, Any], longest: int) -> dict[str, str]:
    return {_key(name): str(value)[:longest] for name, value in values.items()}


def _import_mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingExtra(f"log_release needs MLflow: {installing('mlflow')}") from None
    return mlflow
