"""The bundled features are small, complete, and belong to the bundled head."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

from experiments.data import load_cifar10_features
from experiments.data.features import FILE, SHA256
from experiments.models import load_model


@pytest.fixture(scope="module")
def data():
    return load_cifar10_features()


def test_the_file_has_the_hash_in_its_readme():
    content = files("experiments.data").joinpath(FILE).read_bytes()
    assert len(content) <= 1_000_000
    assert hashlib.sha256(content).hexdigest() == SHA256
    assert SHA256 in files("experiments.data").joinpath("README.md").read_text(encoding="utf-8")


def test_arrays_have_the_documented_shapes_and_dtypes(data):
    assert data.public.shape == (8000, 64)
    assert data.vectors.shape == (5000, 64)
    assert data.labels.shape == (5000,)
    assert data.public.dtype == data.vectors.dtype == np.float64
    assert data.labels.dtype == np.int64
    assert np.isfinite(data.public).all()
    assert not (data.public * 64 % 1).any()
    assert not (data.vectors * 64 % 1).any()
    assert np.isfinite(data.vectors).all()
    assert set(data.labels.tolist()) == set(range(len(data.class_names)))
    assert [w.shape for w in data.head.weights] == [(10, 64), (32, 10), (10, 32)]


def test_public_and_private_vectors_do_not_overlap(data):
    public = {row.tobytes() for row in data.public}
    assert not any(row.tobytes() in public for row in data.vectors)


def test_the_head_answers_most_vectors_without_privacy(data):
    accuracy = (data.head.outputs(data.vectors).argmax(1) == data.labels).mean()
    assert accuracy == pytest.approx(0.850, abs=0.002)


def test_the_head_is_the_bundled_one(data):
    assert data.head.identity().sha256 == load_model("cifar10-relu").identity().sha256
