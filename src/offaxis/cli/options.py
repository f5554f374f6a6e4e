"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

ARRAY: Final = ".npy, .npz, .csv or .parquet; file.npz:name and file.parquet:column choose one"
MODEL: Final[Any] = typer.Option(
    "--model",
    metavar="MODEL",
    help="Public model: package.module:attribute (a model, or a function without arguments that "
    "returns one), a torch.export file (.pt2), or a weights file written by Layers.save "
    "(.safetensors). Load only models you trust.",
)

ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A release file made by offaxis fit.")
]
Expect = Annotated[
    str | None,
    typer.Option("--expect", metavar="HASH", help="Refuse the release unless this is its hash."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the file of --out if it is already there.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text for people.")
]
