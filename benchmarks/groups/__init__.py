"""How fast releases are on this machine, beside what people would use instead.

Every figure is measured, none is stored; ratios compare contenders that took turns in one process.
"""

from __future__ import annotations
