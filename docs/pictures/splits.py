"""The public and private parts of the data sets of the studies."""

from __future__ import annotations

from datetime import date

import numpy as np
from drawing import arrow, box, finish, sheet, write

from offaxis.html.pages import GRID, INK, MUTED, PLAIN, RESHAPED, SAME

FIRST, CUT, LAST = date(2011, 11, 23), date(2013, 1, 1), date(2014, 2, 28)
SPACING = 16
"""Days in a vector, and the least distance of two dates of a round."""

IN_ROUND = 19
"""Households of a round: 130 rounds use 2,470 of the 2,547 private ones."""


def round_dates(seed: int = 3) -> list[tuple[int, int]]:
    """Return an example of a round: (household, days from the cut to its target day).

    The seed of a run decides the order in which the households of a round report.
    """
    order = np.random.default_rng(seed).permutation(IN_ROUND)
    return [(int(who), SPACING * (index + 1)) for index, who in enumerate(order)]


def households() -> str:
    """Draw the split of the households, and one round of it."""
    with sheet(330, 438) as (figure, axes):
        left, right, top, cut, bottom = 62.0, 326.0, 34.0, 118.0, 190.0
        days = (LAST - FIRST).days
        middle = left + (right - left) * (CUT - FIRST).days / days
        whole = (right - left, bottom - top)
        box(axes, (left, top, *whole), edge=GRID, fill="none", dashed=True)
        public = (left, top, middle - left, cut - top)
        box(axes, public, "public", "fit model\nand release", edge=RESHAPED, fill=SAME)
        private = (middle, cut, right - middle, bottom - cut)
        box(axes, private, "private", "at most one report\nper household", edge=PLAIN)
        write(axes, ((middle + right) / 2, (top + cut) / 2), "not used", MUTED, size=8.5)
        write(axes, ((left + middle) / 2, (cut + bottom) / 2), "not used", MUTED, size=8.5)
        write(axes, (left, 24), "Nov 2011", MUTED, ha="left", size=8.5)
        write(axes, (middle, 24), "1 Jan 2013", MUTED, size=8.5)
        write(axes, (right, 24), "Feb 2014", MUTED, ha="right", size=8.5)
        write(axes, (left, 9), "5,547 households, ordered by identifier", ha="left", weight="bold")
        for height, lines in (
            ((top + cut) / 2, ("first", "3,000")),
            ((cut + bottom) / 2, ("last", "2,547")),
        ):
            for index, line in enumerate(lines):
                write(axes, (left - 6, height - 6 + 12 * index), line, MUTED, ha="right", size=8.5)

        write(axes, (left, 218), "one of 130 rounds of a seed", PLAIN, ha="left", weight="bold")
        members = "19 of the 2,547 households, in no other round"
        write(axes, (left, 232), members, MUTED, ha="left", size=8.5)
        base, row, day = 244.0, 8.0, (right - left) / 310
        for who in range(IN_ROUND):
            height = base + row * (who + 0.5)
            axes.plot([left, right], [height, height], color=GRID, linewidth=0.6)
        for who, target in round_dates():
            height = base + row * (who + 0.5)
            span = [left + day * (target - SPACING), left + day * target - 1.5]
            axes.plot(span, [height] * 2, color=PLAIN, linewidth=4, solid_capstyle="butt")
            axes.plot(left + day * (target + 1), height, "o", color=INK, ms=3)
        end = base + row * IN_ROUND
        for index, line in enumerate(("its", "households")):
            write(axes, (left - 6, base + 66 + 12 * index), line, MUTED, ha="right", size=8.5)
        arrow(axes, (left, end + 8), (right, end + 8), colour=GRID)
        write(axes, (left, end + 18), "1 Jan 2013", MUTED, ha="left", size=8.5)
        write(axes, (right, end + 18), "Nov 2013", MUTED, ha="right", size=8.5)
        key = end + 35
        axes.plot([left, left + 14], [key] * 2, color=PLAIN, linewidth=4, solid_capstyle="butt")
        write(axes, (left + 19, key), "16 days: the vector", MUTED, ha="left", size=8.5)
        axes.plot(left + 137, key, "o", color=INK, ms=3)
        write(axes, (left + 143, key), "next day: the target", MUTED, ha="left", size=8.5)
        description = (
            "The split of the London households, in the order of their identifiers. Public: the "
            "first 3,000 households, windows before 1 January 2013. Private: the other 2,547, "
            "windows from then on. The two other quarters are not used. Below, one of the 130 "
            "rounds of a seed, with 19 private households: on each date, at least 16 days after "
            "the one before, another household reports its last 16 days; the target is the next "
            "day. No household reports twice."
        )
        return finish(figure, "households-split", description)


def images() -> str:
    """Draw the split of the image data sets."""
    with sheet(330, 274) as (figure, axes):
        write(axes, (2, 9), "training set", RESHAPED, ha="left", weight="bold")
        write(axes, (328, 9), "public", RESHAPED, ha="right")
        box(axes, (2, 20, 252, 58), "train, 80 %", "40,000 of CIFAR-10\n48,000 of MNIST",
            edge=RESHAPED, fill=SAME)  # fmt: skip
        box(axes, (260, 20, 68, 58), "validation", "20 %", edge=RESHAPED, fill=SAME)
        box(axes, (2, 100, 164, 34), "train models, fit releases")
        box(axes, (190, 100, 138, 34), "choose epochs, starts")
        arrow(axes, (84, 78), (84, 100))
        arrow(axes, (294, 78), (294, 100))
        arrow(axes, (190, 117), (166, 117))
        write(axes, (2, 164), "test set", PLAIN, ha="left", weight="bold")
        write(axes, (328, 164), "private", PLAIN, ha="right")
        box(axes, (2, 175, 160, 58), "clean", "10,000 of CIFAR-10\n10,000 of MNIST", edge=PLAIN)
        shifted = "the same 10,000 under 4\ncorruptions, 5 severities"
        box(axes, (168, 175, 160, 58), "CIFAR-10-C", shifted, edge=PLAIN)
        arrow(axes, (82, 233), (82, 252))
        arrow(axes, (248, 233), (248, 252))
        write(axes, (165, 262), "one report per image, and its score")
        description = (
            "The split of the image data sets. The training set is public: 80 % train models and "
            "fit releases, 20 % are validation images that choose epochs and starts. The test set "
            "is private, clean or, for CIFAR-10-C, under four corruptions at five severities. "
            "Each of its images gives one report."
        )
        return finish(figure, "images-split", description)
