"""Print the sizes of the source files, and the files a report crosses: ``python -m tools.layout``.

A reader should find a concept in one file and follow a report through few files.
``tests/packaging/test_layout.py`` enforces the limits.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np

import offaxis
from offaxis.formats.release_file import from_bytes, to_bytes

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/offaxis"

LONGEST_FILE = 600
"""Maximum number of lines of a file."""

SMALL_FILE = 60
"""A file with fewer lines of code needs more than one importer."""

LONGEST_PATHS = {"laplace": 8, "privunit2": 10}
"""Maximum number of files that ``privatize`` crosses, by mechanism."""


@dataclass(frozen=True)
class SourceFile:
    """One file of the package: its lines, and the modules of the package that it imports."""

    path: Path
    module: str
    lines: int
    code: int
    import_lines: int
    imports: frozenset[str]


def source_files(source: Path = SOURCE) -> list[SourceFile]:
    """Return every Python file of the package, by path."""
    paths = sorted(source.rglob("*.py"))
    names = {_module(path, source): path for path in paths}
    return [_read(path, module, names) for module, path in names.items()]


def small_with_one_importer(files: list[SourceFile]) -> list[SourceFile]:
    """Return the small files that only one other file imports."""
    importers = defaultdict(set)
    for file in files:
        for name in file.imports:
            importers[name].add(file.module)
    return [
        file
        for file in files
        if file.code < SMALL_FILE
        and file.path.name not in {"__init__.py", "__main__.py"}
        and len(importers[file.module]) == 1
    ]


def report_path(mechanism: str) -> list[str]:
    """Return the files whose code runs between ``privatize`` and the report's bytes, in order.

    The release was fitted, saved and loaded, as on a device; a first report has been made, so
    what is computed once per release is not counted.
    """
    rng = np.random.default_rng(0)
    model, public = rng.normal(size=(3, 8)), rng.normal(size=(200, 8))
    fitted = offaxis.fit(model, public, epsilon=2.0, mechanism=mechanism)
    release = from_bytes(to_bytes(fitted))
    release.privatize(public[0])
    return files_crossed(lambda: release.privatize(public[0]))


def files_crossed(action: Callable[[], object]) -> list[str]:
    """Return the files of the package whose functions run during an action, in order of entry."""
    crossed: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            crossed.setdefault(str(path.relative_to(SOURCE)))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(crossed)


def main() -> None:
    """Print the figures."""
    files = source_files()
    lines, code = sum(file.lines for file in files), sum(file.code for file in files)
    import_lines = sum(file.import_lines for file in files)
    print(f"files                        {len(files):>7,}")
    print(f"lines                        {lines:>7,}")
    print(f"lines of code                {code:>7,}   {code / len(files):.0f} per file")
    print(f"lines of imports             {import_lines:>7,}   {import_lines / lines:.1%} of lines")
    print(
        f"files over {LONGEST_FILE} lines         {sum(f.lines > LONGEST_FILE for f in files):>7,}"
    )
    print(f"small files, one importer    {len(small_with_one_importer(files)):>7,}")
    for mechanism in LONGEST_PATHS:
        path = report_path(mechanism)
        print(f"files that a {mechanism} report crosses: {len(path)}")
        for name in path:
            print(f"    {name}")


def _read(path: Path, module: str, names: dict[str, Path]) -> SourceFile:
    text = path.read_text()
    tree = ast.parse(text)
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    return SourceFile(
        path=path,
        module=module,
        lines=len(text.splitlines()),
        code=len(_code_lines(text, tree)),
        import_lines=sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in statements),
        imports=frozenset(name for n in statements for name in _imported(n) if name in names),
    )


def _code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code: no blank line, comment or docstring."""
    ignored = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _imported(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif statement.module is not None:
        yield statement.module
        yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _module(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    main()
