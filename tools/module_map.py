"""Generate docs/module-map.md and its picture from the imports: ``python -m tools.module_map``.

The packages are in the order of the contract "layers" in pyproject.toml, which ``make lint``
enforces. The imports are those that grimp finds in the source, including imports inside functions
and imports used only for types. A test compares the committed files with the output of this tool.
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

GROUPS = {
    "Foundation": ("version", "errors", "plugins", "tables", "vectors", "files"),
    "Guarantee and randomness": ("sampling", "privacy"),
    "Parts of a release": ("geometry", "provenance", "encoding", "randomizers", "decoding"),
    "Fitting and simulation": ("simulation", "mechanisms"),
    "The release": ("release", "formats", "card"),
    "Many reports": ("learning",),
    "Devices and collectors": ("client", "collector"),
    "Theory, fitting and utility": ("theory", "fitting", "auditing", "evaluation", "leakage"),
    "At scale": ("federated", "engines"),
    "For people and other libraries": ("html", "integrations", "cli"),
}
"""Packages that belong together; their order is checked against the contract."""

OPENING = """\
# Module map

Every package imports only from the packages before it, so the code that the guarantee depends on
never depends on code built on top of it. `make lint` enforces the order (pyproject.toml,
`[tool.importlinter]`). `python -m tools.module_map` generates this page from the actual imports.
[Design](design.md) lists which file answers which question.

![Which package imports which](pictures/module-map.svg)

A row shows what a package imports, a column which packages import it; a larger mark means more
imports. A mark right of the diagonal is an import from a later package. There is one, between two
packages that share a layer: a release saves itself, and reading a file returns a release.

Further contracts:
"""


@dataclass(frozen=True)
class ImportGraph:
    """The packages in order, from the bottom up, and the number of imports between them."""

    packages: tuple[str, ...]
    imports: Counter[tuple[str, str]]

    def of(self, package: str) -> list[str]:
        """Return the packages that a package imports, in order."""
        return [other for other in self.packages if (package, other) in self.imports]


def layers() -> list[set[str]]:
    """Return the layers of the contract, from the bottom up."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["id"] == "layers")
    return [set(re.findall(r"\w+", layer)) for layer in reversed(contract["layers"])]


def read_imports() -> ImportGraph:
    """Read the imports between the packages."""
    grimp_graph = grimp.build_graph("offaxis", cache_dir=None)
    modules: set[str] = set()
    imports: Counter[tuple[str, str]] = Counter()
    for module in grimp_graph.modules - {"offaxis"}:
        package = module.split(".")[1]
        modules.add(package)
        for other in grimp_graph.find_modules_directly_imported_by(module) - {"offaxis"}:
            target = other.split(".")[1]
            if target != package:
                imports[package, target] += 1
    packages = tuple(package for group in GROUPS.values() for package in group)
    place = {package: at for at, layer in enumerate(layers()) for package in layer}
    if sorted(packages, key=place.__getitem__) != list(packages) or set(packages) != modules:
        raise SystemExit(
            f"GROUPS in tools/module_map.py differs from the packages or layers: {sorted(modules)}"
        )
    return ImportGraph(packages, imports)


def purpose(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    home = ROOT / "src/offaxis" / package
    file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
    text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text)[0].rstrip(".")


def page(graph: ImportGraph) -> str:
    """Return the page as Markdown."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rules = [f"- {one['name']}." for one in settings["contracts"] if one["id"] != "layers"]
    lines = [OPENING, *rules]
    for group, packages in GROUPS.items():
        lines += ["", f"## {group}", "", "| package | purpose | imports |", "|---|---|---|"]
        lines += [
            f"| `{package}` | {purpose(package)} | {', '.join(graph.of(package)) or 'nothing'} |"
            for package in packages
        ]
    return "\n".join(lines) + "\n"


def generate() -> dict[Path, str]:
    """Return the content of both files, by path."""
    graph = read_imports()
    return {PAGE: page(graph), PICTURE: picture(GROUPS, graph.imports)}


if __name__ == "__main__":
    for path, content in generate().items():
        path.write_text(content)
        print(path.relative_to(ROOT))
