"""Means and shares of a round's reports: the moments they come from, as bytes and as facts."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding.aggregate import Moments
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.release import Release

_PART_NUMBERS: Final = 1 << 17
MOST_NUMBERS: Final = 1 << 22
"""Groups times numbers of a report: what the moments of one round may hold."""

_FIELDS: Final = ("sums", "mean", "squared_mean", "spread")


@dataclass(eq=False)
class Totals:
    """Moments of reports: decoded, of everybody and by group, and as the randomizer let through.

    The latter by group too where a report is a symbol, whose shares they are.
    """

    observed: Moments = field(default_factory=Moments)
    everybody: Moments = field(default_factory=Moments)
    groups: dict[str, Moments] = field(default_factory=dict)
    symbols: dict[str, Moments] = field(default_factory=dict)

    def add(self, release: Release, rows: Sequence[tuple[bytes, str | None]]) -> None:
        """Add reports with their labels."""
        decoder = release.decoder_of_means if release.gives_means else None
        widest = max(release.decoder_of_means.output_dim if decoder else 1, _width(release))
        step = max(1, _PART_NUMBERS // widest)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            seen = release.observe([content for content, _ in part])
            weights = np.ones(len(part))
            places = _places([label for _, label in part])
            self.observed.add(seen, weights)
            if _names_symbols(release):
                _add(self.symbols, seen, places)
            if decoder is not None:
                decoded = decoder.decode(seen)
                self.everybody.add(decoded, weights)
                _add(self.groups, decoded, places)

    def to_bytes(self) -> bytes:
        """Write the moments."""
        parts = {"observed": self.observed, "everybody": self.everybody}
        parts |= {f"group {label}": one for label, one in self.groups.items()}
        parts |= {f"symbols {label}": one for label, one in self.symbols.items()}
        arrays: dict[str, Any] = {}
        for at, one in enumerate(parts.values()):
            arrays |= {f"{at} {name}": getattr(one, name) for name in _FIELDS}
        names = json.dumps([[name, one.count] for name, one in parts.items()])
        arrays["names"] = np.frombuffer(names.encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, state: bytes) -> Totals:
        """Read the moments."""
        totals = cls()
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            for at, (name, count) in enumerate(json.loads(arrays["names"].tobytes())):
                one = Moments(count, *(arrays[f"{at} {part}"] for part in _FIELDS))
                kind, _, label = name.partition(" ")
                if kind in ("group", "symbols"):
                    (totals.groups if kind == "group" else totals.symbols)[label] = one
                else:
                    setattr(totals, name, one)
        return totals


def _places(labels: list[str | None]) -> dict[str, list[int]]:
    """Return the rows of each group."""
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        if label is not None:
            places.setdefault(label, []).append(place)
    return places


def _add(groups: dict[str, Moments], rows: NDArray[Any], places: dict[str, list[int]]) -> None:
    for label, chosen in places.items():
        groups.setdefault(label, Moments()).add(rows[chosen], np.ones(len(chosen)))


def _names_symbols(release: Release) -> bool:
    return isinstance(release.randomizer, SymbolForm)


def _width(release: Release) -> int:
    return release.decoder.input_dim


def numbers(release: Release, groups: int) -> int:
    """Return how many numbers the moments of a round hold, times three."""
    decoded = release.decoder_of_means.output_dim * (groups + 1) if release.gives_means else 0
    return _width(release) * (groups * _names_symbols(release) + 1) + decoded


def can_tell(release: Release) -> bool:
    """Say whether means or shares of symbols can be estimated without bias."""
    return release.gives_means or _names_symbols(release)


def means_facts(round_name: str, release: Release, totals: Totals) -> dict[str, Any]:
    """Return means and shares with standard errors of everybody and of each group, for JSON."""
    groups = sorted({*totals.groups, *totals.symbols})
    decoded: dict[str | None, Moments] = {None: totals.everybody}
    decoded |= dict(totals.groups.items())
    symbols: dict[str | None, Moments] = {}
    if _names_symbols(release):
        symbols = {None: totals.observed, **dict(totals.symbols.items())}
    entries = [_entry(label, decoded.get(label), symbols.get(label)) for label in (None, *groups)]
    return {
        "round": round_name,
        "release": release.hash,
        "reports": totals.observed.count,
        "means": entries if totals.observed.count else [],
    }


def _entry(label: str | None, decoded: Moments | None, symbols: Moments | None) -> dict[str, Any]:
    mean = decoded if decoded is not None and decoded.count else None
    count = mean.count if mean is not None else symbols.count if symbols is not None else 0
    # Moments older than these counts, whose reports are gone, know no symbols of groups.
    shares = symbols if symbols is not None and symbols.count == count else None
    return {
        "group": label,
        "reports": count,
        "mean": None if mean is None else mean.mean.tolist(),
        "standard_error": _error(mean),
        "shares": None if shares is None else shares.mean.tolist(),
        "shares_error": _error(shares),
    }


def _error(one: Moments | None) -> list[float] | None:
    return None if one is None or one.count < 2 else one.standard_error.tolist()
