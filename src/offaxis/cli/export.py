"""``offaxis export-onnx``: the public part of a release as a graph for devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import AsJson, Expect, ReleaseFile
from offaxis.cli.showing.terminal import print_json


@example("offaxis export-onnx my.release --out encoder.onnx")
def export_onnx(
    release: ReleaseFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A public network in front, whose outputs are the vectors: a weights file written "
            "by Layers.save (.safetensors). Export torch networks from Python.",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option(help="What the graph computes in.")
    ] = "float32",
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Write the public encoder of a release as an ONNX graph, for devices without Python.

    The graph is not private: there is no noise in it. What it returns must pass the release's
    randomizer on the device before it leaves it.
    """
    from offaxis.cli.files import check_output
    from offaxis.cli.reading.releases import load_release
    from offaxis.faces.onnx import to_onnx
    from offaxis.files import replacing
    from offaxis.geometry import Layers

    check_output(out, release, *([network] if network else []))
    loaded = load_release(release, expect)
    model = to_onnx(loaded, Layers.load(network) if network else None, dtype=dtype)
    with replacing(out) as file:
        file.write(model.SerializeToString())
    into, made = model.graph.input[0].name, model.graph.output[0].name
    if as_json:
        facts = {"out": str(out), "release": loaded.hash, "input": into, "output": made}
        print_json(facts | {"dtype": dtype, "private": False})
        return
    typer.echo(f"{out}: from {into} to {made}, in {dtype}; release {loaded.hash[:16]}…")
    typer.echo("The graph protects nobody: randomize what it returns before it leaves the device.")
