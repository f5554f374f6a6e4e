"""Spark: the same results as one machine, one report per record, outputs complete or absent."""

from __future__ import annotations

import json
import os
import pickle
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import offaxis
from offaxis.decoding.decoders import ShiftDecoder
from offaxis.encoding import ShiftEncoder
from offaxis.engines import spark as engine
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.spark import jobs
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.geometry import PublicVectors, measure
from offaxis.randomizers import Gaussian
from offaxis.sampling.entropy import JobKey
from tests.checks import ALPHA
from tests.engines.test_local import noise_of

# pyspark 3.5 uses distutils for versions, and leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def job(spark, records, release, tmp_path_factory):
    """A folder of reports, the facts of the job, and its progress."""
    out = tmp_path_factory.mktemp("spark") / "out"
    steps = []
    frame = spark.read.parquet(str(records)).repartition(2)
    facts = engine.privatize(frame, release, str(out), progress=lambda *step: steps.append(step))
    return out, facts, steps


def reports_in(folder) -> dict:
    table = pq.read_table(folder)
    return dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))


def test_the_gram_matches_one_machine_up_to_rounding(frame, head, vectors):
    local = measure(head, PublicVectors(vectors))
    remote = measure(head, engine.SparkVectors(frame))
    assert remote.gram == pytest.approx(local.gram, rel=1e-13, abs=1e-13 * np.abs(local.gram).max())
    assert remote.mean == pytest.approx(local.mean, rel=1e-12)
    assert remote.covariance == pytest.approx(local.covariance, rel=1e-10)


@pytest.mark.parametrize("mechanism", ["laplace", "response"])
def test_a_release_is_fitted_to_a_frame(frame, head, vectors, mechanism):
    release = offaxis.fit(head, engine.SparkVectors(frame), epsilon=3, mechanism=mechanism)
    public = release.provenance.public
    assert (public.count, public.dim) == vectors.shape
    if mechanism == "laplace":
        expected = offaxis.fit(head, vectors, epsilon=3, mechanism="laplace")
        assert release.encoder.matrix == pytest.approx(expected.encoder.matrix, rel=1e-9, abs=1e-12)
        assert release.randomizer.radius == pytest.approx(expected.randomizer.radius, rel=0.02)
        again = offaxis.fit(
            head, engine.SparkVectors(frame.repartition(3)), epsilon=3, mechanism="laplace"
        )
        assert public == again.provenance.public


def test_every_record_has_a_report_of_the_release(job, release, vectors):
    out, facts, steps = job
    reports = reports_in(out)
    assert facts["reports"] == len(reports) == len(vectors)
    assert json.loads((out / "_offaxis.json").read_text()) == facts
    assert release.decode(list(reports.values())).shape == vectors.shape
    assert steps
    assert all(0 <= done <= known for done, known in steps)


def test_the_noise_is_distributed_as_on_one_machine(job, release, vectors):
    # False alarms: ALPHA. The noise of the broken control is three tenths too small.
    noise = noise_of(release, job[0], vectors).ravel()
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    expected = (release.observe(release.privatize(vectors)) - clipped).ravel()
    assert stats.ks_2samp(noise, expected).pvalue > ALPHA
    assert stats.ks_2samp(0.7 * noise, expected).pvalue < ALPHA


def test_a_retried_worker_repeats_its_reports(spark, frame, release, tmp_path, monkeypatch):
    notes = str(tmp_path / "notes")
    Path(notes).mkdir()

    def dying(release, key, batches, **columns):
        """Record the reports; the first worker kills itself after two batches."""
        from pyspark import TaskContext

        context = TaskContext.get()
        path = Path(notes, f"{context.partitionId()}-{context.attemptNumber()}")
        for number, batch in enumerate(privatize_batches(release, key, batches, **columns)):
            with path.open("a") as file:
                for name, report in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    file.write(f"{name},{report.hex()}\n")
            yield batch
            if number == 1 and context.partitionId() == 0 and context.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    keys = []

    def recorded():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(jobs, "privatize_batches", dying)
    monkeypatch.setattr(jobs, "JobKey", recorded)
    engine.privatize(frame, release, str(tmp_path / "out"))
    drawn: dict[str, list[str]] = {}
    for path in Path(notes).iterdir():
        for line in path.read_text().splitlines():
            name, report = line.split(",")
            drawn.setdefault(name, []).append(report)
    committed = {name: report.hex() for name, report in reports_in(tmp_path / "out").items()}
    assert {path.name for path in Path(notes).iterdir()} >= {"0-0", "0-1"}
    assert sum(len(reports) > 1 for reports in drawn.values()) >= 400
    assert {name: set(reports) for name, reports in drawn.items()} == {
        name: {report} for name, report in committed.items()
    }
    assert [key.destroyed for key in keys] == [True]


