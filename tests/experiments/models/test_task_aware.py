from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.models import load_card, load_model  # noqa: E402
from experiments.models.task_aware import (  # noqa: E402
    DigitReader,
    LinearPairs,
    TaskAwareRecipe,
    laplace,
    task_aware_scores,
    train_task_aware,
)
from experiments.models.weights import TASK_AWARE  # noqa: E402
from offaxis.evaluation import BUDGETS  # noqa: E402


@pytest.fixture
def digits():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    pixels = np.zeros((400, 28, 28), np.uint8)
    pixels[labels == 0, :14] = 200  # two classes that one number tells apart
    pixels[labels == 1, 14:] = 200
    return pixels + rng.integers(0, 40, pixels.shape, dtype=np.uint8), labels


def test_pairs_are_independent_linear_maps():
    torch.manual_seed(0)
    pairs, images = LinearPairs(2, (1.0, 4.0)), torch.rand(5, 784)
    codes = pairs.encode(images)
    assert codes.shape == (4, 5, 3)
    weight, bias = pairs.encoder
    for k in range(4):
        assert torch.allclose(codes[k], images @ weight[k] + bias[k], atol=1e-5)
    assert pairs.decode(codes).shape == (4, 5, 784)
    assert pairs.epsilons.flatten().tolist() == [1.0, 4.0, 1.0, 4.0]


def test_the_noise_has_the_variance_of_the_public_code_which_is_half_of_what_epsilon_needs():
    """(Δ/ε)² instead of 2 (Δ/ε)²; Δ is the largest ℓ1 distance among the codes themselves."""
    pairs = LinearPairs(1, (2.0,))
    codes = torch.tensor([[[0.0, 0, 0], [1.0, -2, 0], [0.5, 0, 3.0]]])
    widest = 0.5 + 2.0 + 3.0
    assert float(pairs.noise_scales(codes)) == pytest.approx(widest / (2**0.5 * 2.0))
    torch.manual_seed(1)
    drawn = laplace(torch.tensor([[[1.5]]]), torch.empty(1, 200_000, 1))
    # Standard errors: 0.0047 for the mean, 0.02 for the variance; six of them.
    assert float(drawn.mean()) == pytest.approx(0, abs=0.03)
    assert float(drawn.var()) == pytest.approx(2 * 1.5**2, abs=0.12)


def test_training_learns_what_noise_leaves(digits):
    recipe = TaskAwareRecipe(starts=1, epochs=6, inner=4, reader_epochs=4)
    reader, pairs = train_task_aware(*digits, (0.1, 50.0), recipe, torch.device("cpu"))
    scores = task_aware_scores(reader, pairs, *digits, 3)
    assert scores.shape == (2, 3)
    low, high = scores.mean(axis=1)
    assert high > 0.95
    assert low < 0.75


def test_scores_repeat_by_seed(digits):
    torch.manual_seed(0)
    models = DigitReader(), LinearPairs(1, (1.0,))
    first, again = (task_aware_scores(*models, *digits, 2) for _ in range(2))
    assert np.array_equal(first, again)


def test_the_bundled_mechanism_is_close_to_the_published_row():
    """Its card has one seed of three starts on 1,000 images: a deviation of 0.01 or less."""
    published = (0.1018, 0.1052, 0.1126, 0.1180, 0.1285, 0.1407, 0.1560, 0.1650, 0.1801, 0.2031)
    published += (0.2857, 0.3561)
    card = load_card(TASK_AWARE)
    measured = [card.metrics[f"accuracy at ε = {epsilon:g}"] for epsilon in BUDGETS]
    assert measured == pytest.approx(published, abs=0.035)
    reader, pairs = load_model(TASK_AWARE)
    assert not reader.training
    assert pairs.epsilons.flatten().tolist() == list(BUDGETS) * 3
