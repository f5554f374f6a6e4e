"""The pandas accessors: reports keep the index of the frame and nothing else of it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas
import pytest

import offaxis
import offaxis.integrations.pandas
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport

NAMES = list("abcdef")


@pytest.fixture
def frame(public: np.ndarray) -> pandas.DataFrame:
    frame = pandas.DataFrame(public[:9], columns=NAMES, index=[f"p{i}" for i in range(9)])
    return frame.assign(diary="private")


def test_a_column_of_reports_has_the_index_of_the_frame(
    frame: pandas.DataFrame, release: offaxis.Release
) -> None:
    reports = frame.offaxis.privatize(release, columns=NAMES)
    assert reports.name == "report"
    assert reports.index.equals(frame.index)
    assert all(type(report) is bytes for report in reports)
    assert len(set(reports)) == 9
    decoded = reports.offaxis.decode(release, columns=NAMES)
    np.testing.assert_array_equal(decoded.to_numpy(), release.decode(reports.to_list()))
    assert list(decoded.columns) == NAMES
    assert decoded.index.equals(frame.index)


def test_reports_keep_no_memory_of_the_rows(public: np.ndarray, release: offaxis.Release) -> None:
    """An index that is a slice of the same array as the rows would hold the whole array."""
    data = np.array(public[:9])
    frame = pandas.DataFrame(data, columns=NAMES, index=pandas.Index(data[:, 5], name="key"))
    assert np.shares_memory(frame.index.to_numpy(), data)
    vectors = pandas.Series(list(data), index=frame.index)
    for reports in (frame.offaxis.privatize(release), vectors.offaxis.privatize(release)):
        assert reports.index.equals(frame.index)
        assert reports.index.name == "key"
        assert not np.shares_memory(reports.index.to_numpy(), data)
        assert not any(row.tobytes() in pickle.dumps(reports) for row in data)


def test_accessing_a_column_draws_no_report(
    frame: pandas.DataFrame, release: offaxis.Release
) -> None:
    """Unlike a lazy column, which would be drawn again on every access."""
    reports = frame.offaxis.privatize(release, columns=NAMES)
    kept = frame.assign(report=reports)
    assert kept["report"].equals(reports)
    assert kept[kept["a"] > 0]["report"].isin(reports).all()
    assert not frame.offaxis.privatize(release, columns=NAMES).equals(reports)


def test_columns_are_used_in_the_given_order(public: np.ndarray) -> None:
    """At ε = 1000 there is almost no noise: the decoded vectors show which column is which."""
    release = offaxis.fit(None, public, epsilon=1000, reshaping="none", mechanism="laplace")
    frame = pandas.DataFrame({"b": [2.0] * 20, "a": [1.0] * 20})
    frame = frame.assign(**dict.fromkeys("cdef", 0.0))
    decoded = frame.offaxis.privatize(release, columns=NAMES).offaxis.decode(release)
    # Noise of scale 2ρ/ε < 0.06 per coordinate: means of 20 are off by 0.02; 0.5 is 25 times that.
    assert 2 * release.randomizer.radius / 1000 < 0.06
    np.testing.assert_allclose(decoded.mean(), [1, 2, 0, 0, 0, 0], atol=0.5)


def test_a_column_of_lists_is_released_as_vectors(
    public: np.ndarray, release: offaxis.Release
) -> None:
    frame = pandas.DataFrame({"vector": list(public[:4]), "age": 7})
    assert len(frame.offaxis.privatize(release, columns="vector")) == 4
    assert len(frame[["vector"]].offaxis.privatize(release)) == 4
    assert len(frame["vector"].offaxis.privatize(release, name="r")) == 4


def test_means_match_the_release(frame: pandas.DataFrame, release: offaxis.Release) -> None:
    reports = frame.offaxis.privatize(release, columns=NAMES)
    mean = reports.offaxis.decode_mean(release, columns=NAMES)
    np.testing.assert_array_equal(mean.to_numpy(), release.decode_mean(reports.to_list()))
    assert list(mean.index) == NAMES


def test_invalid_data_raise_with_the_reason(
    frame: pandas.DataFrame, release: offaxis.Release, head: object, public: np.ndarray
) -> None:
    for columns, message in [
        (["a", "z"], "no column 'z'; the columns are a, b"),
        (None, "'diary' is not"),
        (["a", "b"], "dimension 6, got 2"),
        ("a", "a column of numbers is one vector"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            frame.offaxis.privatize(release, columns=columns)
    with pytest.raises(InvalidInput, match="finite"):
        frame.assign(a=np.nan).offaxis.privatize(release, columns=NAMES)
    reports = frame.offaxis.privatize(release, columns=NAMES)
    with pytest.raises(InvalidInput, match="6 columns, got 2 names"):
        reports.offaxis.decode(release, columns=["a", "b"])
    with pytest.raises(InvalidReport):
        frame["diary"].offaxis.decode(release)
    directions = offaxis.fit(head, public, epsilon=3, mechanism="privunit2")
    biased = frame.offaxis.privatize(directions, columns=NAMES)
    with pytest.raises(BiasedDecoder):
        biased.offaxis.decode_mean(directions)


def test_one_number_per_row_is_a_vector_of_dimension_one(public: np.ndarray) -> None:
    release = offaxis.fit(None, public[:, :1], epsilon=3, reshaping="none", mechanism="laplace")
    frame = pandas.DataFrame({"x": public[:5, 0]})
    assert len(frame.offaxis.privatize(release)) == 5
