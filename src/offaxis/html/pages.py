"""What all pages share: titles, templates, figures as inline SVG, and formatted numbers.

A page is one HTML file that contains everything it shows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Final

from offaxis.errors import MissingExtra, installing

if TYPE_CHECKING:
    import jinja2
    from matplotlib.figure import Figure

TITLES: Final = {
    "laplace": "Laplace",
    "gaussian": "Gaussian",
    "spherical-laplace": "Laplace (spherical)",
    "privunit2": "PrivUnit2",
    "privunitg": "PrivUnitG",
    "privunitg-sphere": "PrivUnitG (sphere)",
    "privunit2-mean": "PrivUnit2 (means)",
    "privunitg-mean": "PrivUnitG (means)",
    "projunit": "ProjUnit",
    "projunit-mean": "ProjUnit (means)",
    "duchi": "Duchi",
    "piecewise": "Piecewise",
    "hybrid": "Hybrid",
    "response": "Codebook, k-ary response",
    "subset": "Codebook, subset selection",
    "class-response": "Class codebook, k-ary response",
    "scalar-response": "Intervals of the answer, k-ary response",
    "coordinatewise-laplace": "Coordinate-wise Laplace",
    "coordinatewise-gaussian": "Coordinate-wise Gaussian",
    "instance-optimal": "Instance-optimal",
    "plan": "PLAN",
    "task-aware": "Task-aware",
    "task-aware-network": "Task-aware (network)",
}
SHAPE_TITLES: Final = {"none": "plain", "jacobian": "reshaped"}


# ---- Templates


def template(
    name: str, package: str = "offaxis.html", **filters: Callable[[Any], str]
) -> jinja2.Template:
    """Return a template of a package; values are escaped, and an unknown name is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader("offaxis.html")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)


# ---- Figures: from matplotlib to inline SVG with the colours and fonts of the page
#
# Figures are drawn in placeholder colours. Each becomes a CSS variable, so that the same figure
# works on a light and on a dark page.

INK: Final = "#010201"
MUTED: Final = "#010202"
GRID: Final = "#010203"
PLAIN: Final = "#010204"
RESHAPED: Final = "#010205"
POINT: Final = "#010206"
SAME: Final = "#010207"
CARD: Final = "#010208"

LINE_DASHES: Final = (0, (7, 2.5))
"""Dashes of bounds and reference lines, unlike any measured curve."""

_VARIABLES: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    PLAIN: "var(--plain)",
    RESHAPED: "var(--reshaped)",
    POINT: "var(--point)",
    SAME: "var(--same)",
    CARD: "var(--card)",
}

# Any: newer matplotlib types the keys as literals, older ones as str.
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "path.simplify": False,
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.color": GRID,
    "ytick.labelcolor": MUTED,
    "lines.solid_capstyle": "round",
}


def require_report_extra() -> None:
    """Raise MissingExtra, with the fix, if matplotlib or jinja2 is not installed."""
    try:
        import jinja2
        import matplotlib.figure
    except ImportError as error:
        raise MissingExtra(
            f"the page needs {error.name or 'matplotlib and jinja2'}, which is not "
            f"installed; run: {installing('html')}"
        ) from error
    del jinja2, matplotlib


@contextmanager
def canvas(width: float, height: float) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure of a size in inches and its axes, in the page's style."""
    require_report_extra()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def inline(figure: Figure, name: str, label: str) -> str:
    """Return the figure as one ``<svg>`` element.

    Parameters
    ----------
    name : str
        Unique in the page; the ids inside the figure start with it.
    label : str
        Text alternative of the figure.
    """
    import matplotlib as mpl

    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name, **_STYLE}):
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    return _embed(stream.getvalue(), name, label)


def _embed(text: str, name: str, label: str) -> str:
    """Convert a stand-alone SVG document to an element of a page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="|url\()#([\w.-]+)', text))
    text = re.sub(
        r' id="([\w.-]+)"',
        lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "",
        text,
    )
    text = re.sub(r'(href="|url\()#([\w.-]+)', rf"\g<1>#{name}-\g<2>", text)
    text = re.sub(r" ?font-family: [^;\"]*;?", "", text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", text)
    # Round coordinates to a hundredth of a point; text between tags stays as it is.
    text = re.sub(r"-?\d+\.\d{3,}(?=[^<>]*>)", lambda match: f"{float(match[0]):.2f}", text)
    text = re.sub(r"\s*\n\s*", " ", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg {box[0]} role="img" aria-label="{escape(label)}">'
    return head + text[text.index(">") + 1 :].strip()


def budget_axis(axes: Any, largest: float) -> None:
    """Format the axis of budgets, up to the largest one."""
    axes.set_xticks([tick for tick in (1, 2.5, 5, 7.5, 10) if tick <= largest])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


# ---- Numbers

SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, *, share: bool = False, digits: int = 4) -> str:
    """Format a number as 3.457, 22,580 or 2.6 × 10⁹; a share in %; None as a dash."""
    if value is None:
        return "–"
    if share:
        return f"{100 * value:.1f}\N{NARROW NO-BREAK SPACE}%"
    size, _, exponent = f"{value:.3e}".partition("e")
    if -3 <= int(exponent) < 6:
        return f"{float(f'{value:.{digits}g}'):,.10g}"
    power = str(int(exponent)).translate(SUPERSCRIPTS)
    return f"{float(size):.2g} × 10{power}"
