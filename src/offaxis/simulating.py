"""A release simulated: decoded vectors as reports would give them, in seeded floating point.

For research only: nothing here protects anybody, and nothing here can become a report.

With a NumPy generator everything is computed in NumPy, in float64 and on all cores, whatever kind
of vectors came. With a generator of the vectors' own library, a torch.Generator or a JAX key, the
whole chain runs where the vectors lie, in their dtype (two-byte floats are computed in float32).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from offaxis.arrays import (
    LARGEST_SINGLE,
    floating_dtype,
    like,
    moved,
    namespace,
    to_numpy,
    working_dtype,
)
from offaxis.decoding import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    ShiftDecoder,
)
from offaxis.decoding.channel import Channel
from offaxis.encoding import AffineEncoder, ArgmaxEncoder, ShiftEncoder
from offaxis.encoding.network import NetworkMap
from offaxis.errors import InvalidInput
from offaxis.sampling.draws import Rng, draws_from
from offaxis.sampling.parallel import simulate_in_chunks
from offaxis.vectors import Vectors, as_batch, as_rows, check_finite

_DEVICE_NUMBERS: Final = 1 << 27
"""So many numbers are computed at a time: what lies between the steps stays below a few GiB."""

_SINGLE_RADII: Final = (2.0**-40, 2.0**40)
"""Radii whose squares, and those of what is clipped to them, are far from the ends of float32."""

ENCODERS: Final = (AffineEncoder, ShiftEncoder, ArgmaxEncoder, NetworkMap)
DECODERS: Final = (LinearDecoder, ShiftDecoder, CodewordDecoder, NetworkDecoder)
"""The maps that run wherever their arrays lie, and those built on them."""


class Chain(Channel, Protocol):
    """The parts of a release."""

    @property
    def decoder(self) -> Decoder:
        """The public map behind it."""
        ...


def simulate(chain: Chain, vectors: Any, rng: Rng) -> Any:
    """Return decoded vectors of the kind, the device and the floating dtype of ``vectors``."""
    if isinstance(rng, np.random.Generator):
        return like(_in_numpy(chain, vectors, rng), vectors)
    draws = draws_from(rng, vectors)
    _check_parts(chain)
    batch = _batch(vectors, chain.encoder.input_dim)
    _check_radius(chain, batch)
    rows = max(1, _DEVICE_NUMBERS // max(batch.shape[1], chain.encoder.output_dim))
    parts = [_chained(chain, batch[i : i + rows], draws) for i in range(0, len(batch), rows)]
    xp = namespace(batch)
    decoded = xp.astype(parts[0] if len(parts) == 1 else xp.concat(parts), floating_dtype(vectors))
    if decoded.dtype.itemsize == 2 and not bool(xp.all(xp.isfinite(decoded))):
        raise InvalidInput(
            f"the result does not fit into {decoded.dtype}; pass the vectors as float32 or bfloat16"
        )
    return decoded[0] if vectors.ndim == 1 else decoded


def _in_numpy(chain: Chain, vectors: Any, rng: np.random.Generator) -> Vectors:
    batch, single = as_batch(vectors, chain.encoder.input_dim)
    decoded = simulate_in_chunks(
        lambda part, child: _chained(chain, part, child), batch, rng, chain.decoder.output_dim
    )
    return decoded[0] if single else decoded


def _chained(chain: Chain, part: Any, rng: Rng) -> Any:
    encoded = moved(chain.encoder, part).encode(part)
    observed = chain.randomizer.simulate(encoded, rng)
    return moved(chain.decoder, part).decode(observed)


def _batch(vectors: Any, dim: int) -> Any:
    """Return vectors of a device as rows in the dtype to compute in, checked."""
    xp = namespace(vectors)
    if not xp.isdtype(vectors.dtype, ("real floating", "integral")):
        raise InvalidInput(f"vectors must hold real numbers, got dtype {vectors.dtype}")
    vectors = vectors.detach() if hasattr(vectors, "detach") else vectors
    batch = as_rows(xp.astype(vectors, working_dtype(vectors)), dim)
    # One pass over the vectors: their norm is small unless one is huge or not finite.
    if not float(xp.linalg.vector_norm(batch)) <= LARGEST_SINGLE:
        check_finite(to_numpy(batch).astype(np.float64))
        if batch.dtype.itemsize == 4:
            raise InvalidInput("vectors are too long for float32; pass float64")
    return batch


def _check_parts(chain: Chain) -> None:
    """Refuse maps that run in NumPy only, and say so."""
    for part in (chain.encoder, chain.decoder):
        if not isinstance(part, (*ENCODERS, *DECODERS)):
            raise InvalidInput(
                f"the {part.kind} map of this release runs in NumPy only: pass "
                f"rng=numpy.random.default_rng(), and the result comes back to the vectors' device"
            )


def _check_radius(chain: Chain, batch: Any) -> None:
    radius = getattr(chain.randomizer, "radius", 1.0)
    low, high = _SINGLE_RADII
    if batch.dtype.itemsize == 4 and not low <= radius <= high:
        raise InvalidInput(f"float32 is too narrow for radius={radius!r}; pass float64")