WIDE = 1 << 14
"""Beyond 8,192 numbers NumPy sums the squares of one row and of several in different orders."""


@pytest.fixture(scope="module")
def wide(release):
    """A release of an ℓ2 ball of many dimensions that does not move its input."""
    gaussian = Gaussian(WIDE, 1.0, 4, "1e-5")
    # A row of ±c is then on a lattice point, up to the rounding of its norm.
    gaussian = replace(gaussian, bound=gaussian.bound // 128 * 128)
    nothing = np.zeros(WIDE)
    return offaxis.Release(
        ShiftEncoder(nothing), gaussian, ShiftDecoder(nothing), release.provenance
    )


def test_failed_tasks_shuffles_and_batch_sizes_repeat_every_byte(
    spark, wide, tmp_path, monkeypatch
):
    rng, notes, size = np.random.default_rng(4), tmp_path / "notes", 24
    vectors = rng.choice([-1.0, 1.0], (size, WIDE)) * rng.uniform(1, 2, (size, 1))
    source, key = str(tmp_path / "wide.parquet"), pickle.dumps(JobKey())
    pq.write_table(pa.table({"id": range(size), "vector": lists_of(vectors)}), source)
    notes.mkdir()

    def failing(release, key, batches, *, folder, **columns):
        """Record the reports; the first attempt of every task fails after its first batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        path = Path(folder, f"{context.partitionId()}-{context.attemptNumber()}")
        for batch in privatize_batches(release, key, batches, **columns):
            with path.open("a") as file:
                for name, report in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                    file.write(f"{batch.num_rows},{name},{report.hex()}\n")
            yield batch
            if context.attemptNumber() == 0:
                raise RuntimeError("this task fails")

    # All jobs under one key: they stand for the attempts of one job on a cluster.
    monkeypatch.setattr(jobs, "JobKey", lambda: pickle.loads(key))
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    frame = spark.read.parquet(source)
    changes = {1: frame, 5: frame.repartition(3), 10_000: frame.repartition(2, "id").sort("id")}
    drawn, sizes, committed = {}, set(), []
    try:
        for rows, changed in changes.items():
            folder = notes / str(rows)
            folder.mkdir()
            monkeypatch.setattr(jobs, "privatize_batches", partial(failing, folder=str(folder)))
            spark.conf.set(setting, rows)
            engine.privatize(changed, wide, str(tmp_path / f"out {rows}"))
            committed.append(reports_in(tmp_path / f"out {rows}"))
            attempts = {path.name.rpartition("-")[2] for path in folder.iterdir()}
            assert attempts == {"0", "1"}
            for path in folder.iterdir():
                for line in path.read_text().splitlines():
                    batch, name, report = line.split(",")
                    sizes.add(int(batch))
                    drawn.setdefault(int(name), []).append(bytes.fromhex(report))
    finally:
        spark.conf.set(setting, before)
    assert min(sizes) == 1
    assert max(sizes) > 5
    assert committed[0] == committed[1] == committed[2]
    assert all(len(reports) >= 3 for reports in drawn.values())
    assert {name: set(reports) for name, reports in drawn.items()} == {
        name: {report} for name, report in committed[0].items()
    }


def test_a_second_job_draws_new_reports(job, frame, release, tmp_path):
    engine.privatize(frame, release, str(tmp_path / "second"))
    first, second = reports_in(job[0]), reports_in(tmp_path / "second")
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def functions():
    from pyspark.sql import functions

    return functions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.union(frame), "6,000 records have 3,000 ids"),
        (
            lambda frame: frame.withColumn("id", functions().expr("if(id = 'person 7', null, id)")),
            "missing ids",
        ),
        (lambda frame: frame.filter("id = ''"), "no records"),
        (lambda frame: frame.drop("vector"), "no column 'vector'"),
        (
            lambda frame: frame.withColumn(
                "vector", functions().expr("if(id = 'person 7', null, vector)")
            ),
            "'vector' must not have missing",
        ),
        (
            lambda frame: frame.withColumn(
                "vector", functions().expr("if(id = 'person 7', slice(vector, 1, 5), vector)")
            ),
            "'vector' must all have the same length",
        ),
    ],
)
def test_invalid_records_raise_and_nothing_is_written(change, message, frame, release, tmp_path):
    with pytest.raises(InvalidInput, match=message) as caught:
        engine.privatize(change(frame), release, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    assert "person 7" not in str(caught.value)


def test_a_failed_job_destroys_its_key_and_keeps_existing_reports(
    job, spark, release, tmp_path, monkeypatch
):
    keys = []

    def recorded():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(jobs, "JobKey", recorded)
    vectors = np.ones((10, 6))
    vectors[3] = np.nan
    table = pa.table({"id": range(10), "vector": lists_of(vectors)})
    pq.write_table(table, tmp_path / "invalid.parquet")
    frame = spark.read.parquet(str(tmp_path / "invalid.parquet"))
    before = reports_in(job[0])
    with pytest.raises(InvalidInput, match="already exists"):
        engine.privatize(frame, release, str(job[0]))
    with pytest.raises(InvalidInput, match="finite"):
        engine.privatize(frame, release, str(job[0]), force=True)
    assert reports_in(job[0]) == before
    assert [path.name for path in job[0].parent.iterdir()] == ["out"]
    assert [key.destroyed for key in keys] == [True]


def test_the_input_is_never_replaced(frame, records, release):
    with pytest.raises(InvalidInput, match="holds records of this job"):
        engine.privatize(frame, release, str(records), force=True)
    assert len(list(records.glob("*.parquet"))) == 3


def test_means_match_one_machine(job, spark, frame, release):
    reports = spark.read.parquet(str(job[0])).join(frame.select("id", "group", "weight"), "id")
    means = engine.group_means(reports, release, groups="group", weights="weight")
    rows = reports.collect()
    expected = release.aggregate(
        [bytes(row.report) for row in rows],
        [row.weight for row in rows],
        [row.group for row in rows],
    )
    assert sorted(means.groups) == sorted(expected.groups) == ["a", "b", "c"]
    for group in "abc":
        mean, reference = means.of(group), expected.of(group)
        assert mean.estimate == pytest.approx(reference.estimate, rel=1e-9, abs=1e-12)
        assert mean.standard_error == pytest.approx(reference.standard_error, rel=1e-10)
        assert mean.count == reference.count


def test_a_release_without_an_unbiased_decoder_raises_at_once(job, spark, head, public):
    biased = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    with pytest.raises(BiasedDecoder):
        engine.group_means(spark.read.parquet(str(job[0])), biased)


def test_decoded_vectors_keep_their_ids(job, spark, release, tmp_path):
    frame = spark.read.parquet(str(job[0]))
    assert engine.decode(frame, release, str(tmp_path / "decoded")) == 3000
    table = pq.read_table(tmp_path / "decoded")
    decoded = dict(zip(table["id"].to_pylist(), table["vector"].to_pylist(), strict=True))
    reports = reports_in(job[0])
    names = list(reports)
    expected = release.decode([reports[name] for name in names])
    assert np.array_equal(np.array([decoded[name] for name in names]), expected)


def test_several_releases_are_evaluated_in_one_pass(frame, head, vectors, public):
    releases = [
        offaxis.fit(head, public, epsilon=epsilon, mechanism="laplace") for epsilon in (1, 20)
    ]
    low, high = engine.evaluate(frame, releases, head, targets="label", seeds=6)
    assert low.clean["accuracy"] == 1.0
    assert low.mean("accuracy") < high.mean("accuracy")
    labels = head.outputs(vectors).argmax(axis=1)
    for scores, release in ((low, releases[0]), (high, releases[1])):
        expected = offaxis.evaluation.evaluate(release, head, vectors, labels, seeds=6)
        for metric in ("accuracy", "output_rmse"):
            # Six runs each of 3,000 vectors: 8 standard errors, false alarms below 1e-6.
            spread = np.hypot(scores.std(metric), expected.std(metric)) / np.sqrt(6)
            assert abs(scores.mean(metric) - expected.mean(metric)) < 8 * spread


def test_a_grid_of_settings_is_evaluated_on_a_frame(frame, head, public):
    grid = {"mechanisms": ["laplace"], "epsilons": [2.0, 9.0], "reshapings": ["jacobian"]}
    cells = engine.sweep(frame, head, public, targets="label", seeds=2, **grid)
    expected = offaxis.evaluation.sweep(head, public, public[:20], seeds=1, **grid)
    settings = [(cell.mechanism, cell.reshaping, cell.epsilon) for cell in cells]
    assert settings == [(cell.mechanism, cell.reshaping, cell.epsilon) for cell in expected]
    assert cells[0].evaluation.mean("agreement") < cells[1].evaluation.mean("agreement")
