"""A sister with a common fault: the coordinate is chosen by the vector, not at random."""

from dataclasses import dataclass

import numpy as np
from offaxis_one_bit import ENTRY, OneBit

from offaxis.randomizers.base import checked_copy
from offaxis.sampling.choices import Response


@dataclass(frozen=True)
class LargestBit(OneBit):
    """The largest coordinate is the most informative one. Its place is not protected."""

    kind = "one-bit.largest"

    def report(self, W, entropy):
        W = self.domain.project(checked_copy(W, self.dim, entropy))
        entries = np.empty(len(W), ENTRY)
        entries["place"] = np.abs(W).argmax(axis=1)
        kept, _ = Response(2, 1, self.epsilon).draw(len(W), entropy)
        entries["plus"] = (W[range(len(W)), entries["place"]] > 0) == kept
        return [entry.tobytes() for entry in entries]
