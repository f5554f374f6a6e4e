"""Seeded floating-point noise and directions, for research only. Nothing here becomes a report."""

from __future__ import annotations

from offaxis.arrays import namespace, smallest
from offaxis.sampling.draws import Array, Rng, draws_from
from offaxis.vectors import row_dots


def add_laplace(W: Array, scale: float, rng: Rng) -> Array:
    """Return W plus independent Laplace noise of the given scale."""
    noise = draws_from(rng, W).laplace(*W.shape)
    noise *= scale
    noise += W
    return noise


def towards(u: Array, t: Array, length: float, rng: Rng) -> Array:
    """Return uniformly random v with ‖v‖ = length and ⟨v, u⟩ = length·t; unit rows u, dim >= 2."""
    xp = namespace(u)
    x = draws_from(rng, u).normal(*u.shape)
    along = row_dots(x, u)
    # x − along·u is the part of x across u; its length follows from Pythagoras.
    across2 = xp.clip(row_dots(x, x) - along * along, min=smallest(u))
    share = length * xp.sqrt(xp.clip(1.0 - t * t, min=0.0) / across2)
    x *= share[:, None]
    x += (length * t - share * along)[:, None] * u
    return x


def gaussian_towards(u: Array, t: Array, rng: Rng) -> Array:
    """Return Gaussian vectors conditioned on ⟨v, u⟩ = t, for unit rows u."""
    x = draws_from(rng, u).normal(*u.shape)
    x += (t - row_dots(x, u))[:, None] * u
    return x
