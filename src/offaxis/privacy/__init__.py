"""What is promised, as exact numbers."""

from offaxis.privacy.guarantee import Guarantee, exact_delta, exact_epsilon

__all__ = ["Guarantee", "exact_delta", "exact_epsilon"]
