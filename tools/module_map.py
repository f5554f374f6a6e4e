"""Draw docs/module-map.md and its picture from the real imports: ``python -m tools.module_map``.

The order of the rooms is that of the contract "layers" in pyproject.toml, which ``make lint``
enforces; the imports are those that grimp finds in the source, the ones inside functions and for
types alone among them. A test holds the committed files to what this makes.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import grimp

from tools.module_map_picture import picture

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/module-map.md"
PICTURE = ROOT / "docs/pictures/module-map.svg"

STOREYS = {
    "Ground": ("version", "errors", "arrays", "vectors", "files"),
    "Promises and randomness": ("sampling", "privacy"),
    "Parts of a release": (
        *("geometry", "provenance", "encoding", "randomizers", "decoding", "recipes"),
    ),
    "The release": ("simulating", "formats", "reading", "release", "fitting", "card"),
    "In the field": ("client", "collector"),
    "What it is worth": ("theory", "audit", "evaluation"),
    "At scale": ("federated", "engines"),
    "Research": ("data", "studies", "browser", "bench", "reporting"),
    "Doors": ("faces", "cli"),
}
"""Rooms as neighbours; their order is checked against the contract."""

OPENING = """\
# Module map

The package is a row of rooms, and each imports only from the rooms before it: what the guarantee
rests on knows nothing of what is built upon it. `make lint` enforces the order (pyproject.toml,
`[tool.importlinter]`), and this page is drawn from the imports as they are, by
`python -m tools.module_map`. Where to look for what: [Design](design.md).

![Which room imports which](pictures/module-map.svg)

A row shows what a room imports, a column who imports it; a larger mark stands for more imports. A
mark right of the diagonal is an import from a later room. There is one, of two rooms that share a
place: a release saves itself, and a file that is read becomes a release.

More rules hold beside the order:
"""


@dataclass(frozen=True)
class House:
    """The rooms in their order, from the ground up, and who imports whom how often."""

    rooms: tuple[str, ...]
    imports: Counter[tuple[str, str]]

    def of(self, room: str) -> list[str]:
        """Return the rooms that a room imports, in order."""
        return [other for other in self.rooms if (room, other) in self.imports]


def layers() -> list[set[str]]:
    """Return the layers of the contract, from the ground up."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = next(one for one in settings["contracts"] if one["id"] == "layers")
    return [set(re.findall(r"\w+", layer)) for layer in reversed(found["layers"])]


def read_house() -> House:
    """Read the imports of the package as they are."""
    graph = grimp.build_graph("offaxis", cache_dir=None)
    modules: set[str] = set()
    imports: Counter[tuple[str, str]] = Counter()
    for module in graph.modules - {"offaxis"}:
        room = module.split(".")[1]
        modules.add(room)
        for other in graph.find_modules_directly_imported_by(module) - {"offaxis"}:
            target = other.split(".")[1]
            if target != room:
                imports[room, target] += 1
    rooms = tuple(room for storey in STOREYS.values() for room in storey)
    place = {room: at for at, layer in enumerate(layers()) for room in layer}
    if sorted(rooms, key=place.__getitem__) != list(rooms) or set(rooms) != modules:
        raise SystemExit(
            f"tools/module_map.py has other rooms, or another order: {sorted(modules)}"
        )
    return House(rooms, imports)


def purpose(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    home = ROOT / "src/offaxis" / room
    file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text)[0].rstrip(".")


def page(house: House) -> str:
    """Return the page as Markdown."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rules = [f"- {one['name']}." for one in settings["contracts"] if one["id"] != "layers"]
    lines = [OPENING, *rules]
    for storey, rooms in STOREYS.items():
        lines += ["", f"## {storey}", "", "| room | what it is for | imports |", "|---|---|---|"]
        lines += [
            f"| `{room}` | {purpose(room)} | {', '.join(house.of(room)) or 'nothing'} |"
            for room in rooms
        ]
    return "\n".join(lines) + "\n"


def drawn() -> dict[Path, str]:
    """Return the content of both files."""
    house = read_house()
    return {PAGE: page(house), PICTURE: picture(STOREYS, house.imports)}


if __name__ == "__main__":
    for path, content in drawn().items():
        path.write_text(content)
        print(path.relative_to(ROOT))
