"""Entries of a run are valid, finite and public, and a real tracking store accepts them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.auditing import AuditResult, Finding
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.integrations.mlflow import Entries, entries, log_release

VALID = re.compile(r"[\w.\- :/]{1,250}", re.ASCII)


@pytest.fixture(scope="module")
def recommended(head: Any, public: np.ndarray) -> Any:
    return offaxis.recommend({"a task, named oddly": head}, public, epsilon=3)


@pytest.fixture
def audited(release: offaxis.Release) -> AuditResult:
    finding = Finding("worst-pair", "white box", "two poles", "nothing found", "", 10, 0.5, 2.5)
    return AuditResult(
        release=release.hash,
        randomizer="laplace",
        guarantee=release.guarantee,
        findings=(finding,),
        reports=10,
        false_alarm=1e-4,
        needed=None,
        curve=(),
        seed="7",
        versions={},
        seconds=0.5,
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return MLflow with an active run that is stored in a folder."""
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as active:
        yield mlflow, active.info.run_id
    mlflow.set_tracking_uri(None)


def test_the_entries_of_a_release_are_exact(release: offaxis.Release) -> None:
    logged = entries(replace(release, unit="user"))
    assert logged.params["release.epsilon"] == "3"
    assert logged.params["release.delta"] == "0"
    assert logged.params["release.unit"] == "user"
    assert logged.params["release.settings.percentile"] == "90.0"
    assert logged.metrics == {"release.epsilon": 3.0, "release.delta": 0.0}
    assert logged.tags["release.guarantee"] == "ε = 3, pure"


def test_an_evaluation_has_entries(release: offaxis.Release, head: Any, public: np.ndarray) -> None:
    evaluation = evaluate(release, head, public, seeds=3)
    logged = entries(evaluation)
    assert logged.params == {"evaluation.repetitions": "3"}
    assert logged.metrics["evaluation.agreement.mean"] == evaluation.mean("agreement")
    assert logged.metrics["evaluation.agreement.std"] == evaluation.std("agreement")
    assert logged.metrics["evaluation.agreement.clean"] == 1.0


def test_a_recommendation_has_entries_per_task(recommended: Any) -> None:
    logged = entries(recommended)
    assert logged.metrics["recommendation.expected"] == recommended.expected.score
    assert logged.metrics["recommendation.ceiling"] == recommended.ceiling
    assert "recommendation.task.a_task_named_oddly.expected" in logged.metrics
    assert logged.tags["recommendation.summary"] == recommended.summary
    assert logged.params["recommendation.candidate"] == recommended.candidate.title


def test_an_audit_has_entries(audited: AuditResult) -> None:
    logged = entries(audited)
    assert logged.metrics["audit.violations"] == 0.0
    assert logged.metrics["audit.epsilon_at_least"] == 0.5
    assert logged.metrics["audit.resolution"] == 2.5
    assert logged.tags["audit.summary"].startswith("No violation found at ε = 3")
    without_findings = entries(replace(audited, findings=()))
    assert "audit.epsilon_at_least" not in without_findings.metrics


def test_every_entry_is_valid_and_finite(
    release: offaxis.Release, recommended: Any, audited: AuditResult, head: Any, public: np.ndarray
) -> None:
    evaluation = evaluate(release, head, public, seeds=2)
    joined = entries(release).joined(entries(evaluation), entries(recommended), entries(audited))
    for part in (joined.params, joined.metrics, joined.tags):
        assert all(VALID.fullmatch(name) for name in part)
    assert all(type(value) is float and math.isfinite(value) for value in joined.metrics.values())
    assert all(len(text) <= 500 for text in joined.params.values())
    odd = Entries({"": "x", "..": "y" * 900}, {"a": math.inf, "b": math.nan, "c/ d": 1})
    assert odd.metrics == {"c_d": 1.0}
    assert len(odd.params[""]) <= 500


def test_a_run_holds_the_release_and_nothing_private(
    run: Any,
    release: offaxis.Release,
    audited: AuditResult,
    recommended: Any,
    head: Any,
    public: np.ndarray,
    tmp_path: Path,
) -> None:
    mlflow, run_id = run
    evaluation = evaluate(release, head, public, seeds=2)
    log_release(release, evaluation, audited, recommended, folder="published")
    stored = mlflow.get_run(run_id).data
    assert stored.params["release.hash"] == release.hash
    assert stored.metrics["evaluation.agreement.mean"] == evaluation.mean("agreement")
    assert stored.tags["release.guarantee"] == "ε = 3, pure"
    (path,) = tmp_path.rglob(f"{release.hash[:16]}.release")
    assert path.parent.name == "published"
    assert offaxis.load(path, expect=release.hash) == release
    octets = public[0].tobytes()
    assert not any(octets in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_logging_without_an_active_run_raises(release: offaxis.Release, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(InvalidInput, match="no MLflow run is active"):
        log_release(release)
    with pytest.raises(InvalidInput, match="got ndarray"):
        entries(np.zeros((3, 6)))
