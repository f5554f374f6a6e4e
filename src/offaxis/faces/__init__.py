"""Releases where people already work: one neighbour a module, each with an extra of its own.

Nothing is imported here. ``offaxis.faces.sklearn`` needs the extra ``sklearn``, and so on; a module
whose library is missing says which extra to install.
"""
