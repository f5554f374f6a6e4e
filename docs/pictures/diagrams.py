"""Diagrams: how a report is made and used, and how the studies measure it."""

from __future__ import annotations

from drawing import arrow, box, finish, sheet, write

from offaxis.html.pages import GRID, INK, MUTED, PLAIN, RESHAPED, SAME


def overview() -> str:
    """Draw who holds what: the public side, a device and a collector."""
    with sheet(330, 374) as (figure, axes):
        write(axes, (6, 10), "public side, once", RESHAPED, ha="left", weight="bold")
        box(axes, (2, 20, 326, 108), edge=RESHAPED, fill="none")
        box(axes, (14, 30, 140, 28), "public model")
        box(axes, (176, 30, 140, 28), "public vectors")
        box(axes, (14, 76, 140, 42), "fit", "directions, scales, radius")
        box(axes, (176, 76, 140, 42), "release", "a frozen file", fill=SAME)
        arrow(axes, (84, 58), (84, 76))
        arrow(axes, (246, 58), (246, 67), (110, 67), (110, 76))
        arrow(axes, (154, 97), (176, 97))

        write(axes, (6, 158), "device (client)", PLAIN, ha="left", weight="bold")
        box(axes, (2, 168, 150, 204), edge=PLAIN, fill="none")
        write(axes, (324, 158), "collector (server)", ha="right", weight="bold")
        box(axes, (178, 168, 150, 204), edge=MUTED, fill="none")
        arrow(axes, (200, 118), (200, 138), (120, 138), (120, 168), colour=RESHAPED)
        arrow(axes, (210, 118), (210, 168), colour=RESHAPED)

        box(axes, (12, 180, 130, 34), "vector z", "private, never leaves")
        box(axes, (12, 236, 130, 44), "encoder", "shift, rotate, rescale")
        box(axes, (12, 302, 130, 44), "randomizer", "clip, add noise", edge=PLAIN)
        write(axes, (77, 358), "here ε is spent", MUTED, size=8.5)
        box(axes, (188, 306, 130, 36), "report", "bytes", fill=SAME)
        box(axes, (188, 236, 130, 44), "decoder", "undo rescale, rotate, shift")
        box(axes, (188, 180, 130, 34), "task", "answer, mean, new model")
        write(axes, (253, 358), "costs no privacy", MUTED, size=8.5)
        arrow(axes, (77, 214), (77, 236))
        arrow(axes, (77, 280), (77, 302))
        arrow(axes, (142, 324), (188, 324), colour=INK, width=1.6)
        arrow(axes, (253, 306), (253, 280))
        arrow(axes, (253, 236), (253, 214))
        description = (
            "Public side: a public model and public vectors are fitted once to a release, a frozen "
            "file that device and collector both have. Device: the encoder shifts, rotates and "
            "rescales a private vector, then the randomizer clips it and adds noise. Only the "
            "report leaves the device. Collector: the decoder undoes the map; the result is used "
            "for an answer, a mean or a new model."
        )
        return finish(figure, "overview", description)


def protocol() -> str:
    """Draw how a number of a study is measured."""
    with sheet(330, 378) as (figure, axes):
        box(axes, (2, 4, 150, 44), "public vectors, model", "fit once per ε", edge=RESHAPED)
        box(axes, (178, 4, 150, 44), "private vectors", "each reports once", edge=PLAIN)
        box(axes, (2, 76, 150, 34), "release at ε", fill=SAME)
        arrow(axes, (77, 48), (77, 76))

        box(axes, (2, 132, 326, 162), edge=GRID, fill="none", dashed=True)
        write(axes, (72, 146), "for each of 20 seeds", MUTED, ha="left", size=8.5)
        box(axes, (12, 158, 140, 34), "report", "new noise")
        box(axes, (12, 210, 140, 34), "decode", "vector ẑ")
        box(axes, (12, 256, 140, 28), "public model of ẑ")
        box(axes, (178, 210, 140, 34), "truth", "label, or next day")
        box(axes, (178, 256, 140, 28), "score of the seed")
        arrow(axes, (52, 110), (52, 158))
        arrow(axes, (300, 48), (300, 210))
        arrow(axes, (253, 48), (253, 175), (152, 175))
        arrow(axes, (82, 192), (82, 210))
        arrow(axes, (82, 244), (82, 256))
        arrow(axes, (152, 270), (178, 270))
        arrow(axes, (248, 244), (248, 256))

        box(axes, (90, 322, 228, 50), "mean ± std over seeds", "compared with the paper’s number")
        arrow(axes, (248, 284), (248, 322))
        write(axes, (84, 334), "12 values of ε", MUTED, ha="right", size=8.5)
        write(axes, (84, 346), "0.5 to 10", MUTED, ha="right", size=8.5)
        description = (
            "How a number of a study is measured. A release is fitted once per ε to public vectors "
            "and the public model. For each of 20 seeds, every private vector gives one report "
            "with new noise, which is decoded and given to the public model; for households, the "
            "seed also decides which vectors report. The outputs are compared with the truth: the "
            "label, or the energy of the next day. The number is the mean and standard deviation "
            "over seeds, at 12 values of ε."
        )
        return finish(figure, "protocol", description)
