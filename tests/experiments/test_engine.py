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
from experiments.engine import FILE
from experiments.methods import METHODS
from experiments.simulation import Noise, row_simulation
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


@pytest.mark.parametrize("label", [*METHODS, tiny.ABLATED])
def test_fused_scores_are_those_of_decoding_every_observation(label: str, source: Setting) -> None:
    method = tiny.method(label)
    fused = engine.measure_row(source, method, tiny.BUDGETS, seeds=2)
    decoded = engine.measure_row(source, method, tiny.BUDGETS, seeds=2, fused=False)
    assert fused == decoded


@pytest.mark.parametrize("activation", ["gelu", "tanh", "identity"])
def test_every_activation_is_fused(activation: str) -> None:
    source = tiny.source(300, task=tiny.head(activation=activation))
    method = METHODS["PrivUnitG+PA"]
    fused = engine.measure_row(source, method, [5.0], seeds=2)
    assert fused == engine.measure_row(source, method, [5.0], seeds=2, fused=False)


def _p_value(first: tuple[float, ...], second: np.ndarray) -> float:
    return float(stats.ttest_ind(first, second, equal_var=False).pvalue)


@pytest.mark.parametrize("label", ["Laplace+PA", "PrivUnit2+PA", "PrivUnitG", "IO (delta=10^-5)"])
def test_scores_have_the_law_of_the_release(label: str, source: Setting) -> None:
    method = METHODS[label]
    scores = engine.measure_row(source, method, [5.0], seeds=20)
    assert scores is not None
    sample = source.sample(0)

    def simulated(epsilon: float) -> np.ndarray:
        release = method.make(source, [epsilon])[epsilon]
        return evaluate(release, source.task, *sample, seeds=20, seed=9).runs["accuracy"]

    assert _p_value(scores[5.0], simulated(5.0)) > ALPHA
    # The broken control: a release that spends twice as much.
    assert _p_value(scores[5.0], simulated(10.0)) < ALPHA


def test_results_do_not_depend_on_how_the_work_is_divided(source: Setting, tmp_path: Path) -> None:
    rows = tiny.rows("Laplace+PA", "PrivUnit2", "IO (delta=10^-5)")

    def opener(_: str) -> Setting:
        return source

    whole = engine.run(rows, tmp_path / "a", seeds=2, workers=3, opener=opener)
    parts = []
    for row in rows:
        for epsilon in row.epsilons[::-1]:
            single = replace(row, epsilons=(epsilon,))
            parts += engine.run([single], tmp_path / "b", seeds=2, workers=1, opener=opener)
    scores = {(o.row.label, o.epsilon): o.runs for o in whole}
    assert scores == {(o.row.label, o.epsilon): o.runs for o in parts}
    more = engine.measure_row(source, rows[1].method, [5.0], seeds=3)
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
def test_a_killed_run_resumes_where_it_stopped(
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
    measured = []
    real = engine.measure_row
    monkeypatch.setattr(
        engine,
        "measure_row",
        lambda *args, **kw: (measured.append(args[1]), real(*args, **kw))[1],
    )
    resumed = engine.run(rows, folder, seeds=2, workers=1, opener=lambda _: source)
    assert measured == [METHODS["Laplace+PA"]]
    assert resumed == whole
    assert (folder / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()


def test_an_interrupted_run_keeps_finished_cells(source: Setting, tmp_path: Path) -> None:
    def stop(_: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    rows = tiny.rows("Laplace (l1)", "PrivUnit2", "Laplace+PA")
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows, tmp_path, seeds=1, workers=1, opener=lambda _: source, progress=stop)
    # The next row may finish before all threads have stopped; the third has not started.
    assert (tmp_path / FILE).read_bytes().count(b"\n") in (2, 4)


def test_results_of_other_inputs_are_not_reused(tmp_path: Path) -> None:
    rows = tiny.rows("Laplace+PA", epsilons=(5.0,))
    first = tiny.source(300)
    others = [
        tiny.source(300, task=tiny.head(activation="tanh")),
        replace(first, side=PublicTask(first.task, first.side.vectors[:-1])),
        replace(first, draw=lambda _: (first.sample(0).vectors + 1, first.sample(0).answers)),
    ]
    for source in (first, *others):
        engine.run(rows, tmp_path, seeds=1, opener=lambda _, source=source: source)
    engine.run(rows, tmp_path, seeds=2, opener=lambda _: first)
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 5


def test_a_damaged_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"id": "a"}\n{}\n')
    with pytest.raises(InvalidInput, match="damaged at line 1"):
        engine.run([], tmp_path)


def test_a_source_may_have_another_sample_for_every_seed() -> None:
    source = tiny.changing_source()
    clean = engine.measure_row(source, METHODS["No randomization"], [1.0], seeds=3)
    assert clean is not None
    np.testing.assert_allclose(clean[1.0], 0.1)
    fused = engine.measure_row(source, METHODS["Laplace+PA"], [5.0], seeds=3)
    decoded = engine.measure_row(source, METHODS["Laplace+PA"], [5.0], seeds=3, fused=False)
    assert fused is not None
    assert decoded is not None
    np.testing.assert_allclose(fused[5.0], decoded[5.0], rtol=1e-12)
    assert len(set(fused[5.0])) == 3


def test_a_zero_vector_gets_another_direction_every_time() -> None:
    source = tiny.source(10)
    release = METHODS["PrivUnit2"].make(source, [5.0])[5.0]
    simulation = row_simulation(release, source.task, 5.0)
    prepared = simulation.prepare(np.zeros((4, tiny.DIM)))
    first, second = (simulation.outputs(prepared, Noise("zero", seed, 0, 4)) for seed in (0, 1))
    assert np.isfinite(first).all()
    assert len(np.unique(np.concatenate([first, second], axis=1), axis=1).T) == 8


def test_memory_does_not_grow_with_seeds_budgets_or_vectors() -> None:
    source = tiny.source(20_000)
    assert source.geometry is not None
    method = METHODS["PrivUnit2+PA"]
    epsilons = [0.5 * k for k in range(1, 13)]
    method.make(source, epsilons)
    with bounded(mebibytes=12, seconds=20):
        engine.measure_row(source, method, epsilons, seeds=3)


@pytest.mark.parametrize("label", [key for key in METHODS if key != "No randomization"])
def test_a_release_moved_to_another_budget_is_the_one_fitted_there(label: str) -> None:
    source, fresh = tiny.source(10), tiny.source(10)
    both = METHODS[label].make(source, [1.0, 7.5])[7.5]
    alone = METHODS[label].make(fresh, [7.5])[7.5]
    if isinstance(alone, offaxis.Release):
        assert both == alone
    else:
        np.testing.assert_array_equal(both.scales, alone.scales)


@pytest.mark.parametrize("dim", [2, 3, 16, 64, 512])
def test_the_tabulated_component_is_the_exact_quantile(dim: int) -> None:
    deviate = np.abs(np.random.default_rng(0).standard_normal(2000))
    shape = (dim - 1) / 2
    exact = 1 - 2 * betaincinv(shape, shape, ndtr(-deviate))
    np.testing.assert_allclose(sphere_component(dim)(deviate), exact, atol=2e-9)


def test_seeds_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="seeds must be at least 1"):
        engine.run([], tmp_path, seeds=0)
