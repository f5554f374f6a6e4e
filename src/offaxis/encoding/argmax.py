"""From a vector to a symbol: the largest of several affine scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from offaxis.arrays import namespace
from offaxis.encoding.encoder import frozen_map, frozen_shift, tame
from offaxis.encoding.frame import Frame
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors, row_dots


@dataclass(frozen=True, eq=False, repr=False)
class ArgmaxEncoder:
    """x = argmax_j (A (z − c) + b)_j, the first of equals; one of k symbols.

    Examples
    --------
    >>> from offaxis.encoding import ArgmaxEncoder, Frame
    >>> codewords = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> nearest = ArgmaxEncoder.nearest(Frame(np.zeros(2)), codewords)
    >>> nearest.encode(np.array([[3.0, 1.0], [0.1, 0.2]])), nearest.output_dim
    (array([1, 0]), 3)
    """

    kind: ClassVar[str] = "argmax"

    matrix: Vectors
    centre: Vectors
    bias: Vectors

    def __post_init__(self) -> None:
        """Check shapes and sizes, and freeze the arrays."""
        matrix, centre = frozen_map(self.matrix, self.centre, axis=1)
        bias = frozen_shift(self.bias)
        if bias.shape != (matrix.shape[0],):
            raise InvalidInput(f"{matrix.shape[0]} scores and a bias {bias.shape} do not fit")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "bias", bias)

    @classmethod
    def nearest(cls, frame: Frame, codewords: Vectors) -> ArgmaxEncoder:
        """Return the encoder that finds the codeword nearest in the coordinates of a frame.

        ‖w − w_j‖² is smallest where ⟨w, w_j⟩ − ‖w_j‖²/2 is largest.
        """
        matrix = codewords if frame.forward is None else codewords @ frame.forward
        return cls(matrix, frame.centre, -row_dots(codewords, codewords) / 2)

    @property
    def input_dim(self) -> int:
        """Dimension m of a private vector."""
        return int(self.matrix.shape[1])

    @property
    def output_dim(self) -> int:
        """Number k of symbols."""
        return int(self.matrix.shape[0])

    def encode(self, Z: Vectors) -> NDArray[Any]:
        """Map (n, m) to (n,) symbols."""
        scores = (tame(Z) - self.centre) @ self.matrix.T
        scores += self.bias
        symbols: NDArray[Any] = namespace(scores).argmax(scores, axis=1)
        return symbols
