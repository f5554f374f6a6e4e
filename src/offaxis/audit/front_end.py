"""What stands before the noise: bounded integers, or a fixed number of near directions.

Exact: a single vector that breaks the bound contradicts the guarantee, whatever the noise does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from offaxis.audit.forms import Ranked, coarse_forms, is_lattice, is_ranked
from offaxis.audit.hostile import hostile
from offaxis.audit.result import Finding
from offaxis.errors import InvalidReport
from offaxis.randomizers import Randomizer
from offaxis.randomizers.box_form import BoxForm
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.domain import Ball
from offaxis.randomizers.lattice import BOX_BOUND
from offaxis.randomizers.symbol_form import SymbolForm
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors

_VECTORS = 4000
_ROWS = 64


def front_end(randomizer: Randomizer, rng: np.random.Generator) -> Finding:
    """Try the front end of a randomizer on hostile vectors."""
    if is_lattice(randomizer):
        return _integers(randomizer, rng)
    if is_ranked(randomizer):
        return _near(randomizer, rng)
    if isinstance(randomizer, BoxForm):
        return _coordinates(randomizer, rng)
    if isinstance(randomizer, SymbolForm):
        return _symbols(randomizer, rng)
    return Finding(
        "front-end",
        "white box",
        "what stands before the noise",
        "not run",
        f"the auditor does not know the front end of {randomizer.kind!r}",
    )


def size(integers: list[int], order: int) -> int:
    """Return Σ|n| or Σn² in exact integers."""
    return sum(map(abs, integers)) if order == 1 else sum(n * n for n in integers)


def _integers(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check Σ|n| <= R, or Σn² <= R², on the lattice as it is and on coarse ones."""
    order = randomizer.domain.order
    norm = "Σ|n| ≤ R" if order == 1 else "Σn² ≤ R²"
    tried, broken, worst = 0, 0, 0.0
    lattices: list[Any] = [randomizer, *coarse_forms(randomizer)]
    for form in lattices:
        vectors = hostile(form.domain, form.bound, _VECTORS, rng)
        sizes = [size(row, order) for row in _lattice_points(form, vectors)]
        over = [found for found in sizes if found > form.bound**order]
        tried, broken = tried + len(sizes), broken + len(over)
        if over:
            worst = max(worst, (max(over) / form.bound**order) ** (1 / order))
    words = f"{norm}, {tried:,} vectors"
    if broken:
        result = f"{broken:,} vectors leave the ball, one to {worst:.3g} times the bound"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "all within")


def _coordinates(randomizer: BoxForm, rng: np.random.Generator) -> Finding:
    """Check |n| <= R in every coordinate."""
    ball = Ball(randomizer.dim, randomizer.radius, 2)
    vectors = hostile(ball, BOX_BOUND, _VECTORS, rng)
    points = _lattice_points(randomizer, vectors)
    broken = sum(max(map(abs, row)) > BOX_BOUND for row in points)
    words = f"|n| ≤ R, {len(points):,} vectors"
    if broken:
        result = f"{broken:,} vectors leave the box"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "all within")


def _symbols(randomizer: Any, rng: np.random.Generator) -> Finding:
    """Check that every payload names as many symbols as it must, whatever the own one is."""
    own = rng.integers(0, randomizer.size, _VECTORS // _ROWS)
    words = f"{randomizer.named} named, {own.size:,} symbols"
    try:
        counts = (randomizer.read(randomizer.report(own, Entropy())) > 0).sum(axis=1)
    except InvalidReport as error:
        return Finding("front-end", "white box", words, "violation", str(error))
    broken = int((counts != randomizer.named).sum())
    if broken:
        result = f"{broken:,} payloads name another number of symbols"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "never another number")


def _lattice_points(form: Any, vectors: Vectors) -> list[list[int]]:
    with np.errstate(all="ignore"):
        rows: list[list[int]] = form.integers(vectors).tolist()
    return rows


def _near(randomizer: Ranked, rng: np.random.Generator) -> Finding:
    """Check that exactly ``near`` distinct directions are near, whatever the vector."""
    vectors = hostile(Ball(randomizer.dim, 1.0, 2), 1 << 20, _VECTORS // _ROWS, rng)
    broken, entropy = 0, Entropy()
    for start in range(0, len(vectors), _ROWS):
        part = vectors[start : start + _ROWS]
        nonces = entropy.words(len(part) * NONCE_BYTES // 2).view(np.uint8)
        with np.errstate(all="ignore"):
            found = randomizer.nearest(part, nonces.reshape(-1, NONCE_BYTES).copy())
        broken += sum(
            len(row) != randomizer.near
            or len(set(row)) != randomizer.near
            or min(row) < 0
            or max(row) >= randomizer.directions
            for row in found.tolist()
        )
    words = f"{randomizer.near} near, {len(vectors):,} vectors"
    if broken:
        result = f"{broken:,} vectors have another number of near directions"
        return Finding("front-end", "white box", words, "violation", result)
    return Finding("front-end", "white box", words, "nothing found", "never another number")
