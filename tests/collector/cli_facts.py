"""Facts about a release, as the command line prints them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from offaxis.cli.app import app
from tests.checks import ALPHA


def _output(*arguments: str) -> bytes:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return json.dumps(json.loads(result.stdout)).encode()


def cli_facts(folder: Path, release, head, public, epsilon: str = "1,3") -> dict[str, bytes]:
    """Return a real curve of the task and a real, small audit of the release."""
    head.save(folder / "head.safetensors")
    np.save(folder / "public.npy", public)
    release.save(folder / "a.release")
    task = ("--model", str(folder / "head.safetensors"), "--public", str(folder / "public.npy"))
    audit = ("audit", str(folder / "a.release"), "--reports", "2000", "--false-alarm", str(ALPHA))
    return {
        "curve": _output("recommend", *task, "--epsilon", epsilon, "--json"),
        "audit": _output(*audit, "--json"),
    }
