"""Write the demo's bundled data: ``python -m experiments.models.demo_slice FILE``.

The first rows of the features, a rule fixed before anything was measured on them, and the ReLU
head. Features are rounded to multiples of 1/64, which keeps the file below a megabyte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from experiments.features import load_features
from experiments.models.weights import load_model

PUBLIC_ROWS: Final = 8_000
PRIVATE_ROWS: Final = 5_000
STEP: Final = 1 / 64


def demo_slice(cache: Path | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of the slice, by name."""
    public = load_features("cifar10", part="train", cache=cache)
    private = load_features("cifar10-c", corruption="brightness", severity=5, cache=cache)
    head = load_model("cifar10-relu")
    arrays: dict[str, NDArray[Any]] = {
        "public": _rounded(public.vectors[:PUBLIC_ROWS]),
        "vectors": _rounded(private.vectors[:PRIVATE_ROWS]),
        "labels": private.labels[:PRIVATE_ROWS].astype(np.uint8),
    }
    for index, (weight, bias) in enumerate(zip(head.weights, head.biases, strict=True)):
        arrays[f"weight{index}"] = weight.astype(np.float32)
        arrays[f"bias{index}"] = bias.astype(np.float32)
    return arrays


def _rounded(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    # Features are below 16, where float16 represents every multiple of 1/64.
    rounded: NDArray[np.float16] = (np.round(vectors / STEP) * STEP).astype(np.float16)
    return rounded


def main(file: Annotated[Path, typer.Argument(help="The .npz to write.")]) -> None:
    """Write the slice; its bytes depend only on the features and the compressor."""
    arrays: dict[str, Any] = demo_slice()
    np.savez_compressed(file, **arrays)


if __name__ == "__main__":
    typer.run(main)
