"""Learning from clients whose updates stay unseen: local releases of gradients, and masked sums."""

from offaxis.federated.accounting import certified_delta, largest_rho, sum_divergence
from offaxis.federated.client_file import ClientFile
from offaxis.federated.gradients import DirectGradient, PermutedGradients
from offaxis.federated.guarantee import DistributedGuarantee
from offaxis.federated.local import LocalClient, LocalServer
from offaxis.federated.masked_client import MaskedClient
from offaxis.federated.masked_server import MaskedRound, MaskedSum
from offaxis.federated.members import ClientKeys, Member
from offaxis.federated.messages import Consent, MaskedUpdate, Opening, Survivors
from offaxis.federated.plan import MaskingPlan
from offaxis.federated.roster import Roster

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
    "PermutedGradients",
    "Roster",
    "Survivors",
    "certified_delta",
    "largest_rho",
    "sum_divergence",
]
