"""The page and the figure of a study, ours beside the published numbers."""

from __future__ import annotations
