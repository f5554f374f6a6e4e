"""One machine: reports, means and vectors of Parquet files, whole or not at all."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import offaxis
from offaxis.engines import local
from offaxis.engines import local as records_of
from offaxis.engines.arrow import privatize_batches
from offaxis.engines.columns import lists_of
from offaxis.engines.local import DistinctIds
from offaxis.errors import InvalidInput
from offaxis.sampling.entropy import JobKey
from tests.checks import ALPHA


@pytest.fixture(scope="module")
def made(records, release, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "out"
    return out, local.privatize(records, release, out)


def noise_of(release, folder, vectors) -> np.ndarray:
    """What was added to every clipped encoding, in the order of the ids."""
    table = pq.read_table(folder)
    place = [int(name.split()[1]) for name in table["id"].to_pylist()]
    observed = release.observe(table["report"].to_pylist())
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    return (observed - clipped[place])[np.argsort(place)]


def test_every_record_has_a_report_of_the_release(made, release, records, vectors):
    out, facts = made
    assert facts["reports"] == len(vectors) == len(set(pq.read_table(out)["id"].to_pylist()))
    assert facts["release"] == release.hash
    assert json.loads((out / "_offaxis.json").read_text()) == facts
    assert "trusted" in facts["guarantee"]["assumptions"][0]
    assert not any("device" in each for each in facts["guarantee"]["assumptions"])
    # 3,000 x 6 draws of one law: the mean of their noise is within five standard errors of zero.
    noise = noise_of(release, out, vectors)
    assert abs(noise.mean()) < 5 * noise.std() / np.sqrt(noise.size)


def test_the_noise_has_the_law_of_one_report_at_a_time(made, release, vectors):
    # False alarms: ALPHA. The twin adds half the noise.
    noise = noise_of(release, made[0], vectors).ravel()
    clipped = release.randomizer.domain.project(release.encoder.encode(vectors))
    usual = (release.observe(release.privatize(vectors)) - clipped).ravel()
    assert stats.ks_2samp(noise, usual).pvalue > ALPHA
    assert stats.ks_2samp(noise / 2, usual).pvalue < ALPHA


def test_records_have_independent_noise_and_a_shared_stream_is_caught(made, release, vectors):
    # Correlation of neighbours' signs: a binomial test, false alarms ALPHA.
    signs = noise_of(release, made[0], vectors)[:, 0] > 0

    def p_value(flags):
        return stats.binomtest(int((flags[1:] == flags[:-1]).sum()), len(flags) - 1).pvalue

    assert p_value(signs) > ALPHA
    assert p_value(np.repeat(signs[::2], 2)) < ALPHA


def test_a_second_job_draws_other_reports(made, release, records, tmp_path):
    local.privatize(records, release, tmp_path / "again")
    first, second = (
        pq.read_table(out)["report"].to_pylist() for out in (made[0], tmp_path / "again")
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
def test_ids_that_name_nobody_or_two_are_refused(ids, message, release, tmp_path):
    source = tmp_path / "in.parquet"
    write(source, pa.array(ids, pa.string() if "a" in ids else pa.int64()), np.ones((len(ids), 6)))
    with pytest.raises(InvalidInput, match=message):
        local.privatize(source, release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_failure_on_the_way_leaves_nothing_and_destroys_the_key(release, tmp_path, monkeypatch):
    bad = np.ones((9000, 6))
    bad[-1, 0] = np.nan
    write(tmp_path / "in.parquet", np.arange(9000), bad)
    keys = []

    def noticed():
        keys.append(JobKey())
        return keys[-1]

    monkeypatch.setattr(records_of, "JobKey", noticed)
    with pytest.raises(InvalidInput, match="finite"):
        local.privatize(tmp_path / "in.parquet", release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    assert [key.destroyed for key in keys] == [True]


@pytest.mark.parametrize("rows", [[0, 1, 1], [0, 1]])
def test_what_was_written_is_looked_at_again(rows, release, tmp_path, monkeypatch):
    write(tmp_path / "in.parquet", [1, 2, 3], np.ones((3, 6)))

    def otherwise(*given, **named):
        return (batch.take(pa.array(rows)) for batch in privatize_batches(*given, **named))

    monkeypatch.setattr(records_of, "privatize_batches", otherwise)
    with pytest.raises(InvalidInput, match="nothing was released"):
        local.privatize(tmp_path / "in.parquet", release, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_what_is_there_is_not_made_again_unless_asked(release, tmp_path):
    write(tmp_path / "in.parquet", [1, 2], np.ones((2, 6)))
    out = tmp_path / "out"
    local.privatize(tmp_path / "in.parquet", release, out)
    before = pq.read_table(out)["report"].to_pylist()
    with pytest.raises(InvalidInput, match="already there"):
        local.privatize(tmp_path / "in.parquet", release, out)
    assert pq.read_table(out)["report"].to_pylist() == before
    local.privatize(tmp_path / "in.parquet", release, out, force=True)
    assert pq.read_table(out)["report"].to_pylist() != before


def test_means_are_those_of_the_release(made, release):
    reports = pq.read_table(made[0])["report"].to_pylist()
    expected = release.aggregate(reports)
    found = local.group_means(made[0], release)
    assert found.estimate == pytest.approx(expected.estimate, rel=1e-10)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-10)


def test_decoded_vectors_lie_beside_their_ids(made, release, tmp_path):
    assert local.decode(made[0], release, tmp_path / "decoded") == 3000
    table, reports = pq.read_table(tmp_path / "decoded"), pq.read_table(made[0])
    assert table["id"] == reports["id"]
    decoded = np.array(table["vector"].to_pylist())
    assert np.array_equal(decoded, release.decode(reports["report"].to_pylist()))


def test_a_release_fitted_to_files_is_that_of_the_array(records, head, vectors):
    found = offaxis.fit(head, local.public_vectors(records), epsilon=3)
    expected = offaxis.fit(head, vectors, epsilon=3)
    # Sums are cut otherwise, so they may differ in the last bit.
    assert found.encoder.matrix == pytest.approx(expected.encoder.matrix, rel=1e-9, abs=1e-12)
    assert found.provenance.public == expected.provenance.public


def test_evaluation_in_files_knows_the_labels(records, release, head):
    found, same = local.evaluate(records, [release, release], head, targets="label", seeds=2)
    assert found.clean["accuracy"] == 1.0
    assert np.array_equal(found.runs["accuracy"], same.runs["accuracy"])


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b", "a"], list(range(5000)), [1, "1", b"1"]])
def test_different_ids_are_counted(ids):
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
