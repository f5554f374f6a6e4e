"""Wide priors: their draws, their seed, and their record in the provenance of a release."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.evaluation.priors import read_prior, wide_prior
from offaxis.evaluation.recommend import recommend
from offaxis.geometry import Layers

HEAD = Layers.linear(np.array([[1.0, 0, 0], [0, 1.0, 0]]))


@given(st.integers(1, 40), st.floats(-5, 5), st.floats(0.1, 5), st.integers(0, 2**32))
def test_draws_stay_in_the_box_and_in_the_ball(dim, low, width, seed):
    box = wide_prior(dim, low=low, high=low + width).draw(200, seed)
    assert low - 1e-9 <= box.min()
    assert box.max() <= low + width + 1e-9
    ball = wide_prior(dim, radius=width, centre=low).draw(200, seed)
    assert np.linalg.norm(ball - low, axis=1).max() <= width * (1 + 1e-9)
    assert np.array_equal(ball, wide_prior(dim, radius=width, centre=low).draw(200, seed))


def test_a_ball_is_filled_uniformly_and_deviations_are_kept():
    radii = np.linalg.norm(wide_prior(3, radius=2).draw(20_000), axis=1) / 2
    # Shares within r are r³. Five standard errors of 20,000 draws: one false alarm in 10^6.
    for r in (0.3, 0.6, 0.9):
        assert abs((radii < r).mean() - r**3) < 5 * np.sqrt(r**3 * (1 - r**3) / 20_000)
    drawn = wide_prior(2, scale=[1, 10], centre=[5, 0]).draw(20_000)
    assert drawn.std(axis=0) == pytest.approx([1, 10], rel=0.03)
    assert drawn.mean(axis=0) == pytest.approx([5, 0], abs=0.4)


def test_a_release_for_a_prior_states_it_and_has_the_same_guarantee():
    recommendation = recommend(HEAD, None, epsilon=2, prior=wide_prior(3, low=-1, high=1))
    assert recommendation.release.provenance.statement.startswith("synthetic prior: even in a box")
    assert recommendation.release.guarantee.pure
    assert recommendation.release.guarantee.epsilon == 2
    assert "not of people" in recommendation.cautions[0]
    assert len(recommendation.cautions) == 1


def test_priors_are_read_from_the_command_line():
    assert read_prior("box:0,1", 4).words == (
        "even in a box of half widths 0.5, not centred at zero, dimension 4"
    )
    assert read_prior("ball:3", 4).words == "even in a ball of radius 3, dimension 4"
    assert read_prior("gaussian:2", 4).words == "normal with deviations 2, dimension 4"
    for wrong in ("box:1", "cube:0,1", "ball:a", "ball", "box:0,1,2"):
        with pytest.raises(InvalidInput, match="box:LOW,HIGH"):
            read_prior(wrong, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one"),
        ({"low": 0}, "give one"),
        ({"low": 0, "high": 1, "radius": 1}, "give one"),
        ({"low": 1, "radius": 1}, "give one"),
        ({"low": np.zeros(2)}, "give one"),
        ({"low": [1, 0], "high": 1}, "low must be below high"),
        ({"radius": 0}, "radius must be positive"),
        ({"scale": [1, -1]}, "scale must be positive"),
        ({"scale": [1, 2, 3]}, "or 2 of them"),
    ],
)
def test_an_incomplete_prior_is_rejected(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        wide_prior(2, **arguments)
    with pytest.raises(InvalidInput, match="dim"):
        wide_prior(0, radius=1)


def test_public_vectors_and_a_prior_exclude_each_other():
    prior = wide_prior(3, radius=1)
    with pytest.raises(InvalidInput, match="not both"):
        recommend(HEAD, prior.draw(100), epsilon=1, prior=prior)
    with pytest.raises(InvalidInput, match=r"wide_prior.*class-response.*Codebooks, posterior"):
        recommend(HEAD, None, epsilon=1)
