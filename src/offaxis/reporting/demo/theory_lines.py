"""The rows of the theory's table in words that need no mathematics, for the demo's page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from offaxis.theory.table import CONDITIONS, Row

BOUND: Final = "at most"
"""Conditions of quantities that are bounds begin so."""
BROKEN: Final = 4.0
"""Standard errors by which a measured value must pass its bound before the page calls it broken."""

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WORDS: Final = {
    "noise_risk": (
        "Harm by noise",
        "How far noise moves the model’s outputs, as a mean square, if the model were straight "
        "around every vector.",
    ),
    "clipping_risk": ("Harm by clipping", "The same for what clipping takes away."),
    "first_order_risk": (
        "Harm by both",
        "The sum. Measured is what the outputs of the real, bent model move by.",
    ),
    "root_gap": (
        "Error of the straight model",
        "How far the roots of the two values above can lie apart.",
    ),
    "root_gap_behind_first_layer": (
        "… counting what the model sees",
        "The same; noise that the first layer ignores is left out.",
    ),
    "risk_gap": ("… as mean squares", "How far the two values themselves can lie apart."),
    "disagreement": ("Changed answers", "The share of reports that get another answer."),
    "public_private_gap": (
        "Public for private",
        "How much the harm by noise can differ because the map was fitted to public vectors.",
    ),
    "stretch_l1": (
        "Stretch, sum of sizes (ℓ1)",
        "By which factor encoding can pull two vectors apart. A bound known before encoding does "
        "not hold after it, so the device clips every encoded vector.",
    ),
    "stretch_l2": ("Stretch, length (ℓ2)", "The same in ordinary length."),
}
assert _WORDS.keys() == CONDITIONS.keys(), "every quantity has words"


@dataclass(frozen=True)
class Line:
    """One row of the page's table; ``note`` says when it holds, or why it does not."""

    title: str
    meaning: str
    theory: str
    measured: str
    note: str


def number(value: float | None, *, share: bool = False, digits: int = 4) -> str:
    """Write 3.457, 22,580 or 2.6 × 10⁹; a share in %; a dash for nothing."""
    if value is None:
        return "–"
    if share:
        return f"{100 * value:.1f}\N{NARROW NO-BREAK SPACE}%"
    size, _, exponent = f"{value:.3e}".partition("e")
    if -3 <= int(exponent) < 6:
        return f"{float(f'{value:.{digits}g}'):,.10g}"
    power = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"{float(size):.2g} × 10{power}"


def line(row: Row) -> Line:
    """Put one row into words."""
    title, meaning = _WORDS[row.quantity]
    share = row.quantity == "disagreement"
    bound = row.condition.startswith(BOUND)
    theory, measured = number(row.theory, share=share), number(row.measured, share=share)
    if row.theory is not None and bound:
        theory = f"≤ {theory}"
    if row.standard_error is not None:
        measured += f" ± {number(row.standard_error, share=share, digits=2)}"
    note = row.fails or row.condition.removeprefix(BOUND).removeprefix(";").strip()
    if share and row.theory is not None and row.theory >= 1:
        note += " (all reports: here the bound says nothing)"
    return Line(title, meaning, theory, measured, note)


def bounds_hold(rows: Iterable[Row]) -> bool:
    """Return whether nothing that was measured passes its bound by more than chance allows."""
    return not any(
        row.condition.startswith(BOUND)
        and row.theory is not None
        and row.measured is not None
        and row.measured > row.theory + BROKEN * (row.standard_error or 0.0)
        for row in rows
    )
