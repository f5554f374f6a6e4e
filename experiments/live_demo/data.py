"""What the live demo holds beside its code, made from public data alone.

``python -m experiments.live_demo.data`` writes it again, and needs MNIST in the data cache.
For every budget two releases: the paper's PrivUnit2 as it is applied plainly, on vectors that are
not centred, and what :func:`offaxis.recommend` finds best for the model's answers. For the two of
the rounds also what a publisher attaches: profiles, the curve, and audits, whose reports are really
random and therefore never twice the same.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import save

from experiments import data
from experiments.features import load_features
from experiments.live_demo.site import (
    EPSILON,
    EPSILONS,
    KINDS,
    attached_file,
    data_folder,
    release_file,
)
from experiments.rows import MECHANISMS
from experiments.sources import open_source
from offaxis.audit import audit
from offaxis.cli.recommend import facts
from offaxis.collector.routes.facts import Kind, read_facts
from offaxis.evaluation.profiles import profile_of
from offaxis.evaluation.recommend import recommend_range
from offaxis.files import replacing
from offaxis.release import Release
from offaxis.simulation import simulate

CROWD = 1_000
EXAMPLES = 2
SEED = 0


def write(name: str, content: bytes) -> None:
    """Write a file of the demo, whole or not at all."""
    with replacing(data_folder() / name) as file:
        file.write(content)


def agreement(task: Any, release: Release, vectors: Any) -> float:
    """Return how often a simulated report leads to the model's own answer."""
    rng = np.random.default_rng(SEED)
    answers, own = task.outputs(simulate(release, vectors, rng)), task.outputs(vectors)
    return round(float(np.mean(answers.argmax(1) == own.argmax(1))), 4)


def attach(releases: dict[str, Release], curve: dict[str, Any], public: Any) -> None:
    """Write what is attached to the releases of the rounds."""
    for kind, release in releases.items():
        found: dict[Kind, Any] = {"curve": curve, "audit": audit(release).facts()}
        for name, content in found.items():
            text = read_facts(name, json.dumps(content).encode(), release)
            write(attached_file(kind, name), text.encode() + b"\n")
        profile = profile_of(release, public).to_json()
        write(attached_file(kind, "profile"), profile.encode() + b"\n")


def main() -> None:
    """Write releases, what is attached to them, head, example digits and the crowd's vectors."""
    source = open_source("mnist relu")
    public = load_features("mnist", part="validation").vectors.astype(np.float64)
    plain = MECHANISMS["PrivUnit2"].make(source, EPSILONS)
    best = recommend_range(source.task, source.public, epsilons=EPSILONS, goal="answers")
    rows = []
    for epsilon, found in zip(EPSILONS, best, strict=True):
        releases: Any = dict(zip(KINDS, (plain[epsilon], found.release), strict=True))
        titles = dict(zip(KINDS, ("PrivUnit2, plain", found.candidate.title), strict=True))
        row: dict[str, Any] = {"epsilon": epsilon}
        for kind, release in releases.items():
            release.save(data_folder() / release_file(kind, epsilon))
            row[kind] = {
                "file": release_file(kind, epsilon),
                "hash": release.hash,
                "title": titles[kind],
                "agreement": agreement(source.task, release, public),
            }
        rows.append(row)
        if epsilon == EPSILON:
            attach(releases, facts(best, None, None), public)
    write("releases.json", (json.dumps(rows, indent=1) + "\n").encode())
    head: Any = source.task
    head.save(data_folder() / "head.safetensors")
    images: Any = data.load("mnist")
    chosen = [
        np.flatnonzero(images.test_labels == label)[nth]
        for nth in range(EXAMPLES)
        for label in range(10)
    ]
    write("examples.bin", images.test_images[chosen].astype(np.uint8).tobytes())
    crowd = load_features("mnist", part="test").vectors[:CROWD].astype(np.float16)
    write("crowd.safetensors", save({"vectors": crowd}))


if __name__ == "__main__":
    main()
