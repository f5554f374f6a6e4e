"""Privacy guarantees as exact numbers, their composition, and a ledger of what was spent."""

from offaxis.privacy.composition import Limit
from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon
from offaxis.privacy.ledger import Ledger
from offaxis.privacy.shuffling import Blanket, Shuffled, shuffled_epsilon

__all__ = [
    "Blanket",
    "Guarantee",
    "Ledger",
    "Limit",
    "Shuffled",
    "exact_delta",
    "exact_epsilon",
    "shuffled_epsilon",
]
