"""From what a randomizer gets back to vectors that a release turns into it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding import AffineEncoder, ArgmaxEncoder, Encoder, NetworkEncoder, ShiftEncoder
from offaxis.encoding.network import AnswerEncoder
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, row_norms

_STEPS: Final = 10_000
_TRIED: Final = 4096


def preimages(encoder: Encoder, W: NDArray[Any]) -> Vectors:
    """Return inputs whose encodings are as close to the rows of W as the encoder allows.

    W are coordinates (n, r) or symbols (n,). For a network the closest of some random vectors.

    Raises
    ------
    InvalidInput
        If the auditor does not know the encoder.
    """
    if isinstance(encoder, ShiftEncoder):
        return np.asarray(W + encoder.centre)
    if isinstance(encoder, AffineEncoder):
        return np.asarray(_solve(encoder.matrix, W.T).T + encoder.centre)
    if isinstance(encoder, ArgmaxEncoder):
        return np.stack([_inside(encoder, int(symbol)) for symbol in W])
    if isinstance(encoder, NetworkEncoder):
        return _closest(encoder, W)
    if isinstance(encoder, AnswerEncoder):
        return np.stack([_answered(encoder, int(symbol)) for symbol in W])
    raise InvalidInput(f"an encoder of kind {encoder.kind!r} cannot be audited yet")


def _solve(matrix: Vectors, rows: Vectors) -> Any:
    if matrix.shape[0] == matrix.shape[1]:
        try:
            return np.linalg.solve(matrix, rows)
        except np.linalg.LinAlgError:
            pass
    return np.linalg.lstsq(matrix, rows)[0]


def _inside(encoder: ArgmaxEncoder, symbol: int) -> Vectors:
    """Return a vector with the given symbol: step over the border to whatever beats it."""
    z = encoder.centre.copy()
    for _ in range(_STEPS):
        scores = encoder.matrix @ (z - encoder.centre) + encoder.bias
        scores[symbol] -= 1e-9 * max(1.0, np.abs(scores).max())
        best = int(np.argmax(scores))
        if best == symbol:
            return z
        across = encoder.matrix[symbol] - encoder.matrix[best]
        # A little beyond the border, so that the steps end.
        z = z + 1.1 * (scores[best] - scores[symbol]) / max(across @ across, 1e-300) * across
    raise InvalidInput(f"found no vector that is encoded as symbol {symbol}")


def _answered(encoder: AnswerEncoder, symbol: int) -> Vectors:
    """Return a random vector that the network answers with the given symbol."""
    rng = np.random.default_rng(0)
    for size in np.tile(10.0 ** np.arange(-2, 5), 20):
        tried = size * rng.standard_normal((_TRIED, encoder.input_dim))
        found = np.flatnonzero(encoder.encode(tried) == symbol)
        if found.size:
            chosen: Vectors = tried[found[0]]
            return chosen
    raise InvalidInput(f"found no vector that is encoded as symbol {symbol}")


def _closest(encoder: NetworkEncoder, W: Vectors) -> Vectors:
    """Return the tried vectors whose encodings, once clipped, lie farthest along the rows."""
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-2, 4, (_TRIED, 1))
    tried = size * rng.standard_normal((_TRIED, encoder.input_dim))
    reached = encoder.encode(tried)
    # Beyond a row's own length the randomizer clips anyway.
    length = row_norms(W, 1)[:, None]
    kept = np.minimum(1.0, length / np.maximum(row_norms(reached, 1), 1e-300))
    closest: Vectors = tried[np.argmax(W @ reached.T * kept, axis=1)]
    return closest
