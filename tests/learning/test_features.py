"""Feature maps: their definition in NumPy, any finite vector, and odd public vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from offaxis.errors import InvalidInput, OffaxisError
from offaxis.geometry import Layers
from offaxis.learning import cells, fit_pairs, principal, random_features
from offaxis.learning.features import _NORMAL, CLUSTERED, CONSTANT, RANK, choose, silhouette

RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((400, 6)) @ RNG.standard_normal((6, 6)) + 3.0
CENTRES = 6 * RNG.standard_normal((5, 8))
GROUPS = RNG.integers(5, size=900)
CLUSTERS = CENTRES[GROUPS] + RNG.standard_normal((900, 8))


def coordinates(public, Z, rank: int):
    """Return the whitened coordinates of Z in the leading directions of public vectors."""
    mean = public.mean(axis=0)
    _, singular, rows = np.linalg.svd(public - mean, full_matrices=False)
    return (Z - mean) @ rows[:rank].T / singular[:rank] * math.sqrt(len(public))


def directions(w):
    """Return w/√(‖w‖² + 0.05² r)."""
    return w / np.sqrt((w**2).sum(axis=1, keepdims=True) + 0.05**2 * w.shape[1])


def assert_same_up_to_signs(x, y):
    signs = np.sign((x * y).sum(axis=0))
    np.testing.assert_allclose(x, signs * y, atol=1e-9)


# ---- Principal directions


@pytest.mark.parametrize("rank", [1, 3, 6])
@pytest.mark.parametrize("intercept", [False, True])
def test_features_are_the_directions_of_whitened_coordinates(rank, intercept):
    Z = RNG.standard_normal((50, 6)) * 10.0 ** RNG.uniform(-3, 6, (50, 1))
    x = principal(PUBLIC, rank=rank, intercept=intercept).of(Z)
    share = CONSTANT if intercept else 0.0
    expected = math.sqrt(1 - share) * directions(coordinates(PUBLIC, Z, rank))
    assert_same_up_to_signs(x[:, :rank], expected)
    assert x.shape[1] == rank + intercept
    np.testing.assert_allclose(x[:, rank:], math.sqrt(share))


def test_many_dimensions_give_the_same_as_few():
    """Beyond 2,048 dimensions directions come from a truncated decomposition."""
    few = PUBLIC[:100]
    wide = np.hstack([few, 1e-3 * RNG.standard_normal((100, 2100))])
    small, large = principal(few, rank=6), principal(wide, rank=6)
    assert large.network.input_dim == 2106
    np.testing.assert_allclose(np.abs(small.of(few)), np.abs(large.of(wide)), atol=1e-3)
    expected = math.sqrt(1 - CONSTANT) * directions(coordinates(wide, wide, 6))
    assert_same_up_to_signs(large.of(wide)[:, :6], expected)
    assert len(fit_pairs(large, 3, epsilon=1).privatize(wide[:3], answers=[0, 1, 2])) == 3
    for make in (lambda: cells(wide, 4), lambda: random_features(wide, 5)):
        assert np.isfinite(make().of(wide)).all()


def test_ten_thousand_dimensions_are_fitted():
    """In 0.3 s and 100 MB: no covariance of all dimensions."""
    rng = np.random.default_rng(1)
    huge = rng.standard_normal((100, 40)).astype(np.float32) @ rng.standard_normal((40, 10_000))
    features = principal(huge)
    assert features.size == RANK + 1
    assert (np.linalg.norm(features.of(huge), axis=1) <= 1 + 1e-12).all()


@pytest.mark.parametrize("dim", [6, 2100])
def test_directions_that_do_not_vary_are_left_out(dim):
    """Constant and repeated columns, fewer vectors than dimensions, a subspace."""
    rng = np.random.default_rng(2)
    flat = rng.standard_normal((40, 3)) @ rng.standard_normal((3, dim))
    constant = np.hstack([flat, np.ones((40, 2)), flat[:, :1]])
    for public in (flat, constant):
        features = principal(public)
        assert features.size == 4
        assert np.isfinite(features.of(public)).all()
        with pytest.raises(InvalidInput, match="3 directions, fewer than rank=4"):
            principal(public, rank=4)
    few = rng.standard_normal((12, dim))
    assert principal(few).size == min(11, dim, RANK) + 1


def test_one_dimension_has_one_direction():
    public = RNG.standard_normal((100, 1))
    assert principal(public).size == 2
    release = fit_pairs(principal(public, intercept=False), 2, epsilon=1)
    assert len(release.privatize(public[:2], answers=[0, 1])) == 2


def test_a_head_keeps_the_directions_that_it_sees():
    """Vectors that differ in what a linear head does not see have the same features."""
    head = RNG.standard_normal((3, 6))
    hidden = np.linalg.svd(head - head.mean(axis=0))[2][2:]
    features = principal(PUBLIC, heads=head)
    assert features.size == 2 + 1  # differences of three outputs
    moved = PUBLIC + RNG.standard_normal((400, 4)) @ hidden
    np.testing.assert_allclose(features.of(moved), features.of(PUBLIC), atol=1e-8)
    # The first direction is the one in which the outputs change most.
    strong = principal(PUBLIC, rank=1, heads=np.diag([1.0, 1e-3, 0, 0, 0, 0])[:2], intercept=False)
    signs = np.sign(strong.of(PUBLIC)[:, 0] * (PUBLIC - PUBLIC.mean(axis=0))[:, 0])
    assert abs(signs.mean()) > 0.95


def test_a_head_with_one_output_has_a_direction():
    number = Layers.linear(np.arange(6.0))
    assert principal(PUBLIC, heads=[np.eye(2, 6), number]).size == 2 + 1
    assert principal(PUBLIC, heads=number).size == 1 + 1


def test_heads_count_the_same_whatever_their_scale():
    first, second = RNG.standard_normal((2, 3, 6))
    one = principal(PUBLIC, rank=3, heads=[first, second])
    other = principal(PUBLIC, rank=3, heads=[1e6 * first, second])
    np.testing.assert_allclose(np.abs(one.of(PUBLIC)), np.abs(other.of(PUBLIC)), atol=1e-6)


# ---- Random features


def test_random_features_carry_what_linear_ones_do_not():
    """The product of two coordinates, by least squares on clean vectors."""
    rng = np.random.default_rng(3)
    public = rng.standard_normal((4000, 3))
    y = np.sign(public[:, 0] * public[:, 1])

    def explained(features):
        x = features.of(public)
        return 1 - np.mean((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2)

    assert explained(random_features(public, 40)) > 0.3
    assert explained(principal(public)) < 0.02


def test_random_features_are_directions_of_functions_of_whitened_coordinates():
    """Arguments of unit variance in four whitened coordinates, a shift in ±1, then as above."""
    public = PUBLIC[:, :4]
    features = random_features(public, 5)
    weight, bias = features.network.weights[0], features.network.biases[0]
    arguments = public @ weight.T + bias
    assert weight.shape == (256, 4)
    np.testing.assert_allclose(arguments.mean(axis=0), np.clip(arguments.mean(axis=0), -1, 1))
    assert arguments.var(axis=0).mean() == pytest.approx(1, abs=0.3)
    hidden = np.tanh(arguments)
    expected = math.sqrt(1 - CONSTANT) * directions(coordinates(hidden, hidden, 5))
    assert_same_up_to_signs(features.of(public)[:, :5], expected)


def test_random_features_are_those_of_the_public_vectors():
    one, same = random_features(PUBLIC, 5), random_features(PUBLIC.copy(), 5)
    np.testing.assert_array_equal(one.of(PUBLIC), same.of(PUBLIC))
    assert not np.allclose(one.of(PUBLIC), random_features(PUBLIC[::-1], 5).of(PUBLIC))


# ---- Cells


def test_the_cell_is_that_of_the_nearest_point():
    features = cells(CLUSTERS, 7)
    last, bias = features.network.weights[-1], features.network.biases[-1]
    rank = last.shape[1]
    points = last * math.sqrt(rank)
    np.testing.assert_allclose(bias, -(points**2).sum(axis=1) / 2)
    hidden = Layers(
        [features.network.weights[0], np.eye(rank) / math.sqrt(rank)],
        [features.network.biases[0], np.zeros(rank)],
        "normalise",
    )
    x = hidden.outputs(CLUSTERS)
    nearest = ((x[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(features.cells_of(CLUSTERS), nearest)
    assert_same_up_to_signs(x, directions(coordinates(CLUSTERS, CLUSTERS, rank)))
    for cell, point in enumerate(points):  # k-means: every point is the mean of its cell
        np.testing.assert_allclose(x[nearest == cell].mean(axis=0), point, atol=1e-3)


def test_cells_find_the_clusters_and_their_number():
    for count in (3, 5):
        own = CLUSTERS[count > GROUPS], GROUPS[count > GROUPS]
        features = cells(own[0])
        assert features.size == count
        found = features.cells_of(own[0])
        pure = sum(np.bincount(own[1][found == cell]).max() for cell in range(count))
        assert pure / len(found) > 0.98


def test_fewer_points_than_cells_give_fewer_cells():
    public = np.repeat(np.eye(3), 20, axis=0)
    features = cells(public, 5)
    assert features.size == 3
    assert len(set(features.cells_of(np.eye(3)))) == 3


def test_the_silhouette_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    labels = np.append(GROUPS[:60] + 3, 99)  # a cell of one vector counts zero
    Z = CLUSTERS[:61]
    distances = np.linalg.norm(Z[:, None] - Z, axis=2)
    expected = metrics.silhouette_score(distances, labels, metric="precomputed")
    assert silhouette(distances, labels) == pytest.approx(expected)
    assert silhouette(distances, np.zeros(61, dtype=int)) == 0.0


@pytest.mark.parametrize("size", [4, 10])
def test_normal_vectors_are_no_clearer_than_recorded(size):
    rng = np.random.default_rng(4)
    normal = rng.standard_normal((3000, size - 1))
    clearness = cells(normal, size).settings["clearness"]
    assert isinstance(clearness, float)
    assert abs(clearness) < 0.03
    assert size in _NORMAL


def test_cells_are_chosen_where_vectors_cluster():
    rng = np.random.default_rng(5)
    few = CLUSTERS[:300]
    found = choose(few, 4)
    assert found.kind == "cells"
    assert found.size >= 4
    normal = choose(rng.standard_normal((500, 20)), 2)
    assert normal.kind == "linear"
    assert normal.settings["clearness"] < CLUSTERED
    assert choose(few, None).kind == "linear"  # cells cannot report numbers


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_normal_vectors_in_few_dimensions_do_not_cluster(dim):
    public = np.random.default_rng(6).standard_normal((300, dim))
    assert choose(public, 2).kind == "linear"


def test_more_classes_than_cells_are_tried_give_linear_features():
    assert choose(RNG.standard_normal((500, 20)), 40).kind == "linear"


# ---- Any vector

entries = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(arrays.arrays(np.float64, (3, 6), elements=entries))
def test_the_features_of_any_finite_vector_are_in_the_unit_ball(Z):
    """As a device computes them."""
    for features in (FITTED, CURVED):
        with np.errstate(all="ignore"):
            x = ENCODERS[features](Z)
        assert np.isfinite(x).all()
        assert (np.linalg.norm(x, axis=1) <= 1 + 1e-12).all()


def test_features_of_huge_vectors_are_those_of_a_device():
    huge = np.array([[1.7e308, 1, 2, 3, 4, 5], [-1.7e308] * 6, [1e308] * 6])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(FITTED.of(huge), ENCODERS[FITTED](huge), atol=1e-9)


def test_a_short_coordinate_shortens_the_features():
    """The zero vector of coordinates has no direction; no coin is needed for the length."""
    features = principal(PUBLIC, intercept=False)
    mean = PUBLIC.mean(axis=0, keepdims=True)
    np.testing.assert_allclose(features.of(mean), 0, atol=1e-9)
    typical = np.linalg.norm(features.of(PUBLIC), axis=1)
    assert typical.max() <= 1
    assert np.median(typical) > 0.998


# ---- Any public vectors


def test_public_vectors_come_in_any_form():
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    single = np.float32(PUBLIC)
    expected = principal(PUBLIC).of(PUBLIC)
    strided = np.repeat(np.repeat(PUBLIC, 2, axis=0), 2, axis=1)[::2, ::2]
    for public, tolerance in [
        (PUBLIC.tolist(), 1e-12),
        (strided, 1e-12),
        (np.asfortranarray(PUBLIC), 1e-12),
        (lambda: iter([PUBLIC[:150], PUBLIC[150:]]), 1e-9),
        (pandas.DataFrame(PUBLIC), 1e-12),
        (torch.tensor(PUBLIC), 1e-12),
        (single, 1e-3),
        (torch.tensor(single), 1e-3),
    ]:
        features = principal(public)
        np.testing.assert_allclose(features.of(PUBLIC), expected, atol=tolerance)
        assert (features.public.count, features.public.dim) == PUBLIC.shape


def test_the_release_names_the_public_vectors():
    one, other = principal(PUBLIC).public, principal(PUBLIC + 1).public
    assert one == cells(PUBLIC, 3).public == random_features(PUBLIC, 3).public
    assert one.sha256 != other.sha256
    assert fit_pairs(principal(PUBLIC), epsilon=1).provenance.public == one


UNUSABLE = {
    "equal": np.ones((50, 3)),
    "one": np.ones((1, 3)),
    "empty": np.zeros((0, 3)),
    "NaN": np.full((50, 3), np.nan),
    "infinite": np.full((50, 3), np.inf),
    "text": np.full((50, 3), "a"),
    "flat": np.ones(50),
    "subnormal": 1e-310 * RNG.standard_normal((50, 3)),
    "huge": 1e200 * RNG.standard_normal((50, 3)),
    "iterator": iter([PUBLIC]),
}


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize("make", [principal, cells, lambda Z: random_features(Z, 2)])
def test_unusable_public_vectors_are_an_error(make, name):
    with pytest.raises(OffaxisError):
        make(UNUSABLE[name])


def test_equal_vectors_in_many_dimensions_are_an_error():
    with pytest.raises(OffaxisError):
        principal(np.ones((50, 2100)))


@pytest.mark.parametrize("make", [principal, cells, random_features])
@pytest.mark.parametrize("rank", [0, -1, True, 5000])
def test_ranks_are_checked(make, rank):
    with pytest.raises(InvalidInput, match="rank"):
        make(PUBLIC, rank=rank)


@pytest.mark.parametrize("rank", [3.0, "3"])
@pytest.mark.parametrize("make", [principal, random_features])
def test_ranks_of_another_type_are_an_error(make, rank):
    with pytest.raises(InvalidInput, match="rank"):
        make(PUBLIC, rank=rank)


def test_sizes_widths_and_heads_are_checked():
    for size in (0, 1, -1, True, 3.0, "3", 5000):
        with pytest.raises(InvalidInput, match="size"):
            cells(PUBLIC, size)
    for width in (1, 2.5, 5000):
        with pytest.raises(InvalidInput, match="width"):
            random_features(PUBLIC, width=width)
    for heads in (np.zeros((2, 6)), np.ones((2, 4)), "a model"):
        with pytest.raises(OffaxisError):
            principal(PUBLIC, heads=heads)


def test_no_heads_at_all_are_an_error():
    with pytest.raises(InvalidInput):
        principal(PUBLIC, heads=[])


def test_units_of_columns_do_not_hide_directions():
    """One column in other units; the others are far above rounding errors."""
    assert principal(PUBLIC * [1e5, 1, 1, 1, 1, 1]).size == 7


FITTED, CURVED = principal(PUBLIC), random_features(PUBLIC, 5)
ENCODERS = {part: fit_pairs(part, epsilon=1).encoder.encode for part in (FITTED, CURVED)}
