"""A trained network as a decoder."""

from __future__ import annotations

from offaxis.encoding.network import NetworkMap
from offaxis.vectors import Vectors


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
        """False: a network does not pass expectations through."""
        return False

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, r) to (n, m)."""
        return self.apply(observations)
