"""Decoders: public maps from what a report says to a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from offaxis.encoding.encoder import frozen_map, frozen_shift
from offaxis.encoding.frame import Frame
from offaxis.vectors import Vectors


class Decoder(Protocol):
    """A public map applied by whoever receives reports.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.decoding import Decoder
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> decoder: Decoder = offaxis.fit(np.ones((1, 3)), public, epsilon=2).decoder
    >>> decoder.kind, decoder.input_dim, decoder.output_dim, decoder.unbiased
    ('linear', 3, 3, True)
    """

    kind: ClassVar[str]

    @property
    def unbiased(self) -> bool:
        """Whether the mean of decoded reports estimates the mean of the vectors.

        True for a map that passes expectations through (an affine one); False for shrinkage,
        posterior means and other decoders that trade bias for error in a single report.
        """
        ...

    @property
    def input_dim(self) -> int:
        """Dimension r of an observation, or the number of symbols."""
        ...

    @property
    def output_dim(self) -> int:
        """Dimension m of a decoded vector."""
        ...

    def decode(self, observations: NDArray[Any]) -> Vectors:
        """Map observations, (n, r) or (n,) symbols, to vectors (n, m)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class LinearDecoder:
    """z = B v + c, with B of shape (m, r).

    Examples
    --------
    >>> from offaxis.decoding import LinearDecoder
    >>> LinearDecoder(np.array([[2.0], [0.0]]), offset=np.ones(2)).decode(np.array([[3.0]]))
    array([[7., 1.]])
    """

    kind: ClassVar[str] = "linear"

    matrix: Vectors
    offset: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, offset = frozen_map(self.matrix, self.offset, axis=0)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "offset", offset)

    @property
    def unbiased(self) -> bool:
        """True: an affine map passes expectations through."""
        return True

    @property
    def input_dim(self) -> int:
        """Dimension r of an observation."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Dimension m of a decoded vector."""
        return int(self.matrix.shape[0])

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, r) to (n, m)."""
        decoded = observations @ self.matrix.T
        decoded += self.offset
        return decoded


@dataclass(frozen=True, eq=False, repr=False)
class ShrinkageDecoder(LinearDecoder):
    """z = B v + c where B pulls towards c: less error in a single report, biased in a mean.

    Examples
    --------
    >>> from offaxis.decoding import ShrinkageDecoder
    >>> decoder = ShrinkageDecoder(0.5 * np.eye(2), offset=np.ones(2))
    >>> decoder.decode(np.array([[2.0, 4.0]])), decoder.unbiased
    (array([[2., 3.]]), False)
    """

    kind: ClassVar[str] = "shrinkage"

    @property
    def unbiased(self) -> bool:
        """False: what it takes off a single report it takes off the mean too."""
        return False


@dataclass(frozen=True, eq=False, repr=False)
class ShiftDecoder:
    """z = v + c: no reshaping; with c = 0 the plain use of a randomizer.

    Examples
    --------
    >>> from offaxis.decoding import ShiftDecoder
    >>> ShiftDecoder(np.ones(2)).decode(np.array([[2.0, 4.0]]))
    array([[3., 5.]])
    """

    kind: ClassVar[str] = "shift"

    offset: Vectors

    def __post_init__(self) -> None:
        """Check the size and freeze the array."""
        object.__setattr__(self, "offset", frozen_shift(self.offset))

    @property
    def unbiased(self) -> bool:
        """True: a shift passes expectations through."""
        return True

    @property
    def input_dim(self) -> int:
        """Dimension of an observation."""
        return int(self.offset.size)

    @property
    def output_dim(self) -> int:
        """Dimension of a decoded vector, the same."""
        return int(self.offset.size)

    def decode(self, observations: Vectors) -> Vectors:
        """Return the shifted observations."""
        return observations + self.offset


def back_from(frame: Frame) -> LinearDecoder | ShiftDecoder:
    """Return the way back from public coordinates; a biased one where they leave something out."""
    if frame.back is None:
        return ShiftDecoder(frame.centre)
    if frame.dim < frame.centre.size:
        return ShrinkageDecoder(frame.back, frame.centre)
    return LinearDecoder(frame.back, frame.centre)
