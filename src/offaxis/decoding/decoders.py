"""Decoders: public maps from observations, read from reports, to vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from offaxis.encoding.encoders import Frame, NetworkMap, frozen_map, frozen_shift
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, namespace


class Decoder(Protocol):
    """A public map applied by the collector to the observations in reports.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.decoding import Decoder
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> decoder: Decoder = offaxis.fit(
    ...     np.ones((1, 3)), public, epsilon=2, mechanism="laplace"
    ... ).decoder
    >>> decoder.kind, decoder.unbiased
    ('linear', True)
    """

    kind: ClassVar[str]

    @property
    def unbiased(self) -> bool:
        """Whether the mean of decoded reports estimates the mean of the vectors.

        True for affine maps, which commute with expectations. False for shrinkage, posterior
        means and other decoders that accept bias for a smaller error in a single report.
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
        """True: an affine map commutes with expectations."""
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
    """z = B v + c where B shrinks towards c: less error in a single report, biased in a mean.

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
        """False: shrinking every report shrinks the mean too."""
        return False


@dataclass(frozen=True, eq=False, repr=False)
class ShiftDecoder:
    """z = v + c: no reshaping. With c = 0 the observation itself.

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
        """True: a shift commutes with expectations."""
        return True

    @property
    def input_dim(self) -> int:
        """Dimension of an observation."""
        return int(self.offset.size)

    @property
    def output_dim(self) -> int:
        """Dimension of a decoded vector: the input dimension."""
        return int(self.offset.size)

    def decode(self, observations: Vectors) -> Vectors:
        """Return the shifted observations."""
        return observations + self.offset


@dataclass(frozen=True, eq=False, repr=False)
class CodewordDecoder:
    """z = the codeword of the reported symbol; among several symbols, the most common in public.

    Attributes
    ----------
    codewords : (k, m) array
    prior : (k,) array
        Share of the public vectors that each codeword represents.

    Examples
    --------
    >>> from offaxis.decoding import CodewordDecoder
    >>> decoder = CodewordDecoder(np.array([[0.0, 0.0], [4.0, 4.0]]), prior=np.array([0.75, 0.25]))
    >>> decoder.decode(np.array([[-0.2, 1.2]]))  # the second symbol was reported
    array([[4., 4.]])
    """

    kind: ClassVar[str] = "codeword"

    codewords: Vectors
    prior: Vectors

    def __post_init__(self) -> None:
        """Check shapes and signs, and freeze the arrays."""
        codewords, prior = frozen_map(self.codewords, self.prior, axis=0)
        if not (prior > 0).all():
            raise InvalidInput("every codeword must represent a positive share of public vectors")
        object.__setattr__(self, "codewords", codewords)
        object.__setattr__(self, "prior", prior)

    @property
    def unbiased(self) -> bool:
        """False: wrong symbols shift the mean; the mean decoder corrects for that."""
        return False

    @property
    def input_dim(self) -> int:
        """Number k of symbols."""
        return int(self.codewords.shape[0])

    @property
    def output_dim(self) -> int:
        """Dimension m of a decoded vector."""
        return int(self.codewords.shape[1])

    @property
    def prior_mean(self) -> Vectors:
        """Mean of the codewords weighted by their shares, (m,): the public mean."""
        mean: Vectors = self.prior / self.prior.sum() @ self.codewords
        return mean

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, k) estimates of the symbol, positive where it was reported, to (n, m)."""
        xp = namespace(observations)
        symbols = xp.argmax(xp.where(observations > 0, self.prior, 0.0), axis=1)
        decoded: Vectors = xp.take(self.codewords, symbols, axis=0)
        return decoded


class NetworkDecoder(NetworkMap):
    """z = network(v), from R^r to R^m.

    Examples
    --------
    >>> from offaxis.decoding import NetworkDecoder
    >>> decoder = NetworkDecoder([np.array([[1.0], [2.0]])], [np.zeros(2)])
    >>> decoder.decode(np.array([[3.0]]))
    array([[3., 6.]])
    """

    @property
    def unbiased(self) -> bool:
        """False: a network does not commute with expectations."""
        return False

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, r) to (n, m)."""
        return self.apply(observations)


def back_from(frame: Frame) -> LinearDecoder | ShiftDecoder:
    """Return the decoder from public coordinates; a biased one if they omit directions."""
    if frame.back is None:
        return ShiftDecoder(frame.centre)
    if frame.dim < frame.centre.size:
        return ShrinkageDecoder(frame.back, frame.centre)
    return LinearDecoder(frame.back, frame.centre)
