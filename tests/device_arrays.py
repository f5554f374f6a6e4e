"""Arrays and seeded generators of torch and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch


def device_array(library: str, rows: Any, dtype: str = "float32") -> Any:
    """Return rows as an array of a library that computes on devices."""
    if library == "torch":
        return torch.tensor(rows, dtype=getattr(torch, dtype))
    return jnp.asarray(rows, dtype=dtype)


def generator(library: str, seed: int = 5) -> Any:
    """Return a seeded generator of the library."""
    return torch.Generator().manual_seed(seed) if library == "torch" else jax.random.key(seed)
