"""Exact randomness for reports: entropy and integer samplers. Nothing here takes a seed."""
