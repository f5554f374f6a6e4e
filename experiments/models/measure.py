"""Measure the accuracy of the bundled models: ``python -m experiments.models.measure``.

Without noise, on the cached features, with NumPy only. The results must equal the cards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

from experiments.data.cifar10 import CORRUPTIONS, SEVERITIES
from experiments.features import Features, load_features
from experiments.models.heads import PARTS
from experiments.models.weights import HEADS, load_card, load_model


def accuracy(name: str, features: Features) -> float:
    """Return the share of vectors for which a bundled head's largest logit is the right one."""
    logits = load_model(name).outputs(features.vectors.astype(np.float64))
    return float((logits.argmax(1) == features.labels).mean())


def parts(name: str, cache: Path | None = None) -> Iterator[tuple[str, float]]:
    """Yield the metrics on a head's card, as measured."""
    for part in PARTS:
        features = load_features(name.split("-")[0], part=part, cache=cache)
        yield f"{part} accuracy", accuracy(name, features)


def main() -> None:
    """Print the accuracies on clean images, compared with the cards, and on corrupted images."""
    agree = True
    for name in HEADS:
        card = load_card(name).metrics
        measured = dict(parts(name))
        agree = agree and all(round(card[key], 4) == round(measured[key], 4) for key in measured)
        typer.echo(f"{name}: " + ", ".join(f"{key} {value:.4f}" for key, value in measured.items()))
    for name in HEADS[:-1]:
        for corruption in CORRUPTIONS:
            levels = (
                load_features("cifar10-c", corruption=corruption, severity=severity)
                for severity in SEVERITIES
            )
            shown = " ".join(f"{accuracy(name, level):.4f}" for level in levels)
            typer.echo(f"{name}, {corruption} 1 to 5: {shown}")
    typer.echo("equal to the cards" if agree else "NOT equal to the cards")
    if not agree:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
