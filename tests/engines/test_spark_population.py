"""Populations from reports in Parquet folders and DataFrames are those of one pass."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offaxis
from offaxis.engines import local
from offaxis.engines import spark as engine
from offaxis.engines.populations import COLUMNS, fold_samples, fold_terms, likelihood_batches
from offaxis.engines.spark.data import broadcast
from offaxis.engines.spark.populations import SparkLikelihoods
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.learning import Population, cells, fit_check, fit_pairs, likelihoods, principal
from offaxis.learning.likelihoods import Likelihoods, Sample, Sums, rows_of
from offaxis.learning.population import prepare
from offaxis.simulation import draw_observations

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

SHARES = [0.5, 0.2, 0.2, 0.1]


@pytest.fixture(scope="module")
def centres():
    return 3 * np.random.default_rng(1).standard_normal((4, 6))


@pytest.fixture(scope="module")
def crowd_public(centres):
    rng = np.random.default_rng(2)
    return centres[rng.integers(4, size=600)] + rng.standard_normal((600, 6))


@pytest.fixture(scope="module")
def people(centres):
    rng = np.random.default_rng(3)
    return centres[rng.choice(4, 3000, p=SHARES)] + rng.standard_normal((3000, 6))


@pytest.fixture(scope="module")
def releases(crowd_public):
    """A release of vectors, one of symbols, and one of vectors with additive noise."""
    return [
        fit_pairs(principal(crowd_public, rank=4), None, epsilon=4),
        fit_pairs(cells(crowd_public, size=4), None, epsilon=2),
        offaxis.fit(None, crowd_public, epsilon=6, mechanism="laplace", reshaping="none"),
    ]


@pytest.fixture(scope="module")
def reports(releases, people):
    """The reports of disjoint groups of people."""
    groups = np.array_split(people, 3)
    return [release.privatize(group) for release, group in zip(releases, groups, strict=True)]


@pytest.fixture(scope="module")
def folders(reports, tmp_path_factory):
    """For each release a folder of two files, with the reports in a column of another name."""
    out = []
    for number, values in enumerate(reports):
        folder = tmp_path_factory.mktemp("population") / str(number)
        folder.mkdir()
        for part in range(2):
            table = pa.table({"id": range(part, len(values), 2), "letter": values[part::2]})
            pq.write_table(table, folder / f"{part}.parquet", row_group_size=170)
        out.append(folder)
    return out


@pytest.fixture(scope="module")
def expected(releases, reports, crowd_public):
    return offaxis.population(releases, reports, crowd_public, cells=6)


def assert_same(crowd: Population, expected: Population) -> None:
    """Equal up to the rounding of sums of float32 products."""
    fit, other = crowd.fit, expected.fit
    assert fit.count == other.count
    np.testing.assert_array_equal(crowd.vectors, expected.vectors)
    for name in ("shares", "unshrunk", "covariance", "within", "carried", "spread", "p_value"):
        one, two = np.asarray(getattr(fit, name)), np.asarray(getattr(other, name))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-4 * np.abs(two).max(), err_msg=name)
    for own, its in zip(fit.scores, other.scores, strict=True):
        assert (own.release, own.count) == (its.release, its.count)
        np.testing.assert_allclose(own.mean, its.mean, atol=1e-5)
        np.testing.assert_allclose(own.covariance, its.covariance, rtol=1e-4, atol=1e-5)
    mean, mean_expected = crowd.mean(), expected.mean()
    np.testing.assert_allclose(mean.estimate, mean_expected.estimate, atol=1e-4)


# ---- One machine


def test_a_population_of_folders_is_that_of_their_reports(
    folders, releases, crowd_public, expected
):
    seen: list[int] = []
    crowd = local.population(
        folders, releases, crowd_public, reports="letter", cells=6, advance=seen.append
    )
    assert_same(crowd, expected)
    assert sum(seen) == expected.fit.count == 3000
    # A single release needs no list; its broken control has lost a report of another person.
    alone = local.population(folders[0], releases[0], crowd_public, reports="letter", cells=6)
    values = pq.read_table(folders[0])["letter"].to_pylist()
    assert_same(alone, offaxis.population(releases[0], values, crowd_public, cells=6))
    with pytest.raises(AssertionError):
        assert_same(alone, offaxis.population(releases[0], values[1:], crowd_public, cells=6))


def test_rounds_of_one_release_are_several_sources(folders, releases, crowd_public):
    release, folder = releases[0], folders[0]
    parts = [folder / "0.parquet", folder / "1.parquet"]
    rounds = local.population(parts, [release] * 2, crowd_public, reports="letter", cells=6)
    whole = local.population(folder, release, crowd_public, reports="letter", cells=6)
    assert_same(rounds, whole)
    assert rounds.epsilons == whole.epsilons == (4.0,)


# ---- Batches


def test_sums_over_any_batches_merge(releases, reports, crowd_public):
    """Rows, samples and sums of likelihoods do not depend on how reports are cut."""
    public = prepare(releases, crowd_public, 6)
    for release, values in zip(releases, reports, strict=True):
        kept = Likelihoods(public)
        kept.add(release, values)
        batch = pa.RecordBatch.from_pydict({"report": values})
        cut = [batch.slice(0, 0), batch.slice(0, 1), batch.slice(1, 400), batch.slice(401)]
        sample, sums = Sample(release), Sums()
        for part in ([batch], [batch.slice(0, 0)]) if release is releases[0] else (cut,):
            made = list(likelihood_batches((release, public), part))
            sample.merge(fold_samples(release, made))
            sums.merge(fold_terms(lambda block: [block.sum(axis=0), len(block)], kept.width, made))
        assert sample.count == kept.count == sums.totals[1] == len(values)
        totals = kept.sums(lambda block: [block.sum(axis=0)])[0]
        np.testing.assert_allclose(sums.totals[0], totals, rtol=1e-5)
        own = kept.sample_of(release)
        assert (sample.rows is None) == (own.rows is None)
        if own.rows is not None:
            np.testing.assert_array_equal(sample.rows, own.rows)


def test_a_sample_does_not_depend_on_the_order_of_reports(releases, crowd_public, monkeypatch):
    monkeypatch.setattr(likelihoods, "_KEPT", 200)
    release, rng = releases[0], np.random.default_rng(4)
    observed = draw_observations(release.randomizer, release.encode_private(crowd_public), rng)
    whole, parts = Sample(release), Sample(release)
    whole.add(observed)
    for part in np.array_split(observed[rng.permutation(len(observed))], 7):
        other = Sample(release)
        other.add(part)
        parts.merge(other)
    assert parts.count == whole.count == 600
    assert whole.rows is not None
    assert len(whole.rows) == 200
    np.testing.assert_array_equal(parts.rows, whole.rows)
    # Not the first ones, and each is a row of its own.
    assert len(np.unique(whole.rows, axis=0)) == 200
    places = [int(np.flatnonzero((observed == row).all(axis=1))[0]) for row in whole.rows]
    assert 200 < np.mean(places) < 400


def test_influence_counts_every_release_by_its_reports(releases, crowd_public, monkeypatch):
    """A sample of few stands for all reports: the sums agree with those over all of them."""
    public, rng = prepare(releases[:1], crowd_public, 6), np.random.default_rng(5)
    release = releases[0]
    encoded = release.encode_private(crowd_public[rng.integers(600, size=8000)])
    observed = draw_observations(release.randomizer, encoded, rng)

    def influence() -> np.ndarray:
        kept = Likelihoods(public)
        kept.add_observed(release, iter([observed]))
        return kept.influence(public.shares, np.zeros((len(public.cells), 60)))[0]

    whole = influence()
    monkeypatch.setattr(likelihoods, "_KEPT", 4000)
    half = influence()
    size = np.linalg.norm(whole)
    assert np.linalg.norm(half - whole) < 0.7 * size
    assert abs(np.linalg.norm(half) / size - 1) < 0.4


# ---- Spark


@pytest.fixture
def stored(spark):
    """What is stored on the cluster in a test; other files leave frames in the shared session."""

    def persistent() -> dict:
        return dict(spark.sparkContext._jsc.getPersistentRDDs())

    before = set(persistent())
    return lambda: [rdd for key, rdd in persistent().items() if key not in before]


def test_a_population_on_spark_is_that_of_one_pass(
    spark, stored, folders, releases, crowd_public, expected
):
    one, two, three = (spark.read.parquet(str(folder)) for folder in folders)
    # In other partitions, some of them empty, and in another order.
    frames = [one.repartition(5), two.coalesce(1).sort("id"), three.union(one.where("id < 0"))]
    crowd = engine.population(frames, releases, crowd_public, reports="letter", cells=6)
    assert_same(crowd, expected)
    assert not stored()


def test_sums_on_spark_do_not_depend_on_partitions(spark, folders, releases, reports, crowd_public):
    """Any frame will do: rows of createDataFrame do not repeat, and need not, as nothing is drawn.

    The broken control has lost a report of one person.
    """
    public = prepare(releases[:1], crowd_public, 6)
    kept = Likelihoods(public)
    kept.add(releases[0], reports[0])
    frame = spark.read.parquet(str(folders[0])).select("letter")
    rows = [(bytearray(report),) for report in reports[0]]
    given = {
        "cut": frame.repartition(4),
        "rows": spark.createDataFrame(rows, "letter binary"),
        "lost": frame.limit(999),
    }

    def terms(block):
        # In single precision, the sums of blocks of other sizes differ by up to 2e-6.
        block = block.astype(np.float64)
        return [block.sum(axis=0), block.T @ block]

    expected = kept.sums(terms)
    for name, changed in given.items():
        with SparkLikelihoods(public) as likelihoods:
            likelihoods.add(releases[0], changed)
            found = likelihoods.sums(terms)
            assert (likelihoods.count == kept.count) == (name != "lost")
            same = np.array_equal(likelihoods.samples[0].rows, kept.samples[0].rows) and all(
                map(partial(np.allclose, rtol=1e-5), found, expected)
            )
            assert same == (name != "lost")


def test_public_vectors_of_a_cluster_are_a_support(spark, releases, crowd_public):
    table = spark.createDataFrame([(row.tolist(),) for row in crowd_public], "vector array<double>")
    public = prepare(releases[:1], engine.SparkVectors(table.coalesce(1)), 6)
    rows = np.sort(public.vectors, axis=0)
    np.testing.assert_array_equal(rows, np.sort(crowd_public, axis=0))
    assert public.identity.count == 600


def test_reports_are_compared_with_public_vectors_once(
    spark, stored, folders, releases, crowd_public
):
    """Steps of the fit read what is stored: the frame is read in the first job alone."""
    read = spark.sparkContext.accumulator(0)

    def counted(batches):
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    frame = spark.read.parquet(str(folders[0])).mapInArrow(counted, "id bigint, letter binary")
    public = prepare(releases[:1], crowd_public, 6)
    with SparkLikelihoods(public) as kept:
        kept.add(releases[0], frame.select("letter"))
        assert read.value == kept.count == 1000
        (first,), (second,) = (kept.sums(lambda block: [block.sum(axis=0)]) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert read.value == 1000
        assert [rdd.getStorageLevel().useMemory() for rdd in stored()] == [False]
    assert not stored()
    assert COLUMNS.count("binary") == 2


def test_large_arrays_reach_the_tasks(spark):
    """With encryption, pyspark alone fails from 64 KiB on; public vectors and models are larger."""
    values = np.random.default_rng(6).standard_normal((1000, 100))

    def task(batches):
        yield pa.RecordBatch.from_pydict({"total": [float(shared.value.sum())]})

    assert spark.conf.get("spark.io.encryption.enabled") == "true"
    with broadcast(spark, values) as shared:
        (row,) = spark.range(1).coalesce(1).mapInArrow(task, "total double").collect()
    assert row.total == values.sum()


@pytest.mark.parametrize("run", ["local", "spark"])
def test_unsuitable_reports_raise_with_the_reason(
    run, request, folders, releases, crowd_public, tmp_path
):
    if run == "spark":
        session, stored = map(request.getfixturevalue, ("spark", "stored"))
        population, read = engine.population, session.read.parquet
    else:
        population, read = local.population, str
    given = [read(str(folder)) for folder in folders]
    check = fit_check(np.eye(3, 6), crowd_public, epsilon=2)
    sequences = offaxis.memoise(releases[0], draws=2, period=10)
    pq.write_table(pa.table({"letter": pa.nulls(9, pa.binary())}), tmp_path / "missing.parquet")
    damaged = [report[:-1] for report in releases[0].privatize(crowd_public[:50])]
    pq.write_table(pa.table({"letter": damaged}), tmp_path / "damaged.parquet")
    few = releases[0].privatize(crowd_public[:50])
    pq.write_table(pa.table({"letter": few}), tmp_path / "few.parquet")
    pq.write_table(pa.table({"letter": pa.array([], pa.binary())}), tmp_path / "none.parquet")
    options = {"reports": "letter"}
    cases = [
        (read(str(tmp_path / "damaged.parquet")), releases[0], InvalidReport, "^report "),
        (read(str(tmp_path / "few.parquet")), releases[0], InvalidInput, "50 reports are too few"),
        (read(str(tmp_path / "none.parquet")), releases[0], InvalidReport, "no reports"),
        (given[0], check, InvalidInput, "vectors and private answers|accuracy"),
        (given[0], sequences, InvalidInput, "people who report once"),
        (given[0], releases[:2], InvalidInput, "one source of reports for each"),
        (given, releases[:2], InvalidInput, "2 releases and 3"),
    ]
    if run == "local":  # Spark would run such tasks several times
        missing = read(str(tmp_path / "missing.parquet"))
        cases.append((missing, releases[0], InvalidInput, "'letter'"))
        cases.append((given[0], releases[1], InvalidReport, "^report 0 "))
    for sources, fitted, kind, message in cases:
        with pytest.raises(kind, match=message):
            population(sources, fitted, crowd_public, **options)
    with pytest.raises(InvalidInput, match="no column 'number'"):
        population(given[0], releases[0], crowd_public, reports="number")
    if run == "local":
        with pytest.raises(InvalidInput, match="must hold reports"):
            population(given[0], releases[0], crowd_public, reports="id")
    else:
        assert not stored()


def test_the_likelihoods_of_symbols_have_the_width_of_all(releases, crowd_public):
    public = prepare(releases, crowd_public, 6)
    observed = releases[1].observe(releases[1].privatize(crowd_public[:20]))
    block = rows_of(releases[1], public)(observed)
    assert block.shape == (20, Likelihoods(public).width)
    assert (block[:, len(public.cells) :] == 1).all()
