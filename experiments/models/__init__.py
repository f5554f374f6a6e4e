"""The models of the paper's experiments: networks, training, and trained weights."""

from __future__ import annotations

from experiments.models.weights import (
    HEADS,
    NAMES,
    NETWORKS,
    Card,
    DamagedWeights,
    load_card,
    load_model,
)

__all__ = ["HEADS", "NAMES", "NETWORKS", "Card", "DamagedWeights", "load_card", "load_model"]
