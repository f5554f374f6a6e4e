"""The groups of ``python -m benchmarks``: measurements of releases and their rivals."""

from __future__ import annotations
