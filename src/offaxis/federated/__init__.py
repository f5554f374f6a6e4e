"""Federated learning: local releases of gradients, and secure aggregation of updates.

A *local* release protects a client from everybody, including the server. *Secure aggregation*
protects a client within the noisy sum that is opened; its guarantee is distributed, not local.
"""

from offaxis.federated.local import DirectGradient, LocalClient, LocalServer
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors
from offaxis.federated.plan import (
    DistributedGuarantee,
    SecureAggregationPlan,
    certified_delta,
    largest_rho,
    sum_divergence,
)
from offaxis.federated.roster import ClientKeys, Member, Roster
from offaxis.federated.secure_client import ClientFile, SecureAggregationClient
from offaxis.federated.secure_server import AggregatedSum, SecureAggregationRound

__all__ = [
    "AggregatedSum",
    "ClientFile",
    "ClientKeys",
    "Consent",
    "DirectGradient",
    "DistributedGuarantee",
    "LocalClient",
    "LocalServer",
    "MaskedUpdate",
    "Member",
    "Opening",
    "Roster",
    "SecureAggregationClient",
    "SecureAggregationPlan",
    "SecureAggregationRound",
    "Survivors",
    "certified_delta",
    "largest_rho",
    "sum_divergence",
]
