"""One random coordinate of a vector in a box, as one bit: five bytes, unbiased, pure ε.

The coordinate x in [−1, 1] is rounded to a sign with mean x, and the sign is sent through
randomized response (Warner 1965; Duchi, Jordan and Wainwright 2018). The place of the coordinate
does not depend on the vector, and any two signs are within e^ε, hence any two vectors.
"""

import math
from dataclasses import dataclass

import numpy as np

from offaxis.randomizers import CustomRandomizer
from offaxis.randomizers.base import checked_copy
from offaxis.sampling.choices import Response, below

ENTRY = np.dtype([("place", "<u4"), ("plus", "?")])


@dataclass(frozen=True)
class OneBit(CustomRandomizer):
    """One random coordinate, as one bit."""

    kind = "one-bit.sampled"
    order = "inf"  # the domain is a box
    unbiased = True
    payload_size = ENTRY.itemsize

    def report(self, W, entropy):
        W = self.domain.project(checked_copy(W, self.dim, entropy))
        place = below(self.dim, len(W), entropy)
        plus = entropy.words(len(W)) / 2**15 - 1 < W[range(len(W)), place] / self.radius
        kept, _ = Response(2, 1, self.epsilon).draw(len(W), entropy)
        entries = np.empty(len(W), ENTRY)
        entries["place"], entries["plus"] = place, plus == kept
        return [entry.tobytes() for entry in entries]

    def read(self, payloads):
        entries = np.frombuffer(b"".join(payloads), ENTRY)
        return self._observed(entries["place"], entries["plus"])

    def simulate(self, W, rng):
        place, tanh = rng.integers(self.dim, size=len(W)), math.tanh(self.epsilon / 2)
        mean = self.domain.project(W)[range(len(W)), place] / self.radius
        return self._observed(place, 2 * rng.random(len(W)) - 1 < tanh * mean)

    def _observed(self, place, plus):
        V = np.zeros((len(place), self.dim))
        size = self.dim * self.radius / math.tanh(self.epsilon / 2)
        V[range(len(V)), place] = np.where(plus, size, -size)
        return V
