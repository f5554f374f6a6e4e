"""Releases of pairs in bulk: reports of vectors with answers, and the sums that models need."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import offaxis
from offaxis.encoding.pairs import NO_ANSWER
from offaxis.engines import local
from offaxis.engines import spark as engine
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.spark import jobs
from offaxis.engines.sums import fold_sums
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.learning import Classes, Number, PairSums, cells, fit_check, fit_pairs, principal
from offaxis.sampling.entropy import JobKey
from tests.checks import ALPHA, with_optional_numbers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

COUNT = 3000
REPLIES = ["no", "perhaps", "yes"]
SECRET = 271828.5


@pytest.fixture(scope="module")
def replies(vectors: np.ndarray) -> np.ndarray:
    return np.array(REPLIES)[np.digitize(vectors[:, 0], [-0.5, 1.5])]


@pytest.fixture(scope="module")
def hours(vectors: np.ndarray) -> np.ndarray:
    return np.round(4 + vectors[:, 1], 3)


@pytest.fixture(scope="module")
def source(vectors, replies, hours, tmp_path_factory):
    """A folder of two files: ids, vectors, a class and a number, which some people do not give."""
    folder = tmp_path_factory.mktemp("pairs") / "in"
    folder.mkdir()
    given = [None if i % 7 == 0 else value for i, value in enumerate(hours.tolist())]
    table = pa.table(
        {
            "id": [f"person {number}" for number in range(COUNT)],
            "vector": lists_of(vectors),
            "reply": replies,
            "worked": pa.array(given, pa.float64()),
        }
    )
    for part in range(2):
        pq.write_table(table.slice(part * 1500, 1500), folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def releases(public):
    several = [Classes(REPLIES, name="reply"), Number(0, 8, name="hours")]
    return {
        "cells": fit_pairs(cells(public, size=4), Classes(REPLIES, name="reply"), epsilon=4),
        "moments": with_optional_numbers(fit_pairs(principal(public, rank=4), several, epsilon=4)),
        "nothing": fit_pairs(principal(public, rank=4), None, epsilon=4),
        "cells of nothing": fit_pairs(cells(public, size=4), None, epsilon=4),
    }


ANSWERS = {"cells": "reply", "moments": {"reply": "reply", "hours": "worked"}}


@pytest.fixture(scope="module")
def made(spark, source, releases, tmp_path_factory):
    """Folders of reports of both releases made on Spark, and the facts of their jobs."""
    folder = tmp_path_factory.mktemp("spark-pairs")
    frame = spark.read.parquet(str(source)).repartition(2)
    return {
        name: (
            folder / name,
            engine.privatize(frame, releases[name], str(folder / name), answers=answers),
        )
        for name, answers in ANSWERS.items()
    }


def reports_in(folder) -> dict:
    table = pq.read_table(folder)
    return dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))


def assert_same_totals(sums: PairSums, expected: PairSums) -> None:
    """Equal over all folds: integers of cells exactly, moments up to the order of a sum."""
    assert sums.count == expected.count
    assert (sums.counts.sum(axis=0) == expected.counts.sum(axis=0)).all()
    totals, others = sums.totals.sum(axis=0), expected.totals.sum(axis=0)
    if expected.squares is None:
        assert (totals == others).all()
        return
    np.testing.assert_allclose(totals, others, rtol=0, atol=1e-9 * np.abs(others).max())
    np.testing.assert_allclose(
        sums.squares, expected.squares, rtol=0, atol=1e-9 * np.abs(expected.squares).max()
    )


# ---- Reports


@pytest.mark.parametrize("name", ANSWERS)
def test_every_record_has_a_report_and_a_model_is_learnt(name, made, releases, vectors, replies):
    out, facts = made[name]
    reports = reports_in(out)
    assert facts["reports"] == len(reports) == COUNT
    assert json.loads((out / "_offaxis.json").read_text()) == facts
    assert pq.read_table(out).column_names == ["id", "report"]
    model = offaxis.learn(releases[name], reports.values(), answer="reply")
    assert model.score(vectors, replies) > 0.5


def test_reports_of_the_job_have_the_law_of_single_reports(made, releases, vectors, replies):
    """How often a person's own symbol is named, a binomial test with false alarms ALPHA.

    The broken control shifts the answers by one person, and is rejected.
    """
    release, found = releases["cells"], reports_in(made["cells"][0])
    rows = release.pairs(vectors, replies)
    own = release.encoder.encode(rows)
    named = release.observe([found[f"person {i}"] for i in range(COUNT)]) > 0

    def p_value(symbols: np.ndarray) -> float:
        hits = int(named[np.arange(COUNT), symbols].sum())
        return stats.binomtest(hits, COUNT, release.randomizer.own_chance).pvalue

    assert p_value(own) > ALPHA
    assert p_value(np.roll(own, 1)) < ALPHA


@pytest.mark.parametrize("name", ANSWERS)
def test_columns_and_rows_give_the_same_bytes_in_every_batch(
    name, releases, source, vectors, replies
):
    """The broken control leaves out the answer of one person, whose report then differs."""
    release, key = releases[name], JobKey()
    table = pq.read_table(source).combine_chunks()
    (batch,) = table.to_batches()
    options = {"answers": ANSWERS[name]}

    def reports_of(*batches, **options):
        made = privatize_batches(release, key, batches, **options)
        found = pa.Table.from_batches(made)
        return dict(zip(found["id"].to_pylist(), found["report"].to_pylist(), strict=True))

    few = batch.slice(0, 200)
    expected = reports_of(few, **options)
    assert reports_of(few.slice(90), few.slice(0, 90), **options) == expected
    order = np.random.default_rng(0).permutation(200)
    assert reports_of(few.take(pa.array(order)), **options) == expected
    answers = {"reply": few["reply"].to_pylist()}
    if name == "moments":
        answers["hours"] = few["worked"].to_pylist()
    rows = release.pairs(vectors[:200], answers)
    whole = pa.RecordBatch.from_pydict({"id": few["id"], "vector": lists_of(rows)})
    assert reports_of(whole) == expected
    rows[7, -1] = NO_ANSWER if rows[7, -1] < NO_ANSWER else 0.0
    changed = pa.RecordBatch.from_pydict({"id": few["id"], "vector": lists_of(rows)})
    differing = [name for name, report in reports_of(changed).items() if report != expected[name]]
    assert differing == ["person 7"]


def test_both_engines_and_failed_tasks_draw_the_same_reports(
    spark, source, releases, tmp_path, monkeypatch
):
    """Under one key, which here stands for the attempts of one job."""
    key = pickle.dumps(JobKey())

    def failing(*args, **options):
        from pyspark import TaskContext

        yield from privatize_batches(*args, **options)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("this task fails")

    monkeypatch.setattr(jobs, "JobKey", lambda: pickle.loads(key))
    monkeypatch.setattr(local, "JobKey", lambda: pickle.loads(key))
    monkeypatch.setattr(jobs, "privatize_batches", failing)
    release, options = releases["moments"], {"answers": ANSWERS["moments"]}
    frame = spark.read.parquet(str(source)).repartition(3)
    engine.privatize(frame, release, str(tmp_path / "spark"), **options)
    local.privatize(source, release, tmp_path / "local", **options)
    assert reports_in(tmp_path / "spark") == reports_in(tmp_path / "local")


def test_answers_that_may_change_when_computed_again_are_rejected(
    spark, source, releases, tmp_path
):
    from pyspark.sql import functions

    frame = spark.read.parquet(str(source))
    drawn = frame.withColumn("reply", functions.expr("if(rand() < 0.5, 'no', 'yes')"))
    with pytest.raises(InvalidInput, match="may change when they are computed again"):
        engine.privatize(drawn, releases["cells"], str(tmp_path / "out"), answers="reply")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run", ["local", "spark"])
def test_invalid_answers_raise_and_nothing_is_written(run, request, source, releases, tmp_path):
    if run == "spark":
        session = request.getfixturevalue("spark")
        functions, given = engine, session.read.parquet(str(source))
    else:
        functions, given = local, source
    invalid = [
        ("cells", "id", "column 'id' is private and cannot be the column of ids"),
        ("cells", "mood", "no column 'mood'"),
        ("cells", {"mood": "reply"}, "must map the names 'reply' to columns"),
        ("moments", "reply", "must map the names 'reply', 'hours' to columns"),
        ("nothing", "reply", "asks for no answer"),
        ("cells", None, "this release asks for 'reply': pass answers="),
    ]
    if run == "local":  # Spark would run such a task several times
        several = {"reply": "reply", "hours": "reply"}
        invalid.append(("moments", several, "'hours' must be a finite number"))
        invalid.append(("cells", "worked", "that is neither|is missing"))
    for name, answers, message in invalid:
        with pytest.raises(InvalidInput, match=message) as caught:
            functions.privatize(given, releases[name], str(tmp_path / "out"), answers=answers)
        assert "person" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reply", "worked", "message"),
    [
        (["no", None], [1.0, 2.0], "'reply' is missing"),
        (["no", "Ada"], [1.0, 2.0], "str that is neither"),
        ([0, 3], [1.0, 2.0], "int that is neither"),
        (["no", "yes"], [1.0, np.inf], "'hours' must be a finite number"),
        (["no", "yes"], ["1", str(SECRET)], "'hours' must be a finite number"),
    ],
)
def test_an_error_of_an_answer_does_not_name_it(releases, reply, worked, message):
    vectors = lists_of(np.full((2, 6), SECRET))
    batch = pa.RecordBatch.from_pydict(
        {"id": [1, 2], "vector": vectors, "reply": reply, "worked": worked}
    )
    options = {"answers": ANSWERS["moments"]}
    with pytest.raises(InvalidInput, match=message) as caught:
        list(privatize_batches(releases["moments"], JobKey(), [batch], **options))
    assert not any(word in str(caught.value) for word in ("Ada", "271828", "nan"))


# ---- Sums


@pytest.mark.parametrize("name", ANSWERS)
def test_sums_on_spark_are_those_of_one_pass(name, made, spark, releases):
    release, (out, _) = releases[name], made[name]
    expected = PairSums(release)
    expected.add(reports_in(out).values())
    frame = spark.read.parquet(str(out))
    for changed in (frame, frame.repartition(7), frame.coalesce(1), frame.sort("id")):
        assert_same_totals(engine.pair_sums(changed, release), expected)
    assert_same_totals(local.pair_sums(out, release), expected)
    # Not a repeating plan, and it need not be: nothing is drawn.
    rows = [(bytearray(report),) for report in reports_in(out).values()]
    of_rows = spark.createDataFrame(rows, "report binary")
    assert_same_totals(engine.pair_sums(of_rows, release), expected)
    folds = engine.pair_sums(frame, release).counts.sum(axis=1)
    assert folds.max() - folds.min() <= frame.rdd.getNumPartitions()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_lost_report_is_noticed(name, made, spark, releases):
    """The broken control of the test above."""
    out, _ = made[name]
    expected = PairSums(releases[name])
    expected.add(reports_in(out).values())
    frame = spark.read.parquet(str(out)).filter("id != 'person 7'")
    with pytest.raises(AssertionError):
        assert_same_totals(engine.pair_sums(frame, releases[name]), expected)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_learnt_on_spark_is_the_model_of_one_pass(name, made, spark, releases, vectors):
    release, (out, _) = releases[name], made[name]
    model = offaxis.learn(
        release, engine.pair_sums(spark.read.parquet(str(out)), release), answer="reply"
    )
    expected = offaxis.learn(release, reports_in(out).values(), answer="reply")
    np.testing.assert_allclose(
        model.decision_function(vectors), expected.decision_function(vectors), atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("nothing", "classes"), ("nothing", "numbers"), ("cells of nothing", "classes")],
)
def test_public_labels_are_summed_with_their_reports(
    name, kind, spark, releases, vectors, replies, hours, tmp_path
):
    release = releases[name]
    labels, answers = (replies, REPLIES) if kind == "classes" else (hours, Number(0, 8))
    reports = release.privatize(vectors)
    expected = PairSums(release, answers)
    expected.add(reports, labels.tolist())
    table = pa.table({"report": reports, "label": labels})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=700)
    frame = spark.read.parquet(str(tmp_path / "in.parquet")).repartition(3)
    options = {"labels": "label", "answers": answers}
    assert_same_totals(engine.pair_sums(frame, release, **options), expected)
    assert_same_totals(local.pair_sums(tmp_path / "in.parquet", release, **options), expected)
    # The broken control pairs each report with the label of another person.
    shuffled = PairSums(release, answers)
    shuffled.add(reports, np.roll(labels, 1).tolist())
    with pytest.raises(AssertionError):
        assert_same_totals(shuffled, expected)


def test_partial_sums_over_any_batches_merge(releases, vectors, replies):
    release = releases["moments"]
    reports = release.privatize(vectors[:301], answers={"reply": replies[:301], "hours": [1] * 301})
    expected = PairSums(release)
    expected.add(reports)
    batch = pa.RecordBatch.from_pydict({"report": reports})
    single = [batch.slice(i, 1) for i in range(301)]
    alone = fold_sums(release, [batch.slice(0, 0), *single])
    assert_same_totals(alone, expected)
    assert sorted(alone.counts.sum(axis=1).tolist()) == [60, 60, 60, 60, 61]
    total = fold_sums(release, [])
    for part in (batch.slice(0, 100), batch.slice(100, 1), batch.slice(101)):
        total.merge(fold_sums(release, [part]))
    assert_same_totals(total, expected)


def test_an_export_of_a_collector_is_summed(releases, vectors, replies, tmp_path):
    """Its reports are bytes of a fixed size."""
    release = releases["cells"]
    reports = release.privatize(vectors[:50], answers=replies[:50])
    kind = pa.binary(release.report_size)
    pq.write_table(pa.table({"report": pa.array(reports, kind)}), tmp_path / "export.parquet")
    expected = PairSums(release)
    expected.add(reports)
    assert_same_totals(local.pair_sums(tmp_path / "export.parquet", release), expected)


def test_unsuitable_sums_raise_with_the_reason(made, spark, releases, release, public):
    out, pairs = made["cells"][0], releases["cells"]
    frame = spark.read.parquet(str(out))
    check = fit_check(np.eye(3, 6), public, epsilon=2)
    sequences = offaxis.memoise(pairs, draws=2, period=10)
    for run, given in ((engine, frame), (local, out)):
        with pytest.raises(InvalidInput, match="models are learnt from releases of pairs"):
            run.pair_sums(given, release)
        with pytest.raises(InvalidInput, match=r"accuracy\(\)"):
            run.pair_sums(given, check)
        with pytest.raises(InvalidInput, match="sequences"):
            run.pair_sums(given, sequences)
        with pytest.raises(InvalidInput, match="labels and answers belong together"):
            run.pair_sums(given, releases["nothing"], labels="id")
        with pytest.raises(InvalidInput, match="private answers"):
            run.pair_sums(given, pairs, labels="id", answers=3)
        with pytest.raises(InvalidInput, match="no column 'letter'"):
            run.pair_sums(given, pairs, reports="letter")
        with pytest.raises(InvalidInput, match="must hold reports"):
            run.pair_sums(given, pairs, reports="id")
        with pytest.raises(InvalidReport):
            run.pair_sums(given, releases["nothing"])


def test_pairs_have_no_vectors_and_no_mean(made, spark, releases, tmp_path):
    out = made["moments"][0]
    for run, given in ((engine, spark.read.parquet(str(out))), (local, out)):
        with pytest.raises(BiasedDecoder, match="decodes to no vector"):
            run.decode(given, releases["moments"], str(tmp_path / "decoded"))
        with pytest.raises(BiasedDecoder):
            run.group_means(given, releases["moments"])
    assert list(tmp_path.iterdir()) == []
