"""The trained networks: they learn the task, are total, and are only public maps."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.encoding import NetworkEncoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.evaluation import evaluate
from offaxis.geometry import Layers, PublicVectors, measure

RNG = np.random.default_rng(3)
PUBLIC = RNG.standard_normal((3000, 12))
TASK = Layers.linear(np.vstack([np.eye(12)[0], np.eye(12)[1]]) * 2)


@pytest.fixture(scope="module")
def release():
    return offaxis.fit(
        TASK, PUBLIC, epsilon=6, mechanism="task-aware-network", reshaping="none", size=2
    )


def test_training_learns_the_directions_of_the_task(release):
    """Better than plain Laplace and than a constant, on held-out vectors."""
    fresh = RNG.standard_normal((2000, 12))
    plain = offaxis.fit(TASK, PUBLIC, epsilon=6, reshaping="none", mechanism="laplace")
    trained = evaluate(release, TASK, fresh, seeds=2).mean("output_rmse")
    assert trained < 0.25 * evaluate(plain, TASK, fresh, seeds=2).mean("output_rmse")
    assert trained < 0.9 * np.sqrt((TASK.outputs(fresh) ** 2).mean())


def test_the_guarantee_is_that_of_the_laplace_randomizer(release):
    assert release.randomizer.kind == "laplace"
    assert release.randomizer.dim == 2
    assert release.randomizer.realised_epsilon <= 6
    assert release.guarantee.pure


def test_training_is_reproducible(release):
    second = offaxis.fit(
        TASK, PUBLIC, epsilon=6, mechanism="task-aware-network", reshaping="none", size=2
    )
    np.testing.assert_allclose(
        second.encoder.encode(PUBLIC), release.encoder.encode(PUBLIC), atol=1e-3
    )


def test_every_finite_vector_has_a_finite_image(release):
    huge = np.vstack([np.full(12, s) for s in (1.7e308, -1.7e308, 5e-324, 0.0, 1e150)])
    assert np.isfinite(release.encoder.encode(huge)).all()
    assert np.isfinite(release.decode(release.privatize(huge))).all()
    wild = NetworkEncoder(
        [np.full((4, 12), 1e100), np.full((2, 4), -1e100)], [np.zeros(4), np.zeros(2)]
    )
    with np.errstate(all="raise"):
        assert np.isfinite(wild.encode(huge)).all()


def test_means_are_not_supported(release):
    with pytest.raises(BiasedDecoder):
        release.decode_mean(release.privatize(PUBLIC[:10]))


def test_a_geometry_is_not_enough():
    geometry = measure(TASK, PublicVectors(PUBLIC))
    with pytest.raises(InvalidInput, match="pass the model itself"):
        offaxis.fit(geometry, PUBLIC, epsilon=1, mechanism="task-aware-network")


@pytest.mark.parametrize(
    ("weights", "biases", "message"),
    [
        ([], [], "1 to 8 layers"),
        ([np.ones((2, 3))], [], "1 to 8 layers"),
        ([np.ones((2, 3)), np.ones((2, 3))], [np.ones(2), np.ones(2)], "do not fit together"),
        ([np.full((2, 3), np.nan)], [np.ones(2)], "finite"),
        ([np.ones((1, 1))] * 9, [np.ones(1)] * 9, "1 to 8 layers"),
    ],
)
def test_layers_that_do_not_fit_together_are_an_error(weights, biases, message):
    with pytest.raises(InvalidInput, match=message):
        NetworkEncoder(weights, biases)
