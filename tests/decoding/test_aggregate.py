"""Means with standard errors: against plain NumPy, in parts, and by their coverage."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.decoding import aggregate
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.simulation import simulate
from tests.checks import ALPHA

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((500, 3)) * [1.0, 1e-6, 1e6] + [5.0, 1e3, -1e3]
WEIGHTS = RNG.uniform(0.1, 3.0, 500)
LABELS = RNG.integers(0, 4, 500).tolist()


def plain(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The formulas of the module, in two passes."""
    one, two, three = (np.sum(weights**k) for k in (1, 2, 3))
    mean = (weights[:, None] * rows).sum(axis=0) / one
    square = (weights[:, None] ** 2 * (rows - mean) ** 2).sum(axis=0) / one**2
    error = np.sqrt(square * two / (two - 2 * three / one + two**2 / one**2))
    return mean, error, one**2 / two


def parts(rows: np.ndarray, size: int):
    return (rows[i : i + size] for i in range(0, len(rows), size))


def test_without_weights_it_is_the_textbook():
    found = aggregate([ROWS])
    np.testing.assert_allclose(found.estimate, ROWS.mean(axis=0))
    np.testing.assert_allclose(found.standard_error, stats.sem(ROWS, axis=0))
    assert found.count == found.effective_count == 500
    assert found.groups is None
    low, high = found.interval(0.9)
    reach = stats.norm.ppf(0.95) * found.standard_error
    np.testing.assert_allclose((high - low) / 2, reach, rtol=1e-5)
    np.testing.assert_allclose((high + low) / 2, found.estimate)


@pytest.mark.parametrize("size", [1, 7, 500])
def test_weights_and_groups_are_those_of_plain_numpy_in_any_parts(size):
    found = aggregate(parts(ROWS, size), iter(WEIGHTS), iter(LABELS))
    assert found.estimate.shape == found.standard_error.shape == (4, 3)
    assert found.groups == tuple(dict.fromkeys(LABELS))
    for label in range(4):
        chosen = np.array(LABELS) == label
        mean, error, effective = plain(ROWS[chosen], WEIGHTS[chosen])
        one = found.of(label)
        np.testing.assert_allclose(one.estimate, mean)
        np.testing.assert_allclose(one.standard_error, error)
        assert one.effective_count == pytest.approx(effective)
        assert one.count == chosen.sum()


def test_a_far_offset_does_not_cancel():
    """Sums of squares would lose every digit here."""
    rows = ROWS[:, :1] - 5.0
    found = aggregate(parts(rows + 1e9, 10))
    np.testing.assert_allclose(found.standard_error, stats.sem(rows, axis=0), rtol=1e-5)


def test_the_unit_of_the_weights_does_not_matter():
    one, other = aggregate([ROWS], WEIGHTS), aggregate([ROWS], WEIGHTS * 1e40)
    np.testing.assert_allclose(one.standard_error, other.standard_error)
    assert one.effective_count == pytest.approx(other.effective_count)


def test_the_squared_error_is_unbiased_even_for_few_and_uneven_weights():
    """The twin leaves the factor out."""
    rng = np.random.default_rng(1)
    weights = np.array([1.0, 0.01, 0.3])
    rows = rng.standard_normal((3, 400_000))
    square = aggregate([rows], weights).standard_error ** 2
    wanted = (weights**2).sum() / weights.sum() ** 2
    assert square.mean() == pytest.approx(wanted, rel=0.02)
    mean = weights @ rows / weights.sum()
    twin = (weights[:, None] ** 2 * (rows - mean) ** 2).sum(axis=0) / weights.sum() ** 2
    assert twin.mean() < 0.5 * wanted


def test_one_report_leaves_its_error_open():
    found = aggregate([ROWS[:1]])
    assert np.isinf(found.standard_error).all()
    assert np.isneginf(found.interval()[0]).all()


def test_a_group_without_reports_is_an_error():
    found = aggregate([ROWS], groups=LABELS)
    with pytest.raises(InvalidInput, match="no report belongs to group 'north'"):
        found.of("north")
    with pytest.raises(InvalidInput, match="not grouped"):
        aggregate([ROWS]).of(0)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (WEIGHTS[:-1], "got only 499"),
        (np.append(WEIGHTS, 1.0), "got more than 500"),
        (np.append(WEIGHTS[:-1], 0.0), "positive.*index 499"),
        (np.append(WEIGHTS[:-1], np.nan), "positive.*index 499"),
        (np.append(WEIGHTS[:-1], -1.0), "positive.*index 499"),
        (WEIGHTS[:, None], "one number a report"),
        (["a"] * 500, "real numbers"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, words):
    with pytest.raises(InvalidInput, match=words):
        aggregate(parts(ROWS, 100), weights)


