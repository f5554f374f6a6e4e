"""A sketch of the Gram: one backward pass a probe instead of a whole Jacobian a vector.

The outputs are dealt out to s strata, output a to stratum a mod s. The probe g_j of a vector has
random signs on stratum j and zeros elsewhere, so E[Σ_j g_j g_jᵀ] = 1 and

    Σ_j (Jᵀg_j)(Jᵀg_j)ᵀ

is JᵀJ on average; with as many probes as outputs it is JᵀJ itself (docs/high-dimension.md).
Signs are a hash of the vector's own bits: neither batches nor parts nor their order change
the sketch, and a fit repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.geometry.models import TaskModel, gram_of
from offaxis.vectors import Vectors

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD: Final = 64


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return every number well mixed: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def signs(Z: Vectors, outputs: int) -> NDArray[np.int8]:
    """Return a sign for every vector and output, (n, k), from the bits of the vector alone."""
    bits = np.ascontiguousarray(Z, dtype="<f8").view("<u8")
    # Numbers that came from float32 have empty low bits: fill them from above.
    bits = bits ^ (bits >> np.uint64(32))
    places = _mixed(np.arange(1, bits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    keys = _mixed(np.einsum("ij,j->i", bits, places))
    counter = np.arange(1, -(-outputs // _WORD) + 1, dtype=np.uint64) * _GOLDEN
    words = _mixed(keys[:, None] + counter).astype("<u8")
    tossed = np.unpackbits(words.view(np.uint8), axis=1)[:, :outputs]
    result: NDArray[np.int8] = 1 - 2 * tossed.astype(np.int8)
    return result


def probes_of(Z: Vectors, outputs: int, probes: int) -> Iterator[NDArray[np.int8]]:
    """Yield the probes of every vector, one stratum after the other, (n, k) each."""
    tossed = signs(Z, outputs)
    for stratum in range(min(probes, outputs)):
        probe = np.zeros_like(tossed)
        probe[:, stratum::probes] = tossed[:, stratum::probes]
        yield probe


def sketched_gram(model: TaskModel, Z: Vectors, outputs: int, probes: int) -> Vectors:
    """Return the sketch of Σ_i J_iᵀ J_i over the batch, (m, m), float64."""
    total: Vectors = np.zeros((Z.shape[1], Z.shape[1]))
    for probe in probes_of(Z, outputs, probes):
        total += gram_of(model.pull(Z, probe.astype(np.float64)))
    return total
