"""The public inputs of mechanisms: samples, identities and settings that have an effect."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.mechanisms import NAMES, base, find_mechanism
from offaxis.mechanisms.base import gather


@pytest.mark.parametrize("name", NAMES)
def test_delta_is_required_exactly_where_it_has_an_effect(head, public, name):
    needed = find_mechanism(name).needs_delta
    message = "needs delta" if needed else "takes no delta"
    with pytest.raises(InvalidInput, match=message):
        offaxis.fit(head, public, epsilon=1, mechanism=name, delta=None if needed else 1e-5)


def test_many_public_vectors_are_sampled_evenly(public, monkeypatch):
    monkeypatch.setattr(base, "_SAMPLE_NUMBERS", 6 * 40)
    batches = np.array_split(public, [3, 4, 100, 101, 350])
    for source in (public, lambda: iter(batches)):
        inputs, _ = gather(None, source, find_mechanism("laplace"), epsilon=1, reshaping="none")
        np.testing.assert_array_equal(inputs.sample, public[np.linspace(0, 499, 40).astype(int)])


def test_few_public_vectors_are_all_kept(public):
    inputs, _ = gather(None, public, find_mechanism("laplace"), epsilon=1, reshaping="none")
    np.testing.assert_array_equal(inputs.sample, public)


def test_other_vectors_on_the_second_pass_are_an_error(public):
    passes = iter([public, public + 1])
    inputs, _ = gather(
        None, lambda: [next(passes)], find_mechanism("laplace"), epsilon=1, reshaping="none"
    )
    with pytest.raises(InvalidInput, match="not the ones"):
        _ = inputs.sample


def test_the_error_for_an_unknown_name_lists_the_names():
    with pytest.raises(InvalidInput, match="coordinatewise-laplace"):
        find_mechanism("cw")
