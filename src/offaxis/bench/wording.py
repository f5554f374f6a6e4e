"""Figures in words, the same on a terminal and in a document."""

from __future__ import annotations

from typing import Final

from offaxis.bench.results import Growth

_PREFIXES: Final = ((1e6, " M"), (1e3, " k"), (1, ""))
_TIMES: Final = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))


def _fitting(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return the largest unit that the value, rounded to three digits, fills."""
    return next((unit for unit in units if float(f"{value:.3g}") >= unit[0]), units[-1])


def figure(value: float) -> str:
    """Write a number with three digits: 17.3 M, 588 k, 0.171."""
    size, prefix = _fitting(value, _PREFIXES)
    return f"{value / size:.3g}{prefix}"


def times(ratio: float) -> str:
    """Say how many times faster or slower we are."""
    size, word = (ratio, "faster") if ratio >= 1 else (1 / ratio, "slower")
    return f"{size:,.0f}× {word}" if size >= 100 else f"{size:.3g}× {word}"


def amount(value: float, unit: str) -> str:
    """Write a time or a size of memory."""
    if unit != "s":
        return f"{value:.0f} {unit}"
    size, name = _fitting(value, _TIMES)
    return f"{value / size:.3g} {name}"


def line(grown: Growth) -> str:
    """Write a + b · size, and how near it comes to what was measured."""
    fixed, each = grown.line()
    parts = [amount(fixed, grown.unit)] if fixed > 1e-3 * grown.costs[0] else []
    parts.append(f"{amount(each, grown.unit)} × {grown.variable}")
    return f"{' + '.join(parts)}, within {grown.off_the_line():.0%}"
