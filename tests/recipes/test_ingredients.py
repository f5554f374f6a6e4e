"""What every recipe is given, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.recipes import NAMES, ingredients, recipe
from offaxis.recipes.gathering import gather


@pytest.mark.parametrize("name", NAMES)
def test_delta_is_given_exactly_where_it_means_something(head, public, name):
    needed = recipe(name).needs_delta
    message = "needs delta" if needed else "takes no delta"
    with pytest.raises(InvalidInput, match=message):
        offaxis.fit(head, public, epsilon=1, randomizer=name, delta=None if needed else 1e-5)


def test_many_public_vectors_are_thinned_evenly(public, monkeypatch):
    monkeypatch.setattr(ingredients, "_SAMPLE_NUMBERS", 6 * 40)
    batches = np.array_split(public, [3, 4, 100, 101, 350])
    for source in (public, lambda: iter(batches)):
        given, _ = gather(None, source, recipe("laplace"), epsilon=1, reshaping="none")
        np.testing.assert_array_equal(given.sample, public[:: -(-500 // 40)])


def test_few_public_vectors_are_all_kept(public):
    given, _ = gather(None, public, recipe("laplace"), epsilon=1, reshaping="none")
    np.testing.assert_array_equal(given.sample, public)


def test_other_vectors_on_the_second_pass_are_noticed(public):
    passes = iter([public, public + 1])
    given, _ = gather(None, lambda: [next(passes)], recipe("plan"), epsilon=1, reshaping="none")
    with pytest.raises(InvalidInput, match="not the ones"):
        _ = given.sample


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidInput, match="coordinatewise-laplace"):
        recipe("cw")
