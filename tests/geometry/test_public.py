import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import survey


def test_the_hash_does_not_depend_on_how_vectors_are_cut():
    data = np.random.default_rng(0).standard_normal((100, 3))
    whole, mean, _ = survey(PublicVectors(data))
    cut, _, _ = survey(PublicVectors(lambda: iter([data[:1], data[1:40], data[40:]])))
    assert whole == cut
    assert np.allclose(mean, data.mean(axis=0))
    assert whole.count == 100
    assert whole.dim == 3


def test_half_precision_is_read_without_loss():
    data = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float16)
    wide = data.astype(np.float64)
    assert survey(PublicVectors(data))[0] == survey(PublicVectors(wide))[0]


def test_a_one_way_iterator_is_refused():
    with pytest.raises(InvalidInput, match="read twice"):
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
def test_bad_public_vectors_are_named(data, message):
    with pytest.raises(InvalidInput, match=message):
        survey(PublicVectors(data))


def test_batches_of_different_dimension_are_refused():
    with pytest.raises(InvalidInput, match="dimension 3"):
        survey(PublicVectors(lambda: iter([np.ones((20, 3)), np.ones((20, 4))])))
