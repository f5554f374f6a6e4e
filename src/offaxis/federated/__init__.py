"""Learning from clients whose updates stay unseen: local releases of gradients, and masked sums."""

from offaxis.federated.local import DirectGradient, LocalClient, LocalServer
from offaxis.federated.masks import Consent, MaskedUpdate, Opening, Survivors
from offaxis.federated.plan import (
    DistributedGuarantee,
    MaskingPlan,
    certified_delta,
    largest_rho,
    sum_divergence,
)
from offaxis.federated.roster import ClientKeys, Member, Roster
from offaxis.federated.secure_client import ClientFile, MaskedClient
from offaxis.federated.secure_server import MaskedRound, MaskedSum

__all__ = [
    "ClientFile",
    "ClientKeys",
    "Consent",
    "DirectGradient",
    "DistributedGuarantee",
    "LocalClient",
    "LocalServer",
    "MaskedClient",
    "MaskedRound",
    "MaskedSum",
    "MaskedUpdate",
    "MaskingPlan",
    "Member",
    "Opening",
    "Roster",
    "Survivors",
    "certified_delta",
    "largest_rho",
    "sum_divergence",
]
