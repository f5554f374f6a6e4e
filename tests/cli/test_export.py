from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import offaxis
from offaxis.geometry import Layers
from tests.cli.conftest import DIM, Run, assert_fails


def test_the_file_is_the_release_s_encoder(desk: Path, run: Run) -> None:
    result = run("export-onnx", "laplace.release", "--out", "encoder.onnx", "--dtype", "float64")
    assert result.exit_code == 0
    assert "protects nobody" in result.stdout
    vectors = np.load("private.npy")
    (encoded,) = onnxruntime.InferenceSession("encoder.onnx").run(None, {"vectors": vectors})
    release = offaxis.load("laplace.release")
    np.testing.assert_allclose(encoded, release.encoder.encode(vectors), rtol=1e-12)


def test_a_network_stands_in_front(desk: Path, run: Run) -> None:
    network = Layers.linear(np.ones((DIM, 2)))
    network.save("network.safetensors")
    words = ("export-onnx", "privunit2.release", "--network", "network.safetensors")
    result = run(*words, "--out", "encoder.onnx", "--json")
    release = offaxis.load("privunit2.release")
    assert json.loads(result.stdout) == {
        "out": "encoder.onnx",
        "release": release.hash,
        "input": "input",
        "output": "encoded",
        "dtype": "float32",
        "private": False,
    }
    inputs = np.ones((3, 2), dtype=np.float32)
    (encoded,) = onnxruntime.InferenceSession("encoder.onnx").run(None, {"input": inputs})
    wanted = release.encoder.encode(network.outputs(inputs.astype(np.float64)))
    np.testing.assert_allclose(encoded, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["laplace.release", "--out", "laplace.release"], "is an input of this command"),
        (["laplace.release", "--out", "no/folder.onnx"], "there is no folder no"),
        (["laplace.release", "--out", "e.onnx", "--network", "head.safetensors"], "gives 3"),
        (["laplace.release", "--out", "e.onnx", "--expect", "00"], "expected 00"),
    ],
)
def test_what_cannot_be_written_is_named(
    words: list[str], message: str, desk: Path, run: Run
) -> None:
    assert_fails(run("export-onnx", *words), 3, message)
    assert not Path("e.onnx").exists()
