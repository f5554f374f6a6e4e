"""Create a separate environment for Flower, once.

    python -m examples.flower.environment

Flower pins versions of fastapi, typer and rich that conflict with other extras, so it is installed
into ``.venv-flower``. Nothing is downloaded if that exists and the requirements are unchanged.
"""

from __future__ import annotations

from pathlib import Path

from examples import environments
from examples.environments import ROOT

HOME = ROOT / ".venv-flower"
REQUIREMENTS = ("flwr==1.41.0", "scikit-learn>=1.6")
"""Flower is pinned exactly: runtime.py uses parts of it that change between versions."""


def prepare() -> Path:
    """Create the environment if it does not exist, and return its interpreter."""
    return environments.prepare(HOME, REQUIREMENTS)


if __name__ == "__main__":
    print(prepare())
