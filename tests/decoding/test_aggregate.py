"""Means with standard errors: equal to plain NumPy, in any parts, with the stated coverage."""

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
    """Compute the formulas of the module in two passes."""
    one, two, three = (np.sum(weights**k) for k in (1, 2, 3))
    mean = (weights[:, None] * rows).sum(axis=0) / one
    square = (weights[:, None] ** 2 * (rows - mean) ** 2).sum(axis=0) / one**2
    error = np.sqrt(square * two / (two - 2 * three / one + two**2 / one**2))
    return mean, error, one**2 / two


def parts(rows: np.ndarray, size: int):
    return (rows[i : i + size] for i in range(0, len(rows), size))


def test_without_weights_the_formulas_are_the_textbook_ones():
    means = aggregate([ROWS])
    np.testing.assert_allclose(means.estimate, ROWS.mean(axis=0))
    np.testing.assert_allclose(means.standard_error, stats.sem(ROWS, axis=0))
    assert means.count == means.effective_count == 500
    assert means.groups is None
    low, high = means.interval(0.9)
    reach = stats.t(499).ppf(0.95) * means.standard_error
    np.testing.assert_allclose((high - low) / 2, reach, rtol=1e-5)
    np.testing.assert_allclose((high + low) / 2, means.estimate)


@pytest.mark.parametrize("size", [1, 7, 500])
def test_weights_and_groups_are_those_of_plain_numpy_in_any_parts(size):
    means = aggregate(parts(ROWS, size), iter(WEIGHTS), iter(LABELS))
    assert means.estimate.shape == means.standard_error.shape == (4, 3)
    assert means.groups == tuple(dict.fromkeys(LABELS))
    for label in range(4):
        in_group = np.array(LABELS) == label
        mean, error, effective = plain(ROWS[in_group], WEIGHTS[in_group])
        group = means.of(label)
        np.testing.assert_allclose(group.estimate, mean)
        np.testing.assert_allclose(group.standard_error, error)
        assert group.effective_count == pytest.approx(effective)
        assert group.count == in_group.sum()


def test_a_large_offset_does_not_cancel_digits():
    """Sums of squares would lose every digit here."""
    rows = ROWS[:, :1] - 5.0
    means = aggregate(parts(rows + 1e9, 10))
    np.testing.assert_allclose(means.standard_error, stats.sem(rows, axis=0), rtol=1e-5)


def test_the_unit_of_the_weights_does_not_matter():
    means, scaled = aggregate([ROWS], WEIGHTS), aggregate([ROWS], WEIGHTS * 1e40)
    np.testing.assert_allclose(means.standard_error, scaled.standard_error)
    assert means.effective_count == pytest.approx(scaled.effective_count)


def test_the_squared_error_is_unbiased_even_for_few_and_uneven_weights():
    """The broken control omits the factor."""
    rng = np.random.default_rng(1)
    weights = np.array([1.0, 0.01, 0.3])
    rows = rng.standard_normal((3, 400_000))
    square = aggregate([rows], weights).standard_error ** 2
    expected = (weights**2).sum() / weights.sum() ** 2
    assert square.mean() == pytest.approx(expected, rel=0.02)
    mean = weights @ rows / weights.sum()
    broken = (weights[:, None] ** 2 * (rows - mean) ** 2).sum(axis=0) / weights.sum() ** 2
    assert broken.mean() < 0.5 * expected


def test_the_standard_error_of_one_report_is_infinite():
    means = aggregate([ROWS[:1]])
    assert np.isinf(means.standard_error).all()
    assert np.isneginf(means.interval()[0]).all()


def test_a_group_without_reports_is_an_error():
    means = aggregate([ROWS], groups=LABELS)
    with pytest.raises(InvalidInput, match="no report belongs to group 'north'"):
        means.of("north")
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
        (WEIGHTS[:, None], "one number per report"),
        (["a"] * 500, "real numbers"),
    ],
)
def test_invalid_weights_are_an_error(weights, words):
    with pytest.raises(InvalidInput, match=words):
        aggregate(parts(ROWS, 100), weights)


