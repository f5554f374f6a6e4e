"""Notebooks as pages: execute each from top to bottom, and write it as Markdown with outputs."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

_PAGES: dict[bytes, tuple[str, dict[str, bytes]]] = {}
"""Finished pages by notebook content, so that a rebuild does not execute a notebook again."""


def execute(path: Path) -> Any:
    """Run a notebook in its own kernel and return it; a failing cell raises its error."""
    notebook = nbformat.read(path, as_version=4)
    settings = {"resources": {"metadata": {"path": str(path.parent)}}, "timeout": 300}
    with tempfile.TemporaryDirectory() as folder:
        # Use sockets in a private folder instead of TCP ports, which other users can reach.
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        return NotebookClient(notebook, config=sockets, **settings).execute()


def as_markdown(path: Path) -> tuple[str, dict[str, bytes]]:
    """Execute a notebook; return its page as Markdown, and its pictures by name."""
    content = path.read_bytes()
    if content not in _PAGES:
        _PAGES[content] = _page(execute(path), path)
    return _PAGES[content]


def _page(notebook: Any, path: Path) -> tuple[str, dict[str, bytes]]:
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = ""
        for output in cell.outputs:
            image = output.get("data", {}).get("image/png")
            if image is not None:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode(image)
                parts.append(f"![Figure drawn by the cell above]({name}){{ .card }}")
            else:
                printed += output.get("text") or output.get("data", {}).get("text/plain", "")
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    note = f"*This notebook was executed when the site was built. [Download it]({path.name}).*"
    parts.insert(1, note)
    return "\n\n".join(parts) + "\n", pictures
