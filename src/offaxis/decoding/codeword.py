"""From reported symbols back to vectors: each symbol stands for a public codeword."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from offaxis.arrays import namespace
from offaxis.encoding.encoder import frozen_map
from offaxis.errors import InvalidInput
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False, repr=False)
class CodewordDecoder:
    """z = the codeword of the reported symbol; of several, the most common in public.

    Attributes
    ----------
    codewords : (k, m) array
    prior : (k,) array
        Share of the public vectors that each codeword stands for.

    Examples
    --------
    >>> from offaxis.decoding import CodewordDecoder
    >>> decoder = CodewordDecoder(np.array([[0.0, 0.0], [4.0, 4.0]]), prior=np.array([0.75, 0.25]))
    >>> decoder.decode(np.array([[-0.2, 1.2]]))  # the second symbol was reported
    array([[4., 4.]])
    >>> decoder.prior_mean
    array([1., 1.])
    """

    kind: ClassVar[str] = "codeword"

    codewords: Vectors
    prior: Vectors

    def __post_init__(self) -> None:
        """Check shapes and signs, and freeze the arrays."""
        codewords, prior = frozen_map(self.codewords, self.prior, axis=0)
        if not (prior > 0).all():
            raise InvalidInput("every codeword must stand for a positive share of public vectors")
        object.__setattr__(self, "codewords", codewords)
        object.__setattr__(self, "prior", prior)

    @property
    def unbiased(self) -> bool:
        """False: a wrong symbol moves the mean; the mean decoder corrects for that."""
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
        """Mean of the codewords by their shares, (m,): the public mean."""
        mean: Vectors = self.prior / self.prior.sum() @ self.codewords
        return mean

    def decode(self, observations: Vectors) -> Vectors:
        """Map (n, k) estimates of the symbol, positive where it was reported, to (n, m)."""
        xp = namespace(observations)
        named = xp.argmax(xp.where(observations > 0, self.prior, 0.0), axis=1)
        decoded: Vectors = xp.take(self.codewords, named, axis=0)
        return decoded
