from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv, ndtr

import offaxis
from experiments import engine
from experiments.channels import Noise, channel
from experiments.engine import FILE
from experiments.rows import MECHANISMS
from experiments.sources import PublicTask, Setting
from offaxis.errors import InvalidInput
from offaxis.evaluation import evaluate
from offaxis.simulation.randomizers import sphere_component
from tests.checks import ALPHA
from tests.experiments import tiny_study as tiny
from tests.limits import bounded


@pytest.fixture(scope="module")
def source() -> Setting:
    return tiny.source()


@pytest.mark.parametrize("label", [*MECHANISMS, tiny.ABLATED])
def test_fused_scores_are_those_of_decoding_every_observation(label: str, source: Setting) -> None:
    mechanism = tiny.mechanism(label)
    quick = engine.measure_row(source, mechanism, tiny.BUDGETS, seeds=2)
    slow = engine.measure_row(source, mechanism, tiny.BUDGETS, seeds=2, fused=False)
    assert quick == slow


@pytest.mark.parametrize("activation", ["gelu", "tanh", "identity"])
def test_every_activation_is_fused(activation: str) -> None:
    source = tiny.source(300, task=tiny.head(activation=activation))
    mechanism = MECHANISMS["PrivUnitG+PA"]
    quick = engine.measure_row(source, mechanism, [5.0], seeds=2)
    assert quick == engine.measure_row(source, mechanism, [5.0], seeds=2, fused=False)


def _two_sided(first: tuple[float, ...], second: np.ndarray) -> float:
    return float(stats.ttest_ind(first, second, equal_var=False).pvalue)


@pytest.mark.parametrize("label", ["Laplace+PA", "PrivUnit2+PA", "PrivUnitG", "IO (delta=10^-5)"])
def test_scores_are_those_of_the_release_itself(label: str, source: Setting) -> None:
    mechanism = MECHANISMS[label]
    found = engine.measure_row(source, mechanism, [5.0], seeds=20)
    assert found is not None
    sample = source.sample(0)

    def simulated(epsilon: float) -> np.ndarray:
        release = mechanism.make(source, [epsilon])[epsilon]
        return evaluate(release, source.task, *sample, seeds=20, seed=9).runs["accuracy"]

    assert _two_sided(found[5.0], simulated(5.0)) > ALPHA
    # The twin: a release that spends twice as much.
    assert _two_sided(found[5.0], simulated(10.0)) < ALPHA


def test_results_do_not_depend_on_how_the_work_is_divided(source: Setting, tmp_path: Path) -> None:
    rows = tiny.rows("Laplace+PA", "PrivUnit2", "IO (delta=10^-5)")

    def opener(_: str) -> Setting:
        return source

    whole = engine.run(rows, tmp_path / "a", seeds=2, workers=3, opener=opener)
    parts = []
    for row in rows:
        for epsilon in row.epsilons[::-1]:
            one = replace(row, epsilons=(epsilon,))
            parts += engine.run([one], tmp_path / "b", seeds=2, workers=1, opener=opener)
    scores = {(o.row.label, o.epsilon): o.runs for o in whole}
    assert scores == {(o.row.label, o.epsilon): o.runs for o in parts}
    more = engine.measure_row(source, rows[1].mechanism, [5.0], seeds=3)
    assert more is not None
    assert more[5.0][:2] == scores["PrivUnit2", 5.0]


