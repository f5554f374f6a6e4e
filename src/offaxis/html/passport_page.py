"""The leak passport as a page: attacks beside chance, bounds and controls, in one HTML file.

The page refers to nothing outside itself and runs no script, so that it can be filed and printed.
"""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Final

from offaxis.files import replacing
from offaxis.html.pages import TITLES, require_report_extra, template
from offaxis.leakage import Leak, LeakPassport
from offaxis.leakage.result import CAVEAT
from offaxis.plugins import is_plugin
from offaxis.privacy import wording
from offaxis.privacy.guarantee import decimal

_SIGNS: Final = {"no privacy": "□", "float noise": "✕", "no clipping": "▲"}
"""How the controls are drawn."""


def write_page(passport: LeakPassport, path: Path) -> None:
    """Write the page of a passport; the file is replaced atomically."""
    page = render(passport)
    with replacing(path) as file:
        file.write(page.encode())


def render(passport: LeakPassport) -> str:
    """Return the page as text."""
    require_report_extra()
    groups = {
        name: list(part)
        for name, part in groupby(passport.of_release, key=lambda leak: leak.attack)
    }
    sources = list(dict.fromkeys(leak.source for leak in passport.of_controls))
    page = template(
        "passport.html.j2",
        percent=percent,
        bound=lambda value: percent(value, up=True),
        place=place,
        spoken=spoken,
    )
    return page.render(
        passport=passport,
        foreign=is_plugin(passport.randomizer),
        attacks=list(groups),
        title=TITLES.get(passport.randomizer, passport.randomizer),
        epsilon=decimal(passport.guarantee.epsilon),
        groups=groups,
        sources=sources,
        beside={id(leak): passport.beside(leak) for leak in passport.of_release},
        identity=id,
        signs=_SIGNS,
        promise=wording.promise(passport.guarantee, passport.about),
        protected=wording.protected(passport.guarantee, passport.about),
        not_promised=wording.not_promised(passport.guarantee, passport.about),
        strength=wording.strength(passport.guarantee, passport.about),
        judged=[leak for leak in passport.of_release if leak.bound is not None],
        broken=[leak for leak in passport.of_controls if leak.exceeds],
        caveat=CAVEAT,
        runs=round(1 / passport.false_alarm),
    )


def percent(value: float | None, *, up: bool = False) -> str:
    """Write a share in %; a bound is never rounded down, and None is a dash."""
    if value is None:
        return "–"
    digits = 1 if abs(value) >= 0.01 else 2
    number = 100 * value
    if up:
        number = min(100.0, math.ceil(round(number * 10**digits, 6)) / 10**digits)
    return f"{number:.{digits}f}\N{NARROW NO-BREAK SPACE}%".replace("-", "−")


def place(value: float) -> str:
    """Return a share as a position between 0 % and 100 % of a track."""
    return f"{100 * min(max(value, 0.0), 1.0):.2f}%"


def spoken(leak: Leak) -> str:
    """Say what a row of the chart shows."""
    text = f"{percent(leak.value)} by the attack, {percent(leak.chance)} by chance"
    if leak.bound is not None:
        text += f", at most {percent(leak.bound, up=True)}"
    return text
