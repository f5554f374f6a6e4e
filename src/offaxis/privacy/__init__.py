"""What is promised, as exact numbers, and what has been spent of it."""

from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.privacy.ledger import Ledger

__all__ = ["Guarantee", "Ledger", "Limit", "exact_delta", "exact_epsilon"]
