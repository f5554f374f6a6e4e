"""The demo: what it measures, its figures and its page."""

from __future__ import annotations
