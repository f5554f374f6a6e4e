"""The bundled weights match their cards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
import torch

from experiments.models import HEADS, NAMES, NETWORKS, DamagedWeights, load_card, load_model
from experiments.models.weights import Card, save_head, save_network
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers

AT_LEAST = {"cifar10-linear": 0.905, "mnist-relu": 0.98}
AT_LEAST |= {f"cifar10-{name}": 0.885 for name in ("relu", "gelu", "tanh")}


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_small_and_have_a_card(name):
    card = load_card(name)
    assert card.name == name
    assert len(files("experiments").joinpath(f"weights/{name}.safetensors").read_bytes()) < 1.5e6
    assert {"data", "split", "recipe", "run", "torch", "code"} <= set(card.provenance)
    assert load_model(name) is not None


@pytest.mark.parametrize("name", HEADS)
def test_the_accuracies_on_the_cards_are_high_enough(name):
    least = AT_LEAST[re.sub(r"-[-0-9]+$", "", name.removeprefix("published/"))]
    # The reference recipe is two points worse on CIFAR-10, as published.
    points_below = 0.025 if name.startswith("published/") else 0.0
    assert load_card(name).metrics["test accuracy"] >= least - points_below


@pytest.mark.parametrize(
    ("network", "linear"),
    [("resnet20", "cifar10-linear"), ("published/resnet20-1", "published/cifar10-linear-1")],
)
def test_a_network_and_its_linear_head_agree(network, linear):
    """The separate head equals the one inside the network, bit by bit."""
    net, head = load_model(network), load_model(linear)
    assert not net.training
    assert np.array_equal(head.weights[0], net.head.weight.detach().double().numpy())
    bias = net.head.bias.detach().double().numpy()
    assert np.array_equal(head.biases[0], bias.astype(np.float16).astype(np.float64))


@pytest.mark.parametrize("name", HEADS)
def test_heads_fit_their_networks(name):
    head = load_model(name)
    assert isinstance(head, Layers)
    assert head.input_dim == (32 if "mnist" in name else 64)
    assert len(head.biases[-1]) == 10


def test_heads_are_loaded_without_torch():
    code = (
        "import sys; from experiments.models import load_model; load_model('cifar10-relu'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_damaged_weights_are_an_error(tmp_path):
    save_head(tmp_path, load_model("cifar10-relu"), Card("cifar10-relu", "", "a copy"))
    assert load_model("cifar10-relu", folder=tmp_path).activation == "relu"
    path = tmp_path / "cifar10-relu.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedWeights, match="SHA-256"):
        load_model("cifar10-relu", folder=tmp_path)


@pytest.mark.parametrize("name", NETWORKS)
def test_stored_networks_are_rounded_once(tmp_path, name):
    net = load_model(name)
    card = save_network(tmp_path, net, Card(name, "", "a copy"))
    assert card.sha256 == load_card(name).sha256
    again = load_model(name, folder=tmp_path).state_dict()
    assert all(torch.equal(again[key], value) for key, value in net.state_dict().items())


def test_unknown_and_missing_models_are_errors(tmp_path):
    with pytest.raises(InvalidInput, match="no model 'alexnet'"):
        load_model("alexnet")
    with pytest.raises(InvalidInput, match="train them first"):
        load_model("resnet20", folder=tmp_path)


def test_cards_are_plain_json():
    text = files("experiments").joinpath("weights/resnet20.json").read_text(encoding="utf-8")
    assert (
        json.loads(text)["metrics"]["test accuracy"]
        == load_card("resnet20").metrics["test accuracy"]
    )
