"""What the command line prints about a release, for people to attach to it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from offaxis.cli.app import app
from tests.checks import ALPHA


def _printed(*words: str) -> bytes:
    got = CliRunner().invoke(app, words)
    assert got.exit_code == 0, got.output
    return json.dumps(json.loads(got.stdout)).encode()


def printed_facts(folder: Path, release, head, public, epsilon: str = "1,3") -> dict[str, bytes]:
    """Return a real curve of the task and a real, small audit of the release."""
    head.save(folder / "head.safetensors")
    np.save(folder / "public.npy", public)
    release.save(folder / "a.release")
    task = ("--model", str(folder / "head.safetensors"), "--public", str(folder / "public.npy"))
    audit = ("audit", str(folder / "a.release"), "--reports", "2000", "--false-alarm", str(ALPHA))
    return {
        "curve": _printed("recommend", *task, "--epsilon", epsilon, "--json"),
        "audit": _printed(*audit, "--json"),
    }
