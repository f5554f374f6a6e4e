"""Seeded floating-point draws for research: nothing here protects anyone or makes a report.

No module on the path of a report imports this package; an import contract enforces it.
"""

from offaxis.simulation.randomizers import draw_observations
from offaxis.simulation.releases import simulate

__all__ = ["draw_observations", "simulate"]
