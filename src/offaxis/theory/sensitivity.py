"""How far encoding can pull two vectors apart: why a reshaped vector must be clipped.

For w = A(z − c), ‖A(z − z')‖_p ≤ ‖A‖_p ‖z − z'‖_p. Under the gauge Σ λ_i^{−p/2} = m of the
reshaping, ‖A‖_p ≥ 1: a bound known before encoding may not be carried over to the encoded vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput
from offaxis.release import Release


@dataclass(frozen=True)
class Amplification:
    """The largest factor by which encoding stretches a difference of vectors.

    Attributes
    ----------
    l1 : float
        ‖A‖_1, the largest sum of magnitudes in a column.
    l2 : float
        ‖A‖_2, the largest singular value.

    Examples
    --------
    >>> from offaxis.theory import Amplification
    >>> Amplification(l1=2.0, l2=1.5).l1
    2.0
    """

    l1: float
    l2: float


def amplification(release: Release) -> Amplification:
    """Return ‖A‖_1 and ‖A‖_2 of the encoder, L^{−1} after reshaping.

    Holds for affine encoders and any randomizer. It is at least 1 in the norm of the gauge the map
    was fitted with. The guarantee does not depend on it, because the randomizer clips what it is
    given.

    Raises
    ------
    InvalidInput
        If the encoder is not affine.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import amplification
    >>> task = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.1]])
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=3)
    >>> found = amplification(release)
    >>> found.l1 >= 1  # so that clipping comes after the map, not before it
    True
    """
    encoder = release.encoder
    if isinstance(encoder, ShiftEncoder):
        return Amplification(1.0, 1.0)
    if not isinstance(encoder, AffineEncoder):
        raise InvalidInput(f"the condition 'affine encoder' fails: it is {encoder.kind!r}")
    l1, l2 = (float(np.linalg.norm(encoder.matrix, order)) for order in (1, 2))
    return Amplification(l1, l2)
