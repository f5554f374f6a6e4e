"""The bundled slice is small, whole, and the task it was made for."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

import offaxis
from offaxis.data import load_cifar10_features
from offaxis.data.cifar10 import FILE, SHA256
from offaxis.evaluation import evaluate


@pytest.fixture(scope="module")
def data():
    return load_cifar10_features()


def test_the_file_is_the_one_its_readme_names():
    content = files("offaxis.data").joinpath(FILE).read_bytes()
    assert len(content) <= 2_000_000
    assert hashlib.sha256(content).hexdigest() == SHA256
    assert SHA256 in files("offaxis.data").joinpath("README.md").read_text(encoding="utf-8")


def test_shapes_and_dtypes(data):
    assert data.public.shape == (8000, 64)
    assert data.vectors.shape == (5000, 64)
    assert data.labels.shape == (5000,)
    assert data.public.dtype == data.vectors.dtype == np.float64
    assert data.labels.dtype == np.int64
    assert np.isfinite(data.public).all()
    assert np.isfinite(data.vectors).all()
    assert set(data.labels.tolist()) == set(range(len(data.class_names)))
    assert [w.shape for w in data.head.weights] == [(10, 64), (32, 10), (10, 32)]


def test_public_and_private_side_do_not_overlap(data):
    public = {row.tobytes() for row in data.public}
    assert not any(row.tobytes() in public for row in data.vectors)


def test_the_head_answers_most_vectors_without_privacy(data):
    accuracy = (data.head.outputs(data.vectors).argmax(1) == data.labels).mean()
    assert accuracy == pytest.approx(0.834, abs=0.002)


@pytest.mark.parametrize(
    ("randomizer", "plain", "reshaped"),
    [("laplace", 0.115, 0.169), ("privunit2", 0.255, 0.432)],
)
def test_the_slice_tells_the_same_story_as_the_full_set(data, randomizer, plain, reshaped):
    """Seeded, so it cannot fail by chance; 0.015 is what a slice of 5,000 vectors may be off."""
    for reshaping, wanted in (("none", plain), ("jacobian", reshaped)):
        release = offaxis.fit(
            data.head,
            data.public,
            epsilon=7.5,
            randomizer=randomizer,
            reshaping=reshaping,
            gauge=1,
        )
        found = evaluate(release, data.head, data.vectors, data.labels, seeds=5)
        assert found.mean("accuracy") == pytest.approx(wanted, abs=0.015)
