"""Features are computed once and stored with the weights' hash and the right part."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import data, features
from experiments.data import CorruptedImages, Images
from experiments.features import every_choice, features_path, load_features
from experiments.models import load_card
from offaxis.errors import InvalidInput


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Replace the data sets by a few images; return the list of network runs."""
    rng = np.random.default_rng(0)
    side = {"cifar10": (32, 32, 3), "mnist": (28, 28)}
    calls = []

    def load(name, *, cache=None, corruption=None, severity=None):
        if name == "cifar10-c":
            pixels = rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
            return CorruptedImages(corruption, severity, pixels, np.arange(10))
        pixels = rng.integers(0, 256, (30, *side[name]), dtype=np.uint8)
        labels = np.arange(30) % 10
        return Images(name, pixels[:20], labels[:20], pixels[20:], labels[20:])

    real = features._embed

    def embed(network, pixels, progress):
        calls.append(network)
        return real(network, pixels, progress)

    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(features, "_embed", embed)
    monkeypatch.setenv("OFFAXIS_CACHE", str(tmp_path))
    return calls


@pytest.mark.parametrize(("name", "dim"), [("cifar10", 64), ("mnist", 32)])
def test_features_are_computed_once(tiny, name, dim):
    first = load_features(name, part="train")
    again = load_features(name, part="train")
    assert len(tiny) == 1
    assert first.vectors.shape == (16, dim)
    assert first.vectors.dtype == np.float32
    assert first.labels.dtype == np.int64
    assert np.array_equal(first.vectors, again.vectors)
    assert np.array_equal(first.labels, again.labels)


def test_severity_zero_is_the_clean_test_set(tiny):
    clean = load_features("cifar10", part="test")
    for corruption in data.CORRUPTIONS:
        same = load_features("cifar10-c", corruption=corruption, severity=0)
        assert np.array_equal(same.vectors, clean.vectors)
    assert len(tiny) == 1
    foggy = load_features("cifar10-c", corruption="fog", severity=3)
    assert not np.array_equal(foggy.vectors, clean.vectors)
    assert foggy.name == "cifar10-c fog 3"


def test_a_damaged_file_is_computed_again(tiny, tmp_path):
    load_features("mnist", part="validation")
    (path,) = (tmp_path / "features").iterdir()
    path.write_bytes(path.read_bytes()[:-4])
    assert load_features("mnist", part="validation").vectors.shape == (4, 32)
    assert len(tiny) == 2


def test_file_names_include_the_hash_of_the_weights(tmp_path):
    path = features_path(tmp_path, "cifar10-c fog 3", "resnet20")
    assert path.parent == tmp_path / "features"
    assert path.stem == f"cifar10-c-fog-3-{load_card('resnet20').sha256[:16]}"


def test_progress_is_reported(tiny):
    lines = []
    load_features("mnist", part="test", progress=lambda *line: lines.append(line))
    assert lines == [("features of mnist test", 0, 10)]


@pytest.mark.parametrize(
    "choice",
    [
        {"name": "lhsm", "part": "train"},
        {"name": "cifar10"},
        {"name": "cifar10", "part": "public"},
        {"name": "cifar10", "part": "test", "severity": 1},
        {"name": "cifar10-c", "part": "test"},
        {"name": "cifar10-c", "corruption": "fog"},
        {"name": "cifar10-c", "corruption": "snow", "severity": 0},
        {"name": "cifar10-c", "corruption": "fog", "severity": 6},
    ],
)
def test_an_invalid_choice_is_an_error(tiny, choice):
    with pytest.raises(InvalidInput):
        load_features(**choice)
    assert not tiny


def test_all_parts_are_listed_once():
    choices = [tuple(sorted(choice.items())) for choice in every_choice()]
    assert len(set(choices)) == len(choices) == 6 * 3 + 3 * (3 + 20)
