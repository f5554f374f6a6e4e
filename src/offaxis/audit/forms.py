"""What a randomizer is made of, for the auditor: its kind, and smaller forms of the same code.

A *reduced* form has two coordinates, so that many more reports can be drawn. A *coarse* form lies
on a lattice of a few steps, on which a single step too many is a large share of ε.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import CHOOSE
from offaxis.randomizers.domain import Ball
from offaxis.vectors import Vectors

COARSE_BOUND: Final = 8
"""Steps from the centre to the boundary of a coarse lattice, at most."""

COARSE_DIM: Final = 16


class Lattice(Protocol):
    """A randomizer that adds noise to bounded integers."""

    bound: int
    step: float
    log2_scale: int
    domain: Ball
    guarantee: Guarantee

    def integers(self, W: Vectors) -> NDArray[np.int64]:
        """Return what the noise is added to."""
        ...

    def read(self, payloads: list[bytes]) -> Vectors:
        """Return observations, multiples of the step."""
        ...


class Ranked(Protocol):
    """A randomizer that reports one of several public directions."""

    dim: int
    directions: int
    near: int

    def nearest(self, W: Vectors, nonces: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the directions that are more likely than the others, (n, near)."""
        ...


def is_lattice(randomizer: Any) -> TypeGuard[Lattice]:
    """Whether noise is added to integers bounded in the ℓ1 or ℓ2 norm."""
    return isinstance(randomizer.domain, Ball) and all(
        hasattr(randomizer, name) for name in ("bound", "step", "log2_scale", "integers")
    )


def is_ranked(randomizer: Any) -> TypeGuard[Ranked]:
    """Whether a report names one of a nonce's directions."""
    return all(hasattr(randomizer, name) for name in ("directions", "near", "nearest"))


def says_gaussian(randomizer: Any) -> bool:
    """Whether the guarantee rests on Gaussian noise: not pure, on an ℓ2 ball."""
    return is_lattice(randomizer) and randomizer.domain.order == 2 and not randomizer.guarantee.pure


def _altered(randomizer: Any, **changes: int) -> Any:
    """Return the randomizer with those of the changes that are parameters of its."""
    names = {field.name for field in dataclasses.fields(randomizer)}
    return dataclasses.replace(randomizer, **{k: v for k, v in changes.items() if k in names})


def reduced(randomizer: Randomizer) -> Randomizer | None:
    """Return the same randomizer in two dimensions; None if it has no more as it is."""
    if getattr(randomizer, "dim", 0) <= 2:
        return None
    form: Randomizer = _altered(
        randomizer, dim=2, directions=CHOOSE, near=CHOOSE, sampled=CHOOSE, projected=CHOOSE
    )
    return form


def coarse_forms(randomizer: Randomizer) -> list[Randomizer]:
    """Return the same randomizer on its coarsest lattices; none if it has no lattice.

    The coarser the lattice, the more one step is; but what rounding adds to many coordinates
    needs some steps to show.
    """
    forms: list[Randomizer] = []
    if not is_lattice(randomizer):
        return forms
    dim = min(randomizer.domain.dim, COARSE_DIM)
    for log2_scale in range(randomizer.log2_scale):
        try:
            form = _altered(randomizer, dim=dim, log2_scale=log2_scale, bound=CHOOSE)
        except InvalidInput:
            continue
        if forms and form.bound > COARSE_BOUND:
            break
        forms.append(form)
    return forms
