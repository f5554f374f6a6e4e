"""Raised and lowered signs: ``e^{−ε/2}`` and ``λ_i`` as a page shows them, without a script."""

from __future__ import annotations

import re

_PIECE = re.compile(r"(?P<kept><(pre|code|svg|script|style)\b.*?</\2>|<[^>]*>)|[^<]+", re.S)
"""A piece of a page: a tag or an element that shows its text as it is, both kept, or text."""

_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_RAISED = re.compile(rf"\^(?:{_BRACES}|([−-]?(?:\d+|[A-Za-z]+|\w|[∞⋆])|\([^()\s]*\)))")

_NAMED = r"(?<![A-Za-z0-9_])(?:argmax|max|min|sup|log|[Vv]ar|[A-Z][a-z])"
_LETTER = r"(?<![A-Za-z_])[A-Za-z]|[^\W\d_A-Za-z]"
_BASE = rf"(?:{_NAMED}|{_LETTER})[\u0302-\u0304]?|[‖|)\]∫]"
"""What has a lowered sign: one letter or a short name, so that a name of code stays as it is."""

_SIGNS = r"(?:near|null|priv|Rand|[A-Za-z0-9]{1,3}|[^\W_A-Za-z0-9]{1,3})(?![A-Za-z0-9_])"
_LOWERED = re.compile(rf"({_BASE})_(?:{_BRACES}|({_SIGNS}))")

_TOGETHER = re.compile(r"(?<=\d) (?=%(?!\w))|(?<=ε) (?== [\d.])|(?<=ε =) (?=\d)")
"""Blanks where a line is not to end: in 5 %, and in ε = 2."""


def typeset(html: str) -> str:
    """Return the page with raised and lowered signs, and code and drawings as they are."""
    return _PIECE.sub(lambda piece: piece["kept"] or _text(piece[0]), html)


def _text(text: str) -> str:
    text = _TOGETHER.sub("\N{NO-BREAK SPACE}", text)
    text = _RAISED.sub(lambda found: f"<sup>{_text(found[1] or found[2])}</sup>", text)
    return _LOWERED.sub(lambda found: f"{found[1]}<sub>{_text(found[2] or found[3])}</sub>", text)
