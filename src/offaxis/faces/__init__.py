"""Releases where people already work: a scikit-learn transformer and a torch module.

Nothing is imported here: each face needs its own extra, ``offaxis[sklearn]`` or ``offaxis[torch]``.
"""