@pytest.mark.parametrize(
    ("labels", "words"), [(LABELS[1:], "only 499"), ([*LABELS, 1], "than 500")]
)
def test_groups_of_another_number_are_refused(labels, words):
    with pytest.raises(InvalidInput, match=words):
        aggregate(parts(ROWS, 100), groups=labels)


@pytest.mark.parametrize("label", [["a"], {}, np.zeros(2), float("nan"), np.float32("nan")])
def test_a_label_that_cannot_be_told_apart_is_refused(label):
    labels = [*LABELS[:-1], label]
    with pytest.raises(InvalidInput, match=r"label must be text.* at index 499; turn it into text"):
        aggregate(parts(ROWS, 100), groups=labels)
    with pytest.raises(InvalidInput, match="label must be text"):
        aggregate([ROWS], groups=LABELS).of(label)


@pytest.mark.parametrize("labels", [5, "north", b"north"])
@pytest.mark.parametrize("name", ["groups", "weights"])
def test_one_label_or_weight_for_all_is_refused(labels, name):
    with pytest.raises(InvalidInput, match=f"{name} must have one entry a report"):
        aggregate([ROWS], **{name: labels})


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, np.nan, "high"])
def test_a_level_is_a_probability(level):
    with pytest.raises(InvalidInput, match="level"):
        aggregate([ROWS]).interval(level)


@pytest.fixture(scope="module")
def means():
    public = np.random.default_rng(2).standard_normal((400, 3)) + np.array([1.0, 0.0, -0.5])
    return {
        name: offaxis.fit(None, public, epsilon=4, mechanism=name, reshaping="none", percentile=100)
        for name in ("laplace", "privunit2-mean", "privunit2")
    }


@pytest.mark.parametrize("name", ["laplace", "privunit2-mean"])
def test_reports_in_a_stream_are_those_in_a_list(means, name, monkeypatch):
    release = means[name]
    reports = release.privatize(np.random.default_rng(3).standard_normal((300, 3)))
    decoded = release.decode(reports)
    monkeypatch.setattr("offaxis.release._PRIVATIZE_ROWS", 7)
    found = release.aggregate(iter(reports), iter(WEIGHTS[:300]), iter(LABELS[:300]))
    batch = aggregate([decoded], WEIGHTS[:300], LABELS[:300])
    np.testing.assert_allclose(found.estimate, batch.estimate)
    np.testing.assert_allclose(found.standard_error, batch.standard_error)
    np.testing.assert_allclose(release.decode_mean(iter(reports)), decoded.mean(axis=0))
    with pytest.raises(InvalidReport, match="report 299 "):
        release.aggregate([*reports[:299], b"OX"])
    with pytest.raises(InvalidReport, match="report 299 "):
        release.decode_mean([*reports[:299], b"OX"])


def test_no_reports_have_no_mean(means):
    for ask in (means["laplace"].aggregate, means["laplace"].decode_mean):
        with pytest.raises(InvalidReport, match="no reports"):
            ask(iter([]))


def test_a_biased_release_is_not_aggregated(means):
    with pytest.raises(BiasedDecoder, match="privunit2-mean"):
        means["privunit2"].aggregate([b"OX"])


def test_memory_does_not_grow_with_the_reports(means):
    release = means["laplace"]
    report = release.privatize(np.zeros(3))
    tracemalloc.start()
    try:
        found = release.aggregate(report for _ in range(60_000))
        release.decode_mean(report for _ in range(60_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.count == 60_000
    assert peak < 2 << 20  # the decoded rows alone would take 1.4 MB, the payloads 3 MB


@pytest.mark.parametrize("name", ["laplace", "privunit2-mean"])
def test_intervals_cover_as_often_as_they_say(means, name):
    """Repeated simulations, one coordinate of each; the twin's errors are a fifth too small."""
    release = means[name]
    rng = np.random.default_rng(4)
    times, count, level = 2000, 200, 0.9
    weights = rng.uniform(0.5, 2.0, count)
    mean = np.array([0.5, 0.0, -0.3])
    vectors = mean + 0.2 * rng.standard_normal((times * count, 3))
    decoded = simulate(release, vectors, rng).reshape(times, count, 3)[:, :, 0]
    found = aggregate([decoded.T], weights)
    reach, off = found.interval(level)[1] - found.estimate, np.abs(found.estimate - mean[0])
    hits = [int((off <= share * reach).sum()) for share in (1.0, 0.8)]
    assert stats.binomtest(hits[0], times, level).pvalue > ALPHA
    assert stats.binomtest(hits[1], times, level).pvalue < ALPHA
