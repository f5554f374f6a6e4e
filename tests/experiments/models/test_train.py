"""The training command writes weights and cards, and prints the stored metrics."""

from __future__ import annotations

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from experiments import data
from experiments.data import Images
from experiments.models import load_card, load_model
from experiments.models.train import main

APP = typer.Typer()
APP.command()(main)


@pytest.fixture
def tiny(monkeypatch):
    """Replace the data sets by a few images of noise."""
    rng = np.random.default_rng(0)
    side = {"cifar10": (32, 32, 3), "mnist": (28, 28)}

    def load(name, *, cache=None):
        pixels = rng.integers(0, 256, (60, *side[name]), dtype=np.uint8)
        labels = np.arange(60) % 10
        return Images(name, pixels[:50], labels[:50], pixels[50:], labels[50:])

    monkeypatch.setattr(data, "load", load)


def train(*arguments):
    result = CliRunner().invoke(APP, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_network_is_trained_and_then_its_heads(tiny, tmp_path):
    output = train("resnet20", "--out", tmp_path, "--epochs", 1, "--seed", 7)
    card = load_card("resnet20", folder=tmp_path)
    assert card.provenance["recipe"] | {"epochs": 1, "seed": 7} == card.provenance["recipe"]
    assert f"test accuracy {card.metrics['test accuracy']:.4f}" in output
    assert not list(tmp_path.glob("*.checkpoint"))
    train("heads", "--out", tmp_path, "--epochs", 1)
    head = load_model("cifar10-tanh", folder=tmp_path)
    assert (head.activation, head.input_dim) == ("tanh", 64)


def test_the_mnist_encoder_is_trained_with_its_head(tiny, tmp_path):
    train("mnist", "--out", tmp_path, "--epochs", 2)
    encoder = load_model("mnist-encoder", folder=tmp_path)
    assert load_model("mnist-relu", folder=tmp_path).input_dim == encoder.mean.out_features == 32
    assert load_card("mnist-relu", folder=tmp_path).provenance["autoencoder"]["epochs"] == 2


def test_heads_need_a_trained_network(tiny, tmp_path):
    result = CliRunner().invoke(APP, ["heads", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "no weights of resnet20" in result.output
