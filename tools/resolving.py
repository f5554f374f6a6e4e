"""Resolve dependencies with uv from metadata alone: no package is downloaded or installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")

_STATED = """\
# pyspark 3.5 has no wheel, only 300 MB of source; these are the requirements of its setup.py.
[[dependency-metadata]]
name = "pyspark"
requires-dist = ["py4j>=0.10.9.7,<0.10.9.10"]
"""


def extras() -> list[str]:
    """Return the names of all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"])


@cache
def _index() -> list[str]:
    """Return uv's option for the package index that pip is configured with, if any."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    url = os.environ.get("PIP_INDEX_URL") or configured
    return ["--default-index", url] if url else []


def resolve(source: Path, *options: str) -> tuple[bool, str]:
    """Return whether versions were found, and the requirements or the error message."""
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write(_STATED)
        settings.flush()
        command = [
            *(str(uv), "pip", "compile", str(source), "--quiet", "--no-header"),
            *("--config-file", settings.name, *_index(), *options),
        ]
        # torch requires this version of macOS.
        environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    return done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr
