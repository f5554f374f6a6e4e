"""Alternatives to offaxis, written as their users would write them.

Each module needs the package it is named after; see :func:`installed`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

RIVALS: Final = {"opendp": "OpenDP", "torch": "torch", "sklearn": "scikit-learn"}
"""Import name → name of each optional package."""


def installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return find_spec(package) is not None


def gpu_name() -> str | None:
    """Return the name of the GPU that torch sees, or None."""
    if not installed("torch"):
        return None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def missing_rivals() -> list[str]:
    """Return the names of the rivals that are not installed."""
    return [name for package, name in RIVALS.items() if not installed(package)]
