"""Masked sums and local gradient releases in Flower: a side for its clients, a strategy each.

Needs Flower 1.30 or newer (extra ``flower``), which does not share an environment with every
extra of offaxis. Flower sends usage statistics unless it is told not to; importing this package
first turns that off (FLWR_TELEMETRY_ENABLED=0), unless the variable is set already.
"""

import os

from offaxis.errors import MissingExtra, installing

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

try:
    import flwr  # noqa: F401
except ImportError as error:
    raise MissingExtra(f"offaxis.federated.flower needs Flower: {installing('flower')}") from error

from offaxis.federated.flower.local import LocalClientSide, LocalStrategy
from offaxis.federated.flower.secure import MaskedClientSide, MaskedStrategy

__all__ = ["LocalClientSide", "LocalStrategy", "MaskedClientSide", "MaskedStrategy"]
