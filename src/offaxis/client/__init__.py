"""The device side: reports within a person's budget, and a device that answers rounds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offaxis.client.device import Device
    from offaxis.client.outbox import Entry
    from offaxis.client.reporter import Reporter
    from offaxis.client.terms import Offer, Terms

__all__ = ["Device", "Entry", "Offer", "Reporter", "Terms"]

_MODULES = {
    "Device": "offaxis.client.device",
    "Entry": "offaxis.client.outbox",
    "Offer": "offaxis.client.terms",
    "Reporter": "offaxis.client.reporter",
    "Terms": "offaxis.client.terms",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that talking to a collector does not import releases."""
    if name not in _MODULES:
        raise AttributeError(f"module 'offaxis.client' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
