"""Raised and lowered signs: ``e^{−ε/2}`` and ``λ_i`` as a page shows them, without a script."""

from __future__ import annotations

import re

_KEPT = re.compile(r"(<(pre|code|svg|script|style)\b.*?</\2>|<[^>]*>)", re.S)
"""What is not text of a page: tags, and elements that show text as it is."""

_BRACES = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_RAISED = re.compile(rf"\^(?:{_BRACES}|([−-]?(?:\d+|\w)))")
_BASE = r"(?<!\w)(?:max|min|sup|log|Var|\w)[\u0302\u0304]?|[‖|)\]]"
_SIGNS = r"[A-Za-zα-ωΑ-Ω0-9]{1,3}(?![A-Za-z0-9_])"
_LOWERED = re.compile(rf"((?:{_BASE})?)_(?:{_BRACES}|({_SIGNS}))")


def typeset(html: str) -> str:
    """Return the page with raised and lowered signs, but for code and drawings."""
    parts = _KEPT.split(html)
    # Three to a piece: text, what is kept, and the name of its element.
    return "".join(_text(part) if at % 3 == 0 else part for at, part in _numbered(parts))


def _numbered(parts: list[str]) -> list[tuple[int, str]]:
    return [(at, part) for at, part in enumerate(parts) if at % 3 != 2]


def _text(text: str) -> str:
    if "^" not in text and "_" not in text:
        return text
    text = _RAISED.sub(lambda found: f"<sup>{_text(found[1] or found[2])}</sup>", text)
    return _LOWERED.sub(_lower, text)


def _lower(found: re.Match[str]) -> str:
    base, inner = found[1], found[2] or found[3]
    return f"{base}<sub>{_text(inner)}</sub>" if base else found[0]
