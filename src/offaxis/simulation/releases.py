"""Simulation of a release: decoded vectors as from real reports, in seeded floating point.

For research only: nothing here protects anyone, and nothing here can become a report.

With a NumPy generator everything is computed in NumPy, in float64 and on all cores, for vectors of
any kind; the result does not depend on the number of cores. With a generator of the library of the
vectors, a torch.Generator or a JAX key, the whole release runs on their device and in their dtype
(two-byte floats are computed in float32).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from offaxis.decoding import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    ShiftDecoder,
)
from offaxis.encoding import AffineEncoder, ArgmaxEncoder, ShiftEncoder
from offaxis.encoding.encoders import Encoder, NetworkMap
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Randomizer
from offaxis.simulation.draws import Rng, draws_from
from offaxis.simulation.randomizers import draw_observations
from offaxis.vectors import (
    LARGEST_SINGLE,
    SINGLE_RADII,
    Vectors,
    as_batch,
    as_rows,
    check_finite,
    floating_dtype,
    like,
    moved,
    namespace,
    to_numpy,
    working_dtype,
)

_DEVICE_NUMBERS: Final = 1 << 27
"""Numbers computed at a time, so that intermediate results stay below a few GiB."""

ENCODERS: Final = (AffineEncoder, ShiftEncoder, ArgmaxEncoder, NetworkMap)
DECODERS: Final = (LinearDecoder, ShiftDecoder, CodewordDecoder, NetworkDecoder)
"""The maps that run on the device of their arrays, including subclasses."""


class Channel(Protocol):
    """An encoder followed by a randomizer: a release, or parts of one."""

    @property
    def encoder(self) -> Encoder:
        """The public map before the randomizer."""
        ...

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer."""
        ...


class ReleaseParts(Channel, Protocol):
    """The parts of a release that a simulation uses."""

    @property
    def decoder(self) -> Decoder:
        """The public map after the randomizer."""
        ...


def simulate(release: ReleaseParts, vectors: Any, rng: Rng) -> Any:
    """Return decoded vectors as from real reports, in fast seeded floating point.

    For research and utility estimates only: the result protects nobody and is not a report.

    Parameters
    ----------
    release : Release
    vectors : array or table of any kind, as in :meth:`offaxis.Release.privatize`
    rng : numpy.random.Generator, torch.Generator or JAX key
        With a NumPy generator the simulation runs in NumPy, on all cores; with a generator of the
        library of the vectors it runs on their device.

    Returns
    -------
    Vectors of the same kind, on the same device and in the same floating dtype; see docs/arrays.md.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((500, 3))
    >>> release = offaxis.fit(np.eye(2, 3), public, epsilon=2, mechanism="laplace")
    >>> offaxis.simulate(release, public, rng).shape
    (500, 3)
    """
    if isinstance(rng, np.random.Generator):
        return like(_in_numpy(release, vectors, rng), vectors)
    draws = draws_from(rng, vectors)
    _check_parts(release)
    batch = _batch(vectors, release.encoder.input_dim)
    _check_radius(release, batch)
    rows = max(1, _DEVICE_NUMBERS // max(batch.shape[1], release.encoder.output_dim))
    parts = [_chained(release, batch[i : i + rows], draws) for i in range(0, len(batch), rows)]
    xp = namespace(batch)
    decoded = xp.astype(parts[0] if len(parts) == 1 else xp.concat(parts), floating_dtype(vectors))
    if decoded.dtype.itemsize == 2 and not bool(xp.all(xp.isfinite(decoded))):
        raise InvalidInput(
            f"the result does not fit into {decoded.dtype}; pass the vectors as float32 or bfloat16"
        )
    return decoded[0] if vectors.ndim == 1 else decoded


def _chained(release: ReleaseParts, part: Any, rng: Rng) -> Any:
    encoded = moved(release.encoder, part).encode(part)
    observed = draw_observations(release.randomizer, encoded, rng)
    return moved(release.decoder, part).decode(observed)


def _batch(vectors: Any, dim: int) -> Any:
    """Return vectors on a device as checked rows, in the dtype to compute in."""
    xp = namespace(vectors)
    if not xp.isdtype(vectors.dtype, ("real floating", "integral")):
        raise InvalidInput(f"vectors must hold real numbers, got dtype {vectors.dtype}")
    vectors = vectors.detach() if hasattr(vectors, "detach") else vectors
    batch = as_rows(xp.astype(vectors, working_dtype(vectors)), dim)
    # One pass over all vectors: the norm is small unless an entry is huge or not finite.
    if not float(xp.linalg.vector_norm(batch)) <= LARGEST_SINGLE:
        check_finite(to_numpy(batch).astype(np.float64))
        if batch.dtype.itemsize == 4:
            raise InvalidInput("vectors are too long for float32; pass float64")
    return batch


def _check_parts(release: ReleaseParts) -> None:
    """Reject maps that run in NumPy only."""
    for part in (release.encoder, release.decoder):
        if not isinstance(part, (*ENCODERS, *DECODERS)):
            raise InvalidInput(
                f"the {part.kind} map of this release runs in NumPy only: pass "
                f"rng=numpy.random.default_rng(), and the result returns to the vectors' device"
            )


def _check_radius(release: ReleaseParts, batch: Any) -> None:
    radius = getattr(release.randomizer, "radius", 1.0)
    low, high = SINGLE_RADII
    if batch.dtype.itemsize == 4 and not low <= radius <= high:
        raise InvalidInput(f"float32 is too narrow for radius={radius!r}; pass float64")


# ---- NumPy on all cores

_CHUNK_NUMBERS = 1 << 16
"""A chunk holds about this many numbers (512 KiB), so that its work stays in the cache."""

_one_at_a_time = threading.Lock()
"""One simulation at a time: each uses every core and limits the threads of BLAS."""

_threadpools = cache(ThreadpoolController)


def _in_numpy(release: ReleaseParts, vectors: Any, rng: np.random.Generator) -> Vectors:
    batch, single = as_batch(vectors, release.encoder.input_dim)
    decoded = simulate_in_chunks(
        lambda part, child: _chained(release, part, child), batch, rng, release.decoder.output_dim
    )
    return decoded[0] if single else decoded


def simulate_in_chunks(
    simulate: Callable[[Vectors, np.random.Generator], Vectors],
    Z: Vectors,
    rng: np.random.Generator,
    output_dim: int,
) -> Vectors:
    """Apply ``simulate`` to row chunks of Z on all cores, each with a child generator of ``rng``.

    The chunks and their generators depend on the shape of Z and the state of ``rng`` alone.
    """
    rows = max(1, _CHUNK_NUMBERS // max(Z.shape[1], output_dim))
    starts = range(0, len(Z), rows)
    seeds = np.random.SeedSequence(rng.integers(0, 1 << 63, size=4).tolist()).spawn(len(starts))
    out = np.empty((len(Z), output_dim))

    def run(job: tuple[int, np.random.SeedSequence]) -> None:
        start, seed = job
        child = np.random.Generator(np.random.SFC64(seed))
        out[start : start + rows] = simulate(Z[start : start + rows], child)

    jobs = list(zip(starts, seeds, strict=True))
    workers = min(len(jobs), os.cpu_count() or 1)
    if workers == 1:
        for job in jobs:
            run(job)
    else:
        # Chunks run in parallel, so each matrix product must stay on one core.
        with (
            _one_at_a_time,
            _threadpools().limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(workers) as pool,
        ):
            list(pool.map(run, jobs))
    return out
