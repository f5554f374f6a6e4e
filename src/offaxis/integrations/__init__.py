"""Releases in the libraries people already use: one module per library, one extra each.

Nothing is imported here. ``offaxis.integrations.sklearn`` needs the extra ``sklearn``, and so on; a
module whose library is missing says which extra to install.
"""

from __future__ import annotations
