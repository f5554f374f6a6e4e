"""Randomness: the operating system's for releases, a seeded generator's for simulation only."""
