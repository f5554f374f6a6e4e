"""Reports of many records, each from its own source of randomness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from offaxis.randomizers.base import Randomizer
from offaxis.randomizers.lattice_form import LatticeForm
from offaxis.sampling.record_entropy import RealEntropy


def report_records(
    randomizer: Randomizer, W: NDArray[Any], sources: Sequence[RealEntropy]
) -> list[bytes]:
    """Return the payload of every row, as ``report`` would draw it of that row alone."""
    if isinstance(randomizer, LatticeForm):
        return randomizer.report_each(W, sources)
    rows = (W[at : at + 1] for at in range(len(W)))
    return [randomizer.report(row, source)[0] for row, source in zip(rows, sources, strict=True)]
