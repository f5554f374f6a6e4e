"""The networks have the published shapes, and images reach them unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from experiments.data import Images
from experiments.models import heads, networks
from experiments.models.heads import part_of, reference_rows, split_rows
from experiments.models.networks import ResNet20, ResNetRecipe
from experiments.models.training import Plan, _rate, train
from offaxis.errors import InvalidInput

CPU = torch.device("cpu")


def images(count, *shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def test_resnet20_has_the_published_number_of_weights():
    # 0.27 million, as in the paper; shortcuts have none.
    net = networks.ResNet20()
    assert sum(w.numel() for w in net.parameters()) == 269_722
    assert sum(isinstance(m, torch.nn.Conv2d) for m in net.modules()) == 19


def test_features_do_not_depend_on_the_batch_they_are_computed_in():
    torch.manual_seed(0)
    net, pixels = networks.ResNet20(), images(7, 32, 32, 3)
    together = networks.embed_images(net, pixels)
    alone = np.concatenate([networks.embed_images(net, pixels[i : i + 1]) for i in range(7)])
    assert together.shape == (7, networks.FEATURES)
    assert together.min() >= 0
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_normalised_images_keep_colours_and_places():
    pixels = images(2, 32, 32, 3)
    planes = networks.normalised(networks.as_planes(pixels, CPU))
    expected = (pixels[1, 5, 9, 2] / 255 - 0.4465) / 0.2616
    assert float(planes[1, 2, 5, 9]) == pytest.approx(expected, abs=1e-6)


def test_augmentation_shifts_and_mirrors_and_nothing_else():
    torch.manual_seed(0)
    whole = torch.rand(30, 3, 32, 32)
    padded = functional.pad(whole, (4,) * 4)
    seen = set()
    for index, image in enumerate(networks.augmented(whole)):
        places = [
            (down, right, mirrored)
            for mirrored, view in ((False, image), (True, image.flip(-1)))
            for down in range(9)
            for right in range(9)
            if torch.equal(view, padded[index, :, down : down + 32, right : right + 32])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert {mirrored for *_, mirrored in seen} == {False, True}
    assert len({(down, right) for down, right, _ in seen}) > 15


def test_the_vae_is_trained_on_reconstruction_and_divergence():
    auto = networks.VAE()
    for parameter in auto.parameters():
        torch.nn.init.zeros_(parameter)
    # With zero weights every pixel is a fair coin, and the divergence from N(0, I) is zero.
    coins = 784 * np.log(2)
    assert auto(torch.rand(5, networks.PIXELS)).item() == pytest.approx(coins, rel=1e-5)
    torch.nn.init.ones_(auto.encoder.mean.bias)
    assert auto(torch.rand(5, networks.PIXELS)).item() == pytest.approx(coins + 16, rel=1e-5)


def test_the_vector_of_a_digit_is_deterministic():
    torch.manual_seed(0)
    encoder, pixels = networks.MnistEncoder(), images(5, 28, 28)
    assert np.array_equal(
        networks.embed_digits(encoder, pixels), networks.embed_digits(encoder, pixels)
    )
    assert networks.embed_digits(encoder, pixels).shape == (5, networks.LATENT)


@pytest.mark.parametrize("activation", heads.ACTIVATIONS)
def test_numpy_evaluates_a_head_as_torch_does(activation):
    torch.manual_seed(0)
    head = heads.mlp(activation, 64).eval()
    layers = heads.as_layers(head, activation, "head")
    assert [w.shape for w in layers.weights] == [(10, 64), (32, 10), (10, 32)]
    vectors = np.random.default_rng(0).random((20, 64), np.float32) * 3
    expected = head.half().float()(torch.from_numpy(vectors)).detach().numpy()
    np.testing.assert_allclose(layers.outputs(vectors.astype(np.float64)), expected, atol=1e-5)


def test_heads_learn_from_features():
    rng = np.random.default_rng(0)
    labels = {part: rng.integers(0, 10, 1_000) for part in ("train", "validation")}
    centres = rng.random((10, 64), np.float32) * 4
    vectors = {
        part: centres[truth] + rng.random((1_000, 64), np.float32) for part, truth in labels.items()
    }
    recipe = heads.HeadRecipe(starts=2, epochs=12, batch=100, learning_rate=1e-2)
    head, run = heads.train_head("gelu", vectors, labels, recipe)
    layers = heads.as_layers(head, "gelu", "head")
    assert heads.accuracy(layers, vectors["validation"], labels["validation"]) > 0.95
    assert max(run.scores) > 0.95


def test_the_split_is_fixed_and_covers_every_row_once():
    train, validation = split_rows(50_000)
    assert validation[:6].tolist() == [3, 4, 10, 16, 19, 20]
    assert (len(train), len(validation)) == (40_000, 10_000)
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(50_000))


def test_parts_keep_images_and_labels_together():
    pixels = np.arange(20, dtype=np.uint8)[:, None, None]
    labels = np.arange(20)
    both = Images("digits", pixels, labels, pixels[:3], labels[:3])
    for part in ("train", "validation", "test"):
        shown, truth = part_of(both, part)
        assert shown[:, 0, 0].tolist() == truth.tolist()
    with pytest.raises(InvalidInput, match="part must be one of"):
        part_of(both, "public")


def test_the_split_of_the_reference_is_the_same_row_for_row():
    """NumPy's permutation of seed 42, validation first; for MNIST torch's random_split."""
    train, validation = reference_rows("cifar10", 50_000)
    assert set(validation) == set(np.random.default_rng(42).permutation(50_000)[:10_000])
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(50_000))
    train, validation = reference_rows("mnist", 60_000)
    split = torch.utils.data.random_split(
        range(60_000), [48_000, 12_000], generator=torch.Generator().manual_seed(42)
    )
    assert set(train) == set(split[0].indices)
    assert set(validation) == set(split[1].indices)


def test_projected_shortcuts_are_convolutions():
    plain, projected = ResNet20(), ResNet20(projected=True)
    images = torch.rand(2, 3, 32, 32)
    for net in (plain, projected):
        assert net.eval().features(images).shape == (2, 64)
    more = set(projected.state_dict()) - set(plain.state_dict())
    assert len({name.split(".shortcut")[0] for name in more}) == 2
    weights = sum(p.numel() for p in projected.parameters()) - sum(
        p.numel() for p in plain.parameters()
    )
    assert weights == 16 * 32 + 32 * 64 + 2 * (32 + 64)


def test_a_rate_drops_after_the_epochs_of_the_recipe():
    recipe = ResNetRecipe.reference(0)
    assert (recipe.drops, recipe.every, recipe.projected) == ((100, 150), 20, True)
    plan = Plan("x", 200, 128, drops=recipe.drops)
    rates = [_rate(plan, epoch * 10, 10) for epoch in (0, 99, 100, 149, 150, 199)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_only_scored_epochs_can_be_the_best():
    model = torch.nn.Linear(1, 1)
    scores = iter([0.9, 0.5])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plan = Plan("x", 4, 2, keep="best", every=2)

    def loss(rows):
        return model(torch.ones(1, 1)).sum()

    run = train(model, optimizer, loss, lambda: next(scores), 4, plan)
    assert run.best_epoch == 2
    assert [score > -1 for score in run.scores] == [False, True, False, True]
