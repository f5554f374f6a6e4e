"""Public vectors: checks, hashes and moments, also in parts, as a cluster takes them."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offaxis
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import tensors_of
from offaxis.geometry import PublicVectors, measure
from offaxis.geometry.public import MultisetHash, PublicMoments, SequenceHash, survey, walk


class InParts(PublicVectors):
    """Vectors in parts that are folded separately, pickled, and shuffled anew on every pass."""

    def __init__(self, array, parts=5):
        super().__init__(array)
        self._parts = np.array_split(array, parts)
        self._passes = 0

    @property
    def hashing(self):
        return MultisetHash

    def batches(self, rows):
        for part in self._shuffled():
            yield from PublicVectors(part).batches(rows)

    def _shuffled(self):
        self._passes += 1
        order = np.random.default_rng(self._passes).permutation(len(self._parts))
        return [self._parts[index] for index in order]

    def fold(self, make, rows, progress=None):
        total = make()
        for part in self._shuffled():
            worker = pickle.loads(pickle.dumps(make))()
            for batch in PublicVectors(part).batches(rows):
                worker.add(batch)
            total.merge(pickle.loads(pickle.dumps(worker)))
        return total


def test_a_source_in_parts_measures_the_same_geometry(head, public):
    whole, parts = measure(head, PublicVectors(public)), measure(head, InParts(public))
    assert np.allclose(whole.gram, parts.gram, rtol=1e-12)
    assert np.allclose(whole.mean, parts.mean, rtol=1e-12)
    assert np.allclose(whole.covariance, parts.covariance, rtol=1e-10, atol=1e-12)
    assert (whole.public.count, whole.public.dim) == (parts.public.count, parts.public.dim)


@pytest.mark.parametrize("mechanism", ["laplace", "privunit2", "response", "class-response"])
def test_a_release_fitted_to_parts_is_the_same_up_to_rounding(head, public, mechanism):
    settings = {"epsilon": 3, "mechanism": mechanism}
    if mechanism in ("laplace", "privunit2"):
        settings["reshaping"] = "optimal"
    if mechanism == "response":  # the cells depend on the order of the vectors, their number not
        settings["size"] = 4
    whole = offaxis.fit(head, public, **settings)
    parts = offaxis.fit(head, InParts(public), **settings)
    if mechanism != "response":
        for name, tensor in tensors_of(whole.encoder).items():
            assert np.allclose(tensor, tensors_of(parts.encoder)[name], rtol=1e-6, atol=1e-8), name
    assert parts.provenance.public.sha256 == survey(InParts(public, 3)).identity.sha256


def test_vectors_that_change_between_passes_are_an_error(public):
    identity = survey(InParts(public)).identity
    changed = public.copy()
    changed[17, 2] = np.nextafter(changed[17, 2], 9)
    assert sum(len(batch) for batch in walk(InParts(public), identity)) == len(public)
    with pytest.raises(InvalidInput, match="same ones on every pass"):
        list(walk(InParts(changed), identity))


rows = st.lists(st.tuples(*[st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300])] * 2), min_size=10)


def hashed(vectors):
    digest = MultisetHash()
    digest.add(np.array(vectors))
    digest.add(np.array([[7.0, 8.0]]))
    return digest.identity().sha256


@given(rows, st.randoms(use_true_random=False))
def test_the_hash_of_a_multiset_depends_on_neither_order_nor_batches(vectors, random):
    shuffled = vectors.copy()
    random.shuffle(shuffled)
    cut = random.randrange(1, len(vectors))
    first, second = MultisetHash(), MultisetHash()
    first.add(np.array(shuffled[:cut]))
    second.add(np.array(shuffled[cut:]))
    second.add(np.array([[7.0, 8.0]]))
    first.merge(second)
    assert first.identity().sha256 == hashed(vectors)


@given(rows)
def test_another_multiplicity_is_another_multiset(vectors):
    swapped = [*vectors[:-1], (3.0, 3.0)]
    doubled = [*vectors, vectors[0]]
    hashes = [hashed(vectors), hashed(swapped), hashed(doubled)]
    assert len(set(hashes)) == 3


def test_a_vector_repeated_65536_times_still_changes_the_hash():
    """The lanes wrap around there; the count is hashed too."""
    rare = np.random.default_rng(0).standard_normal((12, 2))
    plain, extended, repeated = MultisetHash(), MultisetHash(), MultisetHash()
    plain.add(rare)
    extended.add(rare)
    repeated.add(np.ones((1, 2)))
    for _ in range(16):
        repeated.merge(deepcopy(repeated))
    assert repeated.count == 65536
    assert not repeated._lanes.any()
    extended.merge(repeated)
    assert plain.identity() != extended.identity()


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_in_parts_stay_accurate_under_a_large_offset(offset):
    rng = np.random.default_rng(3)
    data = rng.standard_normal((400, 4)) + offset
    total = PublicMoments()
    for part in np.array_split(data, 7):
        moments = PublicMoments()
        moments.add(part)
        total.merge(moments)
    total.merge(PublicMoments())
    assert np.allclose(total.covariance, np.cov(data.T, bias=True), rtol=1e-9, atol=1e-9)
    assert np.allclose(total.mean, data.mean(axis=0), rtol=1e-14)


def test_a_wrapped_source_keeps_its_hash(public):
    source = InParts(public)
    assert PublicVectors(source).hashing is MultisetHash
    assert survey(PublicVectors(source)).identity == survey(source).identity


def test_a_large_vector_space_is_read_in_small_batches():
    data = np.ones((40, 1 << 20))
    assert {len(batch) for batch in PublicVectors(data).batches(8192)} == {8}


def test_an_ordered_source_is_not_hashed_in_parts(public):
    first, second = SequenceHash(), SequenceHash()
    first.add(public[:200])
    second.add(public[200:])
    with pytest.raises(InvalidInput, match="MultisetHash"):
        first.merge(second)


def test_the_hash_does_not_depend_on_the_batches():
    data = np.random.default_rng(0).standard_normal((100, 3))
    whole, mean, _ = survey(PublicVectors(data))
    batched, _, _ = survey(PublicVectors(lambda: iter([data[:1], data[1:40], data[40:]])))
    assert whole == batched
    assert np.allclose(mean, data.mean(axis=0))
    assert whole.count == 100
    assert whole.dim == 3


def test_half_precision_is_read_without_loss():
    data = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float16)
    wide = data.astype(np.float64)
    assert survey(PublicVectors(data))[0] == survey(PublicVectors(wide))[0]


def test_an_iterator_is_an_error():
    with pytest.raises(InvalidInput, match="read several times"):
        PublicVectors(iter([np.ones((20, 2))]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones(5), "batch"),
        (np.ones((0, 3)), "empty"),
        (np.ones((9, 3)), "at least 10"),
        (np.full((20, 3), 0.1), "all equal"),
        (np.full((20, 3), np.nan), "finite"),
        (np.array([["a", "b"]] * 20), "real numbers"),
        (np.ones((20, 2), dtype=complex), "real numbers"),
    ],
)
def test_bad_public_vectors_are_an_error(data, message):
    with pytest.raises(InvalidInput, match=message):
        survey(PublicVectors(data))


def test_batches_of_different_dimensions_are_an_error():
    with pytest.raises(InvalidInput, match="dimension 3"):
        survey(PublicVectors(lambda: iter([np.ones((20, 3)), np.ones((20, 4))])))
