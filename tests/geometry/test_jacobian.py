"""The streamed Gram: exact, independent of batches and their order, in constant memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.errors import InvalidInput
from offaxis.geometry import FiniteDifferences, Layers, PublicVectors, measure
from offaxis.geometry.jacobian import PartialGram


def test_the_streamed_gram_is_the_mean_of_outer_products(head, public):
    geometry = measure(head, PublicVectors(public))
    J = head.jacobians(public)
    assert np.allclose(geometry.gram, np.einsum("nkm,nkl->ml", J, J) / len(public), rtol=1e-12)
    assert np.array_equal(geometry.gram, geometry.gram.T)
    assert np.allclose(geometry.mean, public.mean(axis=0))
    assert np.allclose(geometry.covariance, np.cov(public.T, bias=True))
    assert geometry.outputs == 3


@given(st.permutations(range(12)), st.integers(0, 2**32 - 1))
def test_partial_grams_merge_to_the_same_bits_in_any_order(order, seed):
    rng = np.random.default_rng(seed)
    model = Layers.linear(rng.standard_normal((3, 4)))
    parts = [
        PartialGram.of(model, rng.standard_normal((5, 4)) * 10.0 ** rng.integers(-6, 6))
        for _ in range(12)
    ]

    def total(indices):
        result = PartialGram.empty(4)
        for index in indices:
            result.merge(parts[index])
        return result

    forward, shuffled = total(range(12)), total(order)
    tree = total(order[:5])
    tree.merge(pickle.loads(pickle.dumps(total(order[5:]))))
    assert np.array_equal(forward.mean(), shuffled.mean())
    assert np.array_equal(forward.mean(), tree.mean())
    assert forward.count == tree.count == 60


def test_plain_addition_would_depend_on_the_order():
    """The broken control: float64 sums without the carried error differ."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(200) * 10.0 ** rng.integers(-8, 8, 200)
    forward = backward = 0.0
    for value in values:
        forward += value
    for value in values[::-1]:
        backward += value
    assert forward != backward


def test_batches_from_a_function_give_the_same_release_as_an_array(head, public):
    def batches():
        yield public[:123]
        yield public[123:].astype(np.float64)

    whole = measure(head, PublicVectors(public))
    streamed = measure(head, PublicVectors(batches))
    assert np.allclose(whole.gram, streamed.gram, rtol=1e-13)
    assert whole.public == streamed.public


def test_memory_does_not_grow_with_the_number_of_vectors():
    model = Layers.linear(np.ones((10, 32)))
    block = np.random.default_rng(0).standard_normal((2048, 32))

    def peak(blocks):
        source = PublicVectors(lambda: (block for _ in range(blocks)))
        tracemalloc.start()
        measure(model, source)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory

    peak(2)
    assert peak(60) < 1.2 * peak(6)


def test_progress_counts_every_vector(head, public):
    seen: list[int] = []
    measure(head, PublicVectors(public), seen.append)
    assert sum(seen) == len(public)


def test_a_model_of_another_dimension_is_an_error(head):
    with pytest.raises(InvalidInput, match="dimension 6"):
        measure(head, PublicVectors(np.ones((20, 4))))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: z.sum(axis=0, keepdims=True), "one row per vector"),
        (lambda z: z - z.mean(axis=0), "depends on the other vectors"),
        (lambda z: z * np.nan, "not finite"),
    ],
)
def test_a_model_that_mixes_or_breaks_rows_is_an_error(function, message, public):
    with pytest.raises(InvalidInput, match=message):
        measure(FiniteDifferences(function), PublicVectors(public))


def test_a_jacobian_too_large_to_square_is_an_error(public):
    with pytest.raises(InvalidInput, match="too large to square"):
        measure(Layers.linear(np.full((2, 6), 1e200)), PublicVectors(public))
