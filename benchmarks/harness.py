"""Timing of the scripts: that of the library."""

from offaxis.bench.timing import best_seconds, conditions, publish

__all__ = ["best_seconds", "conditions", "publish"]
