"""Integrations with other libraries: one module and one extra per library.

Nothing is imported here. ``offaxis.integrations.sklearn`` needs the extra ``sklearn``, and so on. A
module whose library is missing raises MissingExtra with the extra to install.
"""

from __future__ import annotations
