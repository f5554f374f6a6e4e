"""Figures of answers: they show the estimates and their intervals, and need matplotlib only."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
import pytest

from offaxis.encoding import Number
from offaxis.errors import MissingExtra
from offaxis.learning import Answer, Histogram, Principal, fit_answers, histogram
from offaxis.learning.crowd_answers import normal_limits
from offaxis.learning.figures import MOST_LABELS, shortened

WARNING = "No weights of the public vectors explain the reports (p = 0.001): people differ. " * 2


def answer(
    estimate: Any, error: Any, centre: Any = None, question: str = "shares", warning: str = ""
) -> Answer:
    """An answer whose intervals are around the centre."""
    names = tuple(f"answer {place}" for place in range(np.size(estimate)))
    limits = normal_limits(estimate if centre is None else centre, error)
    return Answer(question, names, estimate, error, warning, limits, (-math.inf, math.inf))


def ends(collection: Any) -> Any:
    """Return the ends of horizontal lines, (n, 2)."""
    return np.array([line[:, 0] for line in collection.get_segments()])


def test_a_figure_shows_every_estimate_and_its_interval(tmp_path) -> None:
    """A row per name; an interval is not centred at the estimate, which is shrunk."""
    estimate, error = np.array([0.5, 0.3, 0.2]), np.array([0.01, 0.02, 0.03])
    shown = answer(estimate, error, centre=np.array([0.55, 0.25, 0.2]))
    axes = shown.figure(tmp_path / "shares.png").axes[0]
    assert (tmp_path / "shares.png").stat().st_size > 5_000
    assert [text.get_text() for text in axes.get_yticklabels()] == list(shown.names)
    assert axes.lines[0].get_xdata().tolist() == estimate.tolist()
    np.testing.assert_allclose(ends(axes.collections[0]), np.transpose(shown.interval()))
    assert estimate[0] < ends(axes.collections[0])[0, 0]  # outside its own interval, and drawn
    assert axes.get_xlabel() == "shares"


def test_one_number_has_a_row() -> None:
    """The answer of a mean is a number, not an array."""
    axes = answer(0.25, 0.05, question="mean").figure().axes[0]
    assert len(ends(axes.collections[0])) == 1
    assert axes.lines[0].get_xdata().tolist() == [0.25]


def test_many_numbers_are_a_line_in_a_band() -> None:
    """More numbers than have room for names."""
    size = MOST_LABELS + 1
    axes = answer(np.linspace(0, 1, size), np.full(size, 0.1), question="mean").figure().axes[0]
    assert len(axes.lines[0].get_ydata()) == size
    band = axes.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose([band.y0, band.y1], [-1.96 * 0.1, 1 + 1.96 * 0.1], atol=1e-3)


def test_a_difference_shows_where_zero_is() -> None:
    """Whether something has changed can be seen."""
    change = np.array([0.2, -0.2])
    plain = answer(change, np.full(2, 0.05)).figure().axes[0]
    marked = answer(change, np.full(2, 0.05), question="difference of shares").figure().axes[0]
    assert len(marked.lines) == len(plain.lines) + 1
    assert set(marked.lines[-1].get_xdata()) == {0}


def test_a_matrix_marks_the_numbers_that_are_not_zero() -> None:
    """Of a covariance; 0.1 with the error 0.1 is not marked, 1 and −1 are."""
    matrix = np.array([[1.0, 0.1], [0.1, -1.0]])
    figure = answer(matrix, np.full((2, 2), 0.1), question="covariance").figure()
    axes = figure.axes[0]
    marks = np.transpose(axes.lines[0].get_data()).tolist()
    assert sorted(marks) == [[0, 0], [1, 1]]
    assert axes.images[0].get_array().tolist() == matrix.tolist()


def test_a_figure_carries_the_warning() -> None:
    """A picture is passed on without the sentence next to it."""
    figure = answer(np.array([0.5, 0.5]), np.full(2, 0.1), warning=WARNING.strip()).figure()
    assert " ".join(figure.get_suptitle().split()) == WARNING.strip()
    assert max(map(len, figure.get_suptitle().split("\n"))) <= 80
    assert answer(0.5, 0.1).figure().get_suptitle() == ""


def ages() -> Histogram:
    """The histogram of 2,000 ages."""
    release = fit_answers(Number(0, 100, name="age", bins=10), epsilon=2)
    numbers = np.random.default_rng(0).normal(40, 10, 2000)
    return histogram(release, release.privatize(answers=numbers))


def test_a_histogram_has_a_bar_and_an_interval_per_bin(tmp_path) -> None:
    """Bars are the unbiased estimates, also below 0; intervals are simultaneous."""
    found = ages()
    axes = found.figure(tmp_path / "ages.png").axes[0]
    assert (tmp_path / "ages.png").stat().st_size > 5_000
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], found.estimate)
    np.testing.assert_allclose([bar.get_x() for bar in axes.patches], found.edges[:-1])
    lines = np.array([line[:, 1] for line in axes.collections[0].get_segments()])
    np.testing.assert_allclose(lines, np.transpose(found.interval(0.95)))


def principal(apart: list[bool]) -> Principal:
    """Three variances, some of them apart."""
    values, error = np.array([3.0, 2.0, 1.9]), np.array([0.2, 0.1, 0.1])
    flags = np.array(apart)
    return Principal(values, error, np.zeros(3), np.eye(3), np.full(3, 0.1), flags, 1000)


def test_variances_that_are_not_apart_are_hollow(tmp_path) -> None:
    """Their intervals do not hold, and the picture says so."""
    found = principal([True, False, False])
    axes = found.figure(tmp_path / "variances.png").axes[0]
    assert (tmp_path / "variances.png").stat().st_size > 5_000
    assert axes.lines[1].get_ydata().tolist() == [3.0]  # filled
    assert "not apart" in axes.get_title(loc="right")
    lines = np.array([line[:, 1] for line in axes.collections[0].get_segments()])
    np.testing.assert_allclose(lines, np.transpose(found.interval(0.95)))
    assert principal([True] * 3).figure().axes[0].get_title(loc="right") == ""


@pytest.mark.parametrize("shown", [answer(0.5, 0.1), principal([True] * 3)], ids=["answer", "pca"])
def test_without_matplotlib_the_error_says_what_to_install(shown, monkeypatch) -> None:
    """matplotlib is an extra; nothing else here needs it."""
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"figures need matplotlib: pip install '\.\[html\]'"):
        shown.figure()


def test_long_names_are_cut() -> None:
    """They would leave no room for the picture."""
    assert shortened("a" * 40) == "a" * 40
    assert shortened("a" * 41) == "a" * 39 + "…"
