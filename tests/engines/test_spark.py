"""Spark: the same as one machine, one report a record whatever happens, nothing by halves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import offaxis
from offaxis.engines import spark as engine
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.spark import jobs as records_of
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.geometry import PublicVectors, measure
from offaxis.sampling.entropy import JobKey
from tests.checks import ALPHA
from tests.engines.test_local import noise_of

# pyspark 3.5 asks distutils for versions, and leaves sockets to be collected.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def made(spark, records, release, tmp_path_factory):
    """A folder of reports, what the job said, and the progress it told."""
    out = tmp_path_factory.mktemp("spark") / "out"
    told = []
    frame = spark.read.parquet(str(records)).repartition(2)
    facts = engine.privatize(frame, release, str(out), progress=lambda *now: told.append(now))
    return out, facts, told


def reports_in(folder) -> dict:
    table = pq.read_table(folder)
    return dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))


def test_the_gram_is_that_of_one_machine_to_rounding(frame, head, vectors):
    here, there = measure(head, PublicVectors(vectors)), measure(head, engine.SparkVectors(frame))
    assert there.gram == pytest.approx(here.gram, rel=1e-13, abs=1e-13 * np.abs(here.gram).max())
    assert there.mean == pytest.approx(here.mean, rel=1e-12)
    assert there.covariance == pytest.approx(here.covariance, rel=1e-10)


@pytest.mark.parametrize("randomizer", ["laplace", "response"])
def test_a_release_is_fitted_to_a_frame(frame, head, vectors, randomizer):
    found = offaxis.fit(head, engine.SparkVectors(frame), epsilon=3, mechanism=randomizer)
    public = found.provenance.public
    assert (public.count, public.dim) == vectors.shape
    if randomizer == "laplace":
        expected = offaxis.fit(head, vectors, epsilon=3)
        assert found.encoder.matrix == pytest.approx(expected.encoder.matrix, rel=1e-9, abs=1e-12)
        assert found.randomizer.radius == pytest.approx(expected.randomizer.radius, rel=0.02)
        again = offaxis.fit(head, engine.SparkVectors(frame.repartition(3)), epsilon=3)
        assert public == again.provenance.public


def test_every_record_has_a_report_of_the_release(made, release, vectors):
    out, facts, told = made
    reports = reports_in(out)
    assert facts["reports"] == len(reports) == len(vectors)
    assert json.loads((out / "_offaxis.json").read_text()) == facts
    assert release.decode(list(reports.values())).shape == vectors.shape
    assert told
    assert all(0 <= done <= known for done, known in told)


def test_the_noise_has_the_law_of_one_machine(made, release, vectors):
    # False alarms: ALPHA. The twin's noise is three tenths too small.
    noise = noise_of(release, made[0], vectors).ravel()
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    usual = (release.observe(release.privatize(vectors)) - clipped).ravel()
    assert stats.ks_2samp(noise, usual).pvalue > ALPHA
    assert stats.ks_2samp(0.7 * noise, usual).pvalue < ALPHA


def test_a_worker_that_dies_repeats_its_reports(spark, frame, release, tmp_path, monkeypatch):
    notes = str(tmp_path / "notes")
    Path(notes).mkdir()

    def dying(release, key, batches, **columns):
        """Note what is drawn; the first worker to have drawn two batches kills itself."""
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

    def noticed():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(records_of, "privatize_batches", dying)
    monkeypatch.setattr(records_of, "JobKey", noticed)
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


def test_a_second_job_draws_other_reports(made, frame, release, tmp_path):
    engine.privatize(frame, release, str(tmp_path / "again"))
    first, second = reports_in(made[0]), reports_in(tmp_path / "again")
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def functions():
    from pyspark.sql import functions

    return functions


RANDOM = {
    "rand": lambda frame: frame.withColumn("id", functions().rand().cast("string")),
    "uuid": lambda frame: frame.withColumn("id", functions().expr("uuid()")),
    "number": lambda frame: frame.withColumn("id", functions().monotonically_increasing_id()),
    "filter": lambda frame: frame.filter(functions().rand() < 0.5),
    "limit": lambda frame: frame.limit(10),
    "sample": lambda frame: frame.sample(0.5),
    "first": lambda frame: frame.groupBy("id").agg(functions().first("vector").alias("vector")),
    "duplicates": lambda frame: frame.dropDuplicates(["id"]),
}


@pytest.mark.parametrize("name", RANDOM)
def test_rows_that_may_come_out_otherwise_are_refused(name, frame, release, tmp_path):
    with pytest.raises(InvalidInput, match="computed again"):
        engine.privatize(RANDOM[name](frame), release, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


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
def test_bad_records_are_refused_and_nothing_is_left(change, message, frame, release, tmp_path):
    with pytest.raises(InvalidInput, match=message) as caught:
        engine.privatize(change(frame), release, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    assert "person 7" not in str(caught.value)


def test_a_failing_job_destroys_its_key_and_keeps_what_was_there(
    made, spark, release, tmp_path, monkeypatch
):
    keys = []

    def noticed():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(records_of, "JobKey", noticed)
    bad = np.ones((10, 6))
    bad[3] = np.nan
    pq.write_table(pa.table({"id": range(10), "vector": lists_of(bad)}), tmp_path / "bad.parquet")
    frame = spark.read.parquet(str(tmp_path / "bad.parquet"))
    before = reports_in(made[0])
    with pytest.raises(InvalidInput, match="already there"):
        engine.privatize(frame, release, str(made[0]))
    with pytest.raises(InvalidInput, match="finite"):
        engine.privatize(frame, release, str(made[0]), force=True)
    assert reports_in(made[0]) == before
    assert [path.name for path in made[0].parent.iterdir()] == ["out"]
    assert [key.destroyed for key in keys] == [True]


def test_the_input_is_never_replaced(frame, records, release):
    with pytest.raises(InvalidInput, match="holds records of this job"):
        engine.privatize(frame, release, str(records), force=True)
    assert len(list(records.glob("*.parquet"))) == 3


def test_means_are_those_of_one_machine(made, spark, frame, release):
    reports = spark.read.parquet(str(made[0])).join(frame.select("id", "group", "weight"), "id")
    found = engine.group_means(reports, release, groups="group", weights="weight")
    rows = reports.collect()
    expected = release.aggregate(
        [bytes(row.report) for row in rows],
        [row.weight for row in rows],
        [row.group for row in rows],
    )
    assert sorted(found.groups) == sorted(expected.groups) == ["a", "b", "c"]
    for group in "abc":
        one, other = found.of(group), expected.of(group)
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9, abs=1e-12)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-10)
        assert one.count == other.count


def test_a_release_without_means_is_refused_at_once(made, spark, head, public):
    biased = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    with pytest.raises(BiasedDecoder):
        engine.group_means(spark.read.parquet(str(made[0])), biased)


def test_decoded_vectors_lie_beside_their_ids(made, spark, release, tmp_path):
    frame = spark.read.parquet(str(made[0]))
    assert engine.decode(frame, release, str(tmp_path / "decoded")) == 3000
    table = pq.read_table(tmp_path / "decoded")
    decoded = dict(zip(table["id"].to_pylist(), table["vector"].to_pylist(), strict=True))
    reports = reports_in(made[0])
    names = list(reports)
    expected = release.decode([reports[name] for name in names])
    assert np.array_equal(np.array([decoded[name] for name in names]), expected)


def test_several_releases_are_evaluated_in_one_pass(frame, head, vectors, public):
    releases = [offaxis.fit(head, public, epsilon=epsilon) for epsilon in (1, 20)]
    low, high = engine.evaluate(frame, releases, head, targets="label", seeds=6)
    assert low.clean["accuracy"] == 1.0
    assert low.mean("accuracy") < high.mean("accuracy")
    labels = head.outputs(vectors).argmax(axis=1)
    for found, release in ((low, releases[0]), (high, releases[1])):
        expected = offaxis.evaluation.evaluate(release, head, vectors, labels, seeds=6)
        for metric in ("accuracy", "output_rmse"):
            # Six runs each of 3,000 vectors: 8 standard errors, false alarms below 1e-6.
            spread = np.hypot(found.std(metric), expected.std(metric)) / np.sqrt(6)
            assert abs(found.mean(metric) - expected.mean(metric)) < 8 * spread


def test_a_grid_of_settings_is_swept_over_a_frame(frame, head, public):
    grid = {"mechanisms": ["laplace"], "epsilons": [2.0, 9.0], "reshapings": ["jacobian"]}
    rows = engine.sweep(frame, head, public, targets="label", seeds=2, **grid)
    expected = offaxis.evaluation.sweep(head, public, public[:20], seeds=1, **grid)
    settings = [(cell.mechanism, cell.reshaping, cell.epsilon) for cell in rows]
    assert settings == [(cell.mechanism, cell.reshaping, cell.epsilon) for cell in expected]
    assert rows[0].evaluation.mean("agreement") < rows[1].evaluation.mean("agreement")
