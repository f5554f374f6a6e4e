"""Secure aggregation and local gradient releases in Flower: one client mod and one strategy each.

Needs Flower 1.30 or newer (extra ``flower``). Its pinned dependencies conflict with some extras of
offaxis, so use a separate environment. Flower sends usage statistics by default. Importing this
package before Flower turns that off (FLWR_TELEMETRY_ENABLED=0), unless the variable is already set.
"""

import os

from offaxis.errors import MissingExtra, installing

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

try:
    import flwr  # noqa: F401
except ImportError as error:
    raise MissingExtra(f"offaxis.federated.flower needs Flower: {installing('flower')}") from error

from offaxis.federated.flower.local import LocalMod, LocalStrategy
from offaxis.federated.flower.secure import SecureAggregationMod, SecureAggregationStrategy

__all__ = ["LocalMod", "LocalStrategy", "SecureAggregationMod", "SecureAggregationStrategy"]
