"""What people would use instead, written as they would write it.

Each file needs the package it is named after; :func:`installed` says which there are.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

RIVALS: Final = {"opendp": "OpenDP", "torch": "torch", "sklearn": "scikit-learn"}
"""Optional packages by the name they are imported under."""


def installed(package: str) -> bool:
    """Say whether a package can be imported here."""
    return find_spec(package) is not None


def gpu() -> str | None:
    """Return the name of the GPU that torch sees, if there is one."""
    if not installed("torch"):
        return None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def absent() -> list[str]:
    """Return the names of the rivals that are not installed."""
    return [name for package, name in RIVALS.items() if not installed(package)]
