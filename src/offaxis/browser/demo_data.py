"""What the demo page holds beside its code, made from public data alone.

``python -m offaxis.browser.demo_data`` writes it again, and needs the images of MNIST in the data
cache. For every budget two releases: the paper's PrivUnit2 as it is applied plainly, on vectors
that are not centred, and what :func:`offaxis.recommend` finds best for the model's answers.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.files import replacing
from offaxis.release import Release

EPSILONS: Final = tuple(half / 2 for half in range(1, 21))
KINDS: Final = ("plain", "recommended")
CROWD: Final = 1_000
"""Test vectors that the simulated crowd holds."""
EXAMPLES: Final = 2
"""Example digits of each class."""

_SEED: Final = 0


def data_folder() -> Path:
    """Return where the page's data are."""
    return Path(str(files("offaxis") / "browser" / "demo" / "data"))


def release_file(kind: str, epsilon: float) -> str:
    """Return the name of the release of a kind."""
    return f"{kind}-{epsilon:g}.release"


def _write(name: str, content: bytes) -> None:
    with replacing(data_folder() / name) as file:
        file.write(content)


def _agreement(task: Any, release: Release, vectors: NDArray[Any]) -> float:
    """Return how often a simulated report leads to the model's own answer."""
    rng = np.random.default_rng(_SEED)
    answers, own = task.outputs(release.simulate(vectors, rng)), task.outputs(vectors)
    return round(float(np.mean(answers.argmax(1) == own.argmax(1))), 4)


def make() -> None:
    """Write releases, head, example digits and the crowd's vectors."""
    from safetensors.numpy import save

    from offaxis import data
    from offaxis.evaluation.recommend import recommend_range
    from offaxis.studies.features import load_features
    from offaxis.studies.mechanisms import MECHANISMS
    from offaxis.studies.sources import open_source

    source = open_source("mnist relu")
    public = load_features("mnist", part="validation").vectors.astype(np.float64)
    plain = MECHANISMS["PrivUnit2"].make(source, EPSILONS)
    best = recommend_range(source.task, source.public, epsilons=EPSILONS, goal="answers")
    rows = []
    for epsilon, found in zip(EPSILONS, best, strict=True):
        releases = {"plain": plain[epsilon], "recommended": found.release}
        titles = {"plain": "PrivUnit2, plain", "recommended": found.candidate.title}
        row: dict[str, Any] = {"epsilon": epsilon}
        for kind, release in releases.items():
            assert isinstance(release, Release)
            release.save(data_folder() / release_file(kind, epsilon))
            row[kind] = {
                "file": release_file(kind, epsilon),
                "hash": release.hash,
                "title": titles[kind],
                "agreement": _agreement(source.task, release, public),
            }
        rows.append(row)
    _write("releases.json", (json.dumps(rows, indent=1) + "\n").encode())
    head: Any = source.task
    head.save(data_folder() / "head.safetensors")
    images: Any = data.load("mnist")
    chosen = [
        np.flatnonzero(images.test_labels == label)[nth]
        for nth in range(EXAMPLES)
        for label in range(10)
    ]
    _write("examples.bin", images.test_images[chosen].astype(np.uint8).tobytes())
    crowd = load_features("mnist", part="test").vectors[:CROWD].astype(np.float16)
    _write("crowd.safetensors", save({"vectors": crowd}))


if __name__ == "__main__":
    make()