@pytest.mark.parametrize(
    ("labels", "words"), [(LABELS[1:], "only 499"), ([*LABELS, 1], "than 500")]
)
def test_too_few_or_too_many_labels_are_an_error(labels, words):
    with pytest.raises(InvalidInput, match=words):
        aggregate(parts(ROWS, 100), groups=labels)


@pytest.mark.parametrize("label", [["a"], {}, np.zeros(2), float("nan"), np.float32("nan")])
def test_a_label_that_cannot_be_compared_is_an_error(label):
    labels = [*LABELS[:-1], label]
    with pytest.raises(InvalidInput, match=r"label must be text.* at index 499; turn it into text"):
        aggregate(parts(ROWS, 100), groups=labels)
    with pytest.raises(InvalidInput, match="label must be text"):
        aggregate([ROWS], groups=LABELS).of(label)


@pytest.mark.parametrize("labels", [5, "north", b"north"])
@pytest.mark.parametrize("name", ["groups", "weights"])
def test_one_label_or_weight_for_all_is_an_error(labels, name):
    with pytest.raises(InvalidInput, match=f"{name} must have one entry per report"):
        aggregate([ROWS], **{name: labels})


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, np.nan, "high"])
def test_a_level_must_be_a_probability(level):
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
def test_a_stream_of_reports_gives_the_same_means_as_a_list(means, name, monkeypatch):
    release = means[name]
    reports = release.privatize(np.random.default_rng(3).standard_normal((300, 3)))
    decoded = release.decode(reports)
    monkeypatch.setattr("offaxis.release._PRIVATIZE_ROWS", 7)
    streamed = release.aggregate(iter(reports), iter(WEIGHTS[:300]), iter(LABELS[:300]))
    batch = aggregate([decoded], WEIGHTS[:300], LABELS[:300])
    np.testing.assert_allclose(streamed.estimate, batch.estimate)
    np.testing.assert_allclose(streamed.standard_error, batch.standard_error)
    np.testing.assert_allclose(release.decode_mean(iter(reports)), decoded.mean(axis=0))
    with pytest.raises(InvalidReport, match="report 299 "):
        release.aggregate([*reports[:299], b"OX"])
    with pytest.raises(InvalidReport, match="report 299 "):
        release.decode_mean([*reports[:299], b"OX"])


def test_a_mean_of_no_reports_is_an_error(means):
    for average in (means["laplace"].aggregate, means["laplace"].decode_mean):
        with pytest.raises(InvalidReport, match="no reports"):
            average(iter([]))


def test_a_biased_release_is_not_aggregated(means):
    with pytest.raises(BiasedDecoder, match="goal='means'"):
        means["privunit2"].aggregate([b"OX"])


def test_memory_does_not_grow_with_the_reports(means):
    release = means["laplace"]
    report = release.privatize(np.zeros(3))
    tracemalloc.start()
    try:
        aggregated = release.aggregate(report for _ in range(60_000))
        release.decode_mean(report for _ in range(60_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert aggregated.count == 60_000
    assert peak < 2 << 20  # the decoded rows alone would take 1.4 MB, the payloads 3 MB


@pytest.mark.parametrize("name", ["laplace", "privunit2-mean"])
def test_intervals_have_their_stated_coverage(means, name):
    """Repeated simulations, one coordinate each; the broken control is a fifth too narrow."""
    release = means[name]
    rng = np.random.default_rng(4)
    times, count, level = 2000, 200, 0.9
    weights = rng.uniform(0.5, 2.0, count)
    mean = np.array([0.5, 0.0, -0.3])
    vectors = mean + 0.2 * rng.standard_normal((times * count, 3))
    decoded = simulate(release, vectors, rng).reshape(times, count, 3)[:, :, 0]
    estimates = aggregate([decoded.T], weights)
    reach = estimates.interval(level)[1] - estimates.estimate
    errors = np.abs(estimates.estimate - mean[0])
    hits = [int((errors <= share * reach).sum()) for share in (1.0, 0.8)]
    assert stats.binomtest(hits[0], times, level).pvalue > ALPHA
    assert stats.binomtest(hits[1], times, level).pvalue < ALPHA
