"""Superscripts and subscripts: render ``e^{−ε/2}`` and ``λ_i`` in HTML, without JavaScript."""

from __future__ import annotations

import re

_PIECE = re.compile(r"(?P<kept><(pre|code|svg|script|style)\b.*?</\2>|<[^>]*>)|[^<]+", re.S)
"""A piece of a page: a tag or a verbatim element, both kept unchanged, or text."""

_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_SUPERSCRIPT = re.compile(rf"\^(?:{_BRACES}|([−-]?(?:\d+|[A-Za-z]+|\w|[∞⋆])|\([^()\s]*\)))")

_NAMED = r"(?<![A-Za-z0-9_])(?:argmax|max|min|sup|log|[Vv]ar|[A-Z][a-z])"
_LETTER = r"(?<![A-Za-z_])[A-Za-z]|[^\W\d_A-Za-z]"
_BASE = rf"(?:{_NAMED}|{_LETTER})[\u0302-\u0304]?|[‖|)\]∫]"
"""What can have a subscript: one letter or a short name, so that identifiers stay unchanged."""

_INDEX = r"(?:near|null|priv|Rand|[A-Za-z0-9]{1,3}|[^\W_A-Za-z0-9]{1,3})(?![A-Za-z0-9_])"
_SUBSCRIPT = re.compile(rf"({_BASE})_(?:{_BRACES}|({_INDEX}))")

_NO_BREAK = re.compile(r"(?<=\d) (?=%(?!\w))|(?<=ε) (?== [\d.])|(?<=ε =) (?=\d)")
"""Spaces at which a line must not break: in 5 %, and in ε = 2."""


def typeset(html: str) -> str:
    """Return the page with superscripts and subscripts; code and drawings are unchanged."""
    return _PIECE.sub(lambda piece: piece["kept"] or _text(piece[0]), html)


def _text(text: str) -> str:
    text = _NO_BREAK.sub("\N{NO-BREAK SPACE}", text)
    text = _SUPERSCRIPT.sub(lambda match: f"<sup>{_text(match[1] or match[2])}</sup>", text)
    return _SUBSCRIPT.sub(lambda match: f"{match[1]}<sub>{_text(match[2] or match[3])}</sub>", text)
