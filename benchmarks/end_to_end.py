"""Maps trained end to end, beside those of a surrogate: right answers from one report.

    python -m benchmarks.end_to_end [--seeds 10] [--trainings 3]

On the bundled features (dimension 64, ten classes, 5,000 test vectors). *tuned*: the optimal
reshaping, rank and radius by held-out vectors (``tune``). *decoder*: the same reports through a
trained network (``noise_aware``). *trained*: encoder, radius and decoder trained together
(``end_to_end``), which starts from *tuned*. Everything is fitted to public vectors. The interval is
twice the standard deviation over trainings.
"""

from __future__ import annotations

import argparse

import numpy as np

import offaxis
from experiments.data import load_cifar10_features
from offaxis.evaluation import tune
from offaxis.evaluation.training import end_to_end
from offaxis.mechanisms.networks import noise_aware

EPSILONS = (1.0, 2.0, 3.0, 5.0, 7.5, 10.0)
MECHANISMS = {"laplace": "Laplace", "privunit2": "PrivUnit2"}


def main() -> None:
    """Print one row per mechanism and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trainings", type=int, default=3)
    arguments = parser.parse_args()
    data = load_cifar10_features()
    head, public = data.head, data.public

    def right(release: offaxis.Release) -> float:
        shares = []
        for seed in range(arguments.seeds):
            decoded = offaxis.simulate(release, data.vectors, np.random.default_rng(seed))
            shares.append((head.outputs(decoded).argmax(axis=1) == data.labels).mean())
        return float(np.mean(shares))

    print("| mechanism | ε | directions | reshaped | tuned | decoder | trained |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, title in MECHANISMS.items():
        for epsilon in EPSILONS:
            reshaped = offaxis.fit(head, public, epsilon=epsilon, mechanism=name)
            tuned = tune(head, public, epsilon=epsilon, mechanism=name).release
            network = tuned.with_decoder(noise_aware(tuned, head, public))
            trained = [
                right(end_to_end(tuned, head, public, seed=seed))
                for seed in range(arguments.trainings)
            ]
            spread = 2 * float(np.std(trained, ddof=1)) if arguments.trainings > 1 else 0.0
            cells = " | ".join(f"{right(r):.3f}" for r in (reshaped, tuned, network))
            rank = tuned.encoder.output_dim
            mean = float(np.mean(trained))
            print(f"| {title} | {epsilon:g} | {rank} | {cells} | {mean:.3f} ± {spread:.3f} |")


if __name__ == "__main__":
    main()
