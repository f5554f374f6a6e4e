"""Rows as arrays of a library with devices, and its seeded generators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch


def device_array(library: str, rows: Any, dtype: str = "float32") -> Any:
    return (
        torch.tensor(rows, dtype=getattr(torch, dtype))
        if library == "torch"
        else (jnp.asarray(rows, dtype=dtype))
    )


def generator(library: str, seed: int = 5) -> Any:
    return torch.Generator().manual_seed(seed) if library == "torch" else jax.random.key(seed)
