"""Fields that several kinds of documents have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A hash in small hexadecimal digits."""
