"""Public coordinates of the space, there and back."""

from __future__ import annotations

from dataclasses import dataclass

from offaxis.encoding.encoder import AffineEncoder, ShiftEncoder
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Frame:
    """w = A (z − c), and back z = B w + c.

    Attributes
    ----------
    centre : (m,) array
        c.
    forward, back : (r, m) and (m, r) arrays, or both None
        A and B, each the other's pseudo-inverse; None where the coordinates are the vector's own.

    Examples
    --------
    >>> from offaxis.encoding import Frame
    >>> frame = Frame(np.zeros(2), forward=np.array([[0.5, 0.0]]), back=np.array([[2.0], [0.0]]))
    >>> frame.dim, frame.encoder.encode(np.array([[6.0, 1.0]])), frame.lift(np.array([[3.0]]))
    (1, array([[3.]]), array([[6.],
           [0.]]))
    >>> doubled = frame.then(np.array([[2.0]]), np.array([[0.5]]), np.zeros(1))
    >>> doubled.mean_of(np.array([6.0, 1.0]))
    array([6.])
    >>> doubled.covariance_of(np.eye(2)), doubled.gram_of(np.eye(2))
    (array([[1.]]), array([[1.]]))
    """

    centre: Vectors
    forward: Vectors | None = None
    back: Vectors | None = None

    @property
    def dim(self) -> int:
        """Number r of coordinates."""
        return int(self.centre.size if self.forward is None else self.forward.shape[0])

    @property
    def encoder(self) -> AffineEncoder | ShiftEncoder:
        """The way there."""
        if self.forward is None:
            return ShiftEncoder(self.centre)
        return AffineEncoder(self.forward, self.centre)

    def then(self, forward: Vectors, back: Vectors, shift: Vectors) -> Frame:
        """Return the coordinates x = F (w − s); ``back`` is the pseudo-inverse of F."""
        return Frame(
            self.centre + self.lift(shift[:, None])[:, 0],
            forward if self.forward is None else forward @ self.forward,
            self.lift(back),
        )

    def lift(self, columns: Vectors) -> Vectors:
        """Return B times the columns: differences of coordinates as differences of vectors."""
        return columns if self.back is None else self.back @ columns

    def mean_of(self, mean: Vectors) -> Vectors:
        """Return the coordinates of a mean of vectors."""
        encoded: Vectors = self.encoder.encode(mean[None])[0]
        return encoded

    def covariance_of(self, covariance: Vectors) -> Vectors:
        """Return the covariance of the coordinates of vectors with the given one."""
        if self.forward is None:
            return covariance
        return self.forward @ covariance @ self.forward.T

    def gram_of(self, gram: Vectors) -> Vectors:
        """Return Bᵀ Ω B: how much a task looks along the coordinates."""
        return gram if self.back is None else self.back.T @ gram @ self.back