_KILLED = """
import os, signal, sys
from pathlib import Path
from experiments import engine
from tests.experiments import tiny_study as tiny

def kill(label, done, total):
    if done >= 4:
        os.kill(os.getpid(), signal.SIGKILL)

source = tiny.source(300)
engine.run(tiny.rows("Laplace (l1)", "PrivUnit2", "Laplace+PA"), Path(sys.argv[1]), seeds=2,
           workers=1, opener=lambda _: source, progress=kill)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(here)}
    folder = tmp_path / "killed"
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder)], cwd=here, env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    stored = (folder / FILE).read_bytes()
    assert stored.count(b"\n") == 4
    (folder / FILE).write_bytes(stored + b'{"id": "cut sho')

    source = tiny.source(300)
    rows = tiny.rows("Laplace (l1)", "PrivUnit2", "Laplace+PA")
    whole = engine.run(rows, tmp_path / "whole", seeds=2, workers=1, opener=lambda _: source)
    asked = []
    real = engine.measure_row
    monkeypatch.setattr(
        engine,
        "measure_row",
        lambda *args, **kw: (asked.append(args[1]), real(*args, **kw))[1],
    )
    resumed = engine.run(rows, folder, seeds=2, workers=1, opener=lambda _: source)
    assert asked == [MECHANISMS["Laplace+PA"]]
    assert resumed == whole
    assert (folder / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()


def test_an_interrupted_run_keeps_what_was_finished(source: Setting, tmp_path: Path) -> None:
    def stop(_: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    rows = tiny.rows("Laplace (l1)", "PrivUnit2", "Laplace+PA")
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows, tmp_path, seeds=1, workers=1, opener=lambda _: source, progress=stop)
    # The next row may be finished by the time everybody has stopped; the third has not begun.
    assert (tmp_path / FILE).read_bytes().count(b"\n") in (2, 4)


def test_other_inputs_never_meet_old_figures(tmp_path: Path) -> None:
    rows = tiny.rows("Laplace+PA", epsilons=(5.0,))
    first = tiny.source(300)
    others = [
        tiny.source(300, task=tiny.head(activation="tanh")),
        replace(first, side=PublicTask(first.task, first.side.vectors[:-1])),
        replace(first, draw=lambda _: (first.sample(0).vectors + 1, first.sample(0).answers)),
    ]
    for one in (first, *others):
        engine.run(rows, tmp_path, seeds=1, opener=lambda _, one=one: one)
    engine.run(rows, tmp_path, seeds=2, opener=lambda _: first)
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 5


def test_a_damaged_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"id": "a"}\n{}\n')
    with pytest.raises(InvalidInput, match="damaged at line 1"):
        engine.run([], tmp_path)


def test_a_source_may_have_another_sample_for_every_seed() -> None:
    source = tiny.changing_source()
    clean = engine.measure_row(source, MECHANISMS["No randomization"], [1.0], seeds=3)
    assert clean is not None
    np.testing.assert_allclose(clean[1.0], 0.1)
    found = engine.measure_row(source, MECHANISMS["Laplace+PA"], [5.0], seeds=3)
    slow = engine.measure_row(source, MECHANISMS["Laplace+PA"], [5.0], seeds=3, fused=False)
    assert found is not None
    assert slow is not None
    np.testing.assert_allclose(found[5.0], slow[5.0], rtol=1e-12)
    assert len(set(found[5.0])) == 3


def test_a_zero_vector_gets_another_direction_every_time() -> None:
    source = tiny.source(10)
    made = MECHANISMS["PrivUnit2"].make(source, [5.0])[5.0]
    one = channel(made, source.task, 5.0)
    prepared = one.prepare(np.zeros((4, tiny.DIM)))
    first, second = (one.outputs(prepared, Noise("zero", seed, 0, 4)) for seed in (0, 1))
    assert np.isfinite(first).all()
    assert len(np.unique(np.concatenate([first, second], axis=1), axis=1).T) == 8


def test_memory_does_not_grow_with_seeds_budgets_or_vectors() -> None:
    source = tiny.source(20_000)
    assert source.geometry is not None
    mechanism = MECHANISMS["PrivUnit2+PA"]
    epsilons = [0.5 * k for k in range(1, 13)]
    mechanism.make(source, epsilons)
    with bounded(mebibytes=12, seconds=20):
        engine.measure_row(source, mechanism, epsilons, seeds=3)


@pytest.mark.parametrize("label", [key for key in MECHANISMS if key != "No randomization"])
def test_a_mechanism_at_another_budget_is_the_one_fitted_there(label: str) -> None:
    source, fresh = tiny.source(10), tiny.source(10)
    both = MECHANISMS[label].make(source, [1.0, 7.5])[7.5]
    alone = MECHANISMS[label].make(fresh, [7.5])[7.5]
    if isinstance(alone, offaxis.Release):
        assert both == alone
    else:
        np.testing.assert_array_equal(both.scales, alone.scales)


@pytest.mark.parametrize("dim", [2, 3, 16, 64, 512])
def test_the_tabulated_component_is_the_quantile(dim: int) -> None:
    deviate = np.abs(np.random.default_rng(0).standard_normal(2000))
    shape = (dim - 1) / 2
    exact = 1 - 2 * betaincinv(shape, shape, ndtr(-deviate))
    np.testing.assert_allclose(sphere_component(dim)(deviate), exact, atol=2e-9)


def test_seeds_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="seeds must be at least 1"):
        engine.run([], tmp_path, seeds=0)
