"""Create the data of the live demo: ``python -m experiments.live_demo.data``.

Requires MNIST in the data cache. Releases are fitted to public data only. For every budget of a
vector there are two: the paper's plain PrivUnit2, on vectors that are not centred, and the release
that :func:`offaxis.recommend` chooses for the model's answers. The two releases of the rounds also
get the facts that a publisher attaches: profiles, the curve, and audits, whose reports are truly
random and therefore differ each time. For every budget of a pair there is one release, of cells.
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
    PAIR_EPSILONS,
    PAIRS,
    attached_file,
    data_folder,
    release_file,
)
from experiments.methods import METHODS
from experiments.sources import open_source
from offaxis.auditing import audit
from offaxis.cli.recommend import advice_facts
from offaxis.collector.routes.facts import Kind, read_facts
from offaxis.evaluation.profiles import profile_of
from offaxis.evaluation.recommend import recommend_range
from offaxis.files import replacing
from offaxis.learning import cells, fit_pairs
from offaxis.release import Release
from offaxis.simulation import simulate

CLASSES = 10
EXAMPLES = 2
HELD_OUT = 2_000
"""The first test digits, which judge what the others teach. The examples are among them."""

SEED = 0
STEP = 0.75
"""Features are rounded to multiples of it, 127 at most."""


def write(name: str, content: bytes) -> None:
    """Write a file of the demo, atomically."""
    with replacing(data_folder() / name) as file:
        file.write(content)


def agreement(task: Any, release: Release, vectors: Any) -> float:
    """Return how often a simulated report keeps the model's answer."""
    rng = np.random.default_rng(SEED)
    noisy, clean = task.outputs(simulate(release, vectors, rng)), task.outputs(vectors)
    return round(float(np.mean(noisy.argmax(1) == clean.argmax(1))), 4)


def attach(releases: dict[str, Release], curve: dict[str, Any], public: Any) -> None:
    """Write the facts that are attached to the releases of the rounds."""
    for kind, release in releases.items():
        facts: dict[Kind, Any] = {"curve": curve, "audit": audit(release).facts()}
        for name, content in facts.items():
            text = read_facts(name, json.dumps(content).encode(), release)
            write(attached_file(kind, name), text.encode() + b"\n")
        profile = profile_of(release, public).to_json()
        write(attached_file(kind, "profile"), profile.encode() + b"\n")


def write_pairs(public: Any, features: Any) -> None:
    """Write the releases of pairs, the features of all test digits, and what to compare with.

    Without privacy, the same cells take the most common answer of all people in them.
    """
    digits = np.rint(features.vectors / STEP).astype(np.int8)
    tensors = {"vectors": digits, "labels": features.labels.astype(np.uint8)}
    write("people.safetensors", save({**tensors, "step": np.array([STEP])}))
    public_cells = cells(public)
    own, labels = public_cells.cells_of(digits * STEP), features.labels
    table = np.zeros((public_cells.size, CLASSES))
    np.add.at(table, (own[HELD_OUT:], labels[HELD_OUT:]), 1)
    judged = labels[:HELD_OUT]
    most_common = np.bincount(labels[HELD_OUT:]).argmax()
    releases = []
    for epsilon in PAIR_EPSILONS:
        release = fit_pairs(public_cells, CLASSES, epsilon=epsilon)
        release.save(data_folder() / release_file(PAIRS, epsilon))
        releases.append(
            {"epsilon": epsilon, "file": release_file(PAIRS, epsilon), "hash": release.hash}
        )
    facts = {
        "held_out": HELD_OUT,
        "nobody_asked": float(np.mean(judged == most_common)),
        "without_privacy": float(np.mean(judged == table.argmax(1)[own[:HELD_OUT]])),
        "releases": releases,
    }
    write("pairs.json", (json.dumps(facts, indent=1) + "\n").encode())


def main() -> None:
    """Write the releases, their facts, the head, example digits and the people."""
    source = open_source("mnist relu")
    public = load_features("mnist", part="validation").vectors.astype(np.float64)
    plain = METHODS["PrivUnit2"].make(source, EPSILONS)
    best = recommend_range(source.task, source.public, epsilons=EPSILONS, goal="answers")
    rows = []
    for epsilon, recommendation in zip(EPSILONS, best, strict=True):
        releases: Any = dict(zip(KINDS, (plain[epsilon], recommendation.release), strict=True))
        title = recommendation.candidate.title
        titles = dict(zip(KINDS, ("PrivUnit2, plain", title), strict=True))
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
            attach(releases, advice_facts(best, None, None), public)
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
    write_pairs(public, load_features("mnist", part="test"))


if __name__ == "__main__":
    main()
