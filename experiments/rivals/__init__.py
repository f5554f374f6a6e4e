"""Mechanisms of the literature for means of vectors, rebuilt as randomizers of another package.

Importing this package registers them, so that ``offaxis.fit(mechanism="rivals.sqkr")`` finds them.
They serve to compare with: offaxis recommends none of them. Each makes exact reports, and states
its privacy argument in the docstring of its module.

- :class:`Sqkr`: Kashin coefficients, some of their signs, one response over all sign patterns
  (Chen, Kairouz, Özgür 2020).
- :class:`RotatedSimplex`: a randomly rotated simplex as codebook (Isik, Chen, Özgür, Weissman,
  No 2023).
- :class:`FastProjUnit`: PrivUnit behind a structured random projection (Asi, Feldman, Nelson,
  Nguyen, Talwar 2023).
- :class:`Mvu`: an optimised table per coefficient (Chaudhuri, Guo, Rabbat 2022).

What is public in the papers (shared randomness) is expanded here from a nonce of 12 bytes at the
head of every report. ``information_bits`` counts what their papers count: the bits without it.
"""

from experiments.rivals.fast_projunit import FastProjUnit
from experiments.rivals.mvu import Mvu
from experiments.rivals.simplex import RotatedSimplex
from experiments.rivals.sqkr import Sqkr
from offaxis.randomizers import CustomRandomizer

__all__ = ["MECHANISMS", "RIVALS", "FastProjUnit", "Mvu", "RotatedSimplex", "Sqkr"]

MECHANISMS: dict[str, type[CustomRandomizer]] = {
    "rotated simplex": RotatedSimplex,
    "FastProjUnit": FastProjUnit,
    "SQKR": Sqkr,
    "MVU": Mvu,
}
"""Label → class. Any study takes them: ``experiments run NAME --plugin experiments.rivals``."""

RIVALS = tuple(MECHANISMS.values())
