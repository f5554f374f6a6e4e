"""The local engine: reports, means and vectors of Parquet files, complete or not at all."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import offaxis
from offaxis.engines import local
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.local import DistinctIds
from offaxis.errors import InvalidInput
from offaxis.sampling.entropy import JobKey
from tests.checks import ALPHA


@pytest.fixture(scope="module")
def job(records, release, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "out"
    return out, local.privatize(records, release, out)


def noise_of(release, folder, vectors) -> np.ndarray:
    """Return the noise added to every clipped encoding, in the order of the ids."""
    table = pq.read_table(folder)
    places = [int(name.split()[1]) for name in table["id"].to_pylist()]
    observed = release.observe(table["report"].to_pylist())
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    return (observed - clipped[places])[np.argsort(places)]


def test_every_record_has_a_report_of_the_release(job, release, records, vectors):
    out, facts = job
    assert facts["reports"] == len(vectors) == len(set(pq.read_table(out)["id"].to_pylist()))
    assert facts["release"] == release.hash
    assert json.loads((out / "_offaxis.json").read_text()) == facts
    assert "trusted" in facts["guarantee"]["assumptions"][0]
    assert not any("device" in assumption for assumption in facts["guarantee"]["assumptions"])
    # 3,000 x 6 draws: the mean of their noise is within five standard errors of zero.
    noise = noise_of(release, out, vectors)
    assert abs(noise.mean()) < 5 * noise.std() / np.sqrt(noise.size)


def test_the_noise_is_distributed_as_for_single_reports(job, release, vectors):
    # False alarms: ALPHA. The broken control adds half the noise.
    noise = noise_of(release, job[0], vectors).ravel()
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    expected = (release.observe(release.privatize(vectors)) - clipped).ravel()
    assert stats.ks_2samp(noise, expected).pvalue > ALPHA
    assert stats.ks_2samp(noise / 2, expected).pvalue < ALPHA


def test_records_have_independent_noise_and_a_shared_stream_is_rejected(job, release, vectors):
    # Correlation of the signs of neighbours: a binomial test, false alarms ALPHA.
    signs = noise_of(release, job[0], vectors)[:, 0] > 0

    def p_value(flags):
        return stats.binomtest(int((flags[1:] == flags[:-1]).sum()), len(flags) - 1).pvalue

    assert p_value(signs) > ALPHA
    assert p_value(np.repeat(signs[::2], 2)) < ALPHA


def test_a_second_job_draws_new_reports(job, release, records, tmp_path):
    local.privatize(records, release, tmp_path / "second")
    first, second = (
        pq.read_table(out)["report"].to_pylist() for out in (job[0], tmp_path / "second")
    )
    assert not set(first) & set(second)


def write(path, ids, vectors):
    pq.write_table(pa.table({"id": ids, "vector": lists_of(np.asarray(vectors))}), path)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2, 1], "3 records have 2 ids"),
        (["a", "b", None], "missing ids"),
        ([], "no records"),
    ],
)
def test_missing_and_repeated_ids_raise(ids, message, release, tmp_path):
    source = tmp_path / "in.parquet"
    write(source, pa.array(ids, pa.string() if "a" in ids else pa.int64()), np.ones((len(ids), 6)))
    with pytest.raises(InvalidInput, match=message):
        local.privatize(source, release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_failed_job_leaves_nothing_and_destroys_the_key(release, tmp_path, monkeypatch):
    vectors = np.ones((9000, 6))
    vectors[-1, 0] = np.nan
    write(tmp_path / "in.parquet", np.arange(9000), vectors)
    keys = []

    def recorded():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(local, "JobKey", recorded)
    with pytest.raises(InvalidInput, match="finite"):
        local.privatize(tmp_path / "in.parquet", release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    assert [key.destroyed for key in keys] == [True]


@pytest.mark.parametrize("rows", [[0, 1, 1], [0, 1]])
def test_the_written_records_are_checked_again(rows, release, tmp_path, monkeypatch):
    write(tmp_path / "in.parquet", [1, 2, 3], np.ones((3, 6)))

    def altered(*args, **options):
        return (batch.take(pa.array(rows)) for batch in privatize_batches(*args, **options))

    monkeypatch.setattr(local, "privatize_batches", altered)
    with pytest.raises(InvalidInput, match="nothing was released"):
        local.privatize(tmp_path / "in.parquet", release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_existing_reports_are_replaced_only_with_force(release, tmp_path):
    write(tmp_path / "in.parquet", [1, 2], np.ones((2, 6)))
    out = tmp_path / "out"
    local.privatize(tmp_path / "in.parquet", release, out)
    before = pq.read_table(out)["report"].to_pylist()
    with pytest.raises(InvalidInput, match="already exists"):
        local.privatize(tmp_path / "in.parquet", release, out)
    assert pq.read_table(out)["report"].to_pylist() == before
    local.privatize(tmp_path / "in.parquet", release, out, force=True)
    assert pq.read_table(out)["report"].to_pylist() != before


def test_means_match_the_release(job, release):
    reports = pq.read_table(job[0])["report"].to_pylist()
    expected = release.aggregate(reports)
    mean = local.group_means(job[0], release)
    assert mean.estimate == pytest.approx(expected.estimate, rel=1e-10)
    assert mean.standard_error == pytest.approx(expected.standard_error, rel=1e-10)


def test_decoded_vectors_keep_their_ids(job, release, tmp_path):
    assert local.decode(job[0], release, tmp_path / "decoded") == 3000
    table, reports = pq.read_table(tmp_path / "decoded"), pq.read_table(job[0])
    assert table["id"] == reports["id"]
    decoded = np.array(table["vector"].to_pylist())
    assert np.array_equal(decoded, release.decode(reports["report"].to_pylist()))


def test_a_release_fitted_to_files_equals_one_fitted_to_the_array(records, head, vectors):
    release = offaxis.fit(head, local.public_vectors(records), epsilon=3, mechanism="laplace")
    expected = offaxis.fit(head, vectors, epsilon=3, mechanism="laplace")
    # Sums are batched differently, so they may differ in the last bit.
    assert release.encoder.matrix == pytest.approx(expected.encoder.matrix, rel=1e-9, abs=1e-12)
    assert release.provenance.public == expected.provenance.public


def test_evaluation_of_files_uses_the_labels(records, release, head):
    first, second = local.evaluate(records, [release, release], head, targets="label", seeds=2)
    assert first.clean["accuracy"] == 1.0
    assert np.array_equal(first.runs["accuracy"], second.runs["accuracy"])


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b", "a"], list(range(5000)), [1, "1", b"1"]])
def test_distinct_ids_are_counted(ids):
    with DistinctIds() as seen:
        seen.add(ids[: len(ids) // 2])
        seen.add(ids[len(ids) // 2 :])
        assert seen.count() == len(set(ids))


@pytest.mark.parametrize("out", ["in", "."])
def test_the_input_is_never_replaced(out, release, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "0.parquet", [1, 2], np.ones((2, 6)))
    with pytest.raises(InvalidInput, match="holds records of this job"):
        local.privatize("in", release, out, force=True)
    assert (tmp_path / "in" / "0.parquet").exists()


def test_a_job_starts_no_sequences(records, vectors, tmp_path):
    """Every job would draw new permanent answers of everybody, beyond what is promised."""
    single = offaxis.fit(
        np.eye(3, vectors.shape[1]), vectors, epsilon=2, mechanism="class-response"
    )
    release = offaxis.memoise(single, draws=2, period=10)
    with pytest.raises(InvalidInput, match="a bulk job would start new sequences"):
        local.privatize(records, release, tmp_path / "out")
    assert not (tmp_path / "out").exists()


DOUBLES, SINGLES = pa.list_(pa.float64()), pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("int64", pa.list_(pa.int64())), ("int64", DOUBLES)),
        (("int64", SINGLES), ("int64", DOUBLES)),
        (("int64", DOUBLES), ("string", DOUBLES)),
        (("int8", DOUBLES), ("int64", DOUBLES)),
    ],
)
def test_files_of_different_types_are_refused_without_their_contents(
    release, tmp_path, first, second
):
    """Arrow would round vectors to the type of the first file, or name a value that it cannot."""
    for order in ((first, second), (second, first)):
        folder = tmp_path / f"in-{order[0] == first}"
        folder.mkdir()
        for number, (ids, vectors) in enumerate(order):
            name = f"person {300 + number}" if ids == "string" else 100 + number
            table = {
                "id": pa.array([name], ids),
                "vector": pa.array([[0.1 + number] * 6], DOUBLES).cast(vectors, safe=False),
            }
            pq.write_table(pa.table(table), folder / f"{number}.parquet")
        with pytest.raises(
            InvalidInput, match="in others; write them again with one type"
        ) as caught:
            local.privatize(folder, release, tmp_path / "out")
        assert not any(word in str(caught.value) for word in ("0.1", "1.1", "person", "300", "101"))
    assert not (tmp_path / "out").exists()


def test_the_name_of_the_items_of_a_list_does_not_matter(release, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number, item in enumerate(("item", "element")):
        kind = pa.list_(pa.field(item, pa.float64()))
        table = pa.table({"id": [number], "vector": pa.array([[0.5] * 6], kind)})
        pq.write_table(table, folder / f"{number}.parquet", use_compliant_nested_type=False)
    assert local.privatize(folder, release, tmp_path / "out")["reports"] == 2


def test_a_file_that_breaks_off_is_an_error_without_its_contents(release, records, tmp_path):
    shutil.copytree(records, tmp_path / "in")
    path = tmp_path / "in" / "1.parquet"
    content = bytearray(path.read_bytes())
    content[200:5000] = bytes(4800)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="could not be read as Parquet") as caught:
        local.privatize(tmp_path / "in", release, tmp_path / "out")
    assert "person" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_ids_may_not_be_named_like_the_reports(release, tmp_path):
    table = pa.table({"report": [1, 2], "vector": lists_of(np.zeros((2, 6)))})
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(InvalidInput, match="may not be named 'report'"):
        local.privatize(tmp_path / "in.parquet", release, tmp_path / "out", ids="report")
