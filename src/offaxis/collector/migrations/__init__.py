"""Migrations of the collector's tables, oldest first in ``versions``."""
