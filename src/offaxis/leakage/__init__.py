"""What does a report leak? Attacks that people fear, run for real, beside the proved bounds."""

from offaxis.leakage.bounds import guess_bound
from offaxis.leakage.issuer import passport
from offaxis.leakage.result import Leak, LeakPassport

__all__ = ["Leak", "LeakPassport", "guess_bound", "passport"]
