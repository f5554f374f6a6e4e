"""Privacy guarantees as exact numbers, their composition, and a ledger of what was spent."""

from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.privacy.ledger import Ledger

__all__ = ["Guarantee", "Ledger", "Limit", "exact_delta", "exact_epsilon"]
