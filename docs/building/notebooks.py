"""Notebooks as pages: run from top to bottom, then written as Markdown with what they printed."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

_RUN: dict[bytes, tuple[str, dict[str, bytes]]] = {}
"""What has been run, by content: a server that builds again need not run it again."""


def execute(path: Path) -> Any:
    """Run a notebook in its own kernel and return it; a cell that fails ends it with its error."""
    notebook = nbformat.read(path, as_version=4)
    settings = {"resources": {"metadata": {"path": str(path.parent)}}, "timeout": 300}
    with tempfile.TemporaryDirectory() as folder:
        # Through sockets in a folder of our own, not over TCP, where others could listen.
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        return NotebookClient(notebook, config=sockets, **settings).execute()


def as_markdown(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a page, and its pictures by name, of a notebook that has been run."""
    content = path.read_bytes()
    if content not in _RUN:
        _RUN[content] = _written(execute(path), path)
    return _RUN[content]


def _written(notebook: Any, path: Path) -> tuple[str, dict[str, bytes]]:
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
                parts.append(f"![What the cell above draws]({name}){{ .card }}")
            else:
                printed += output.get("text") or output.get("data", {}).get("text/plain", "")
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    note = f"*A notebook, run when this site was built. [Download it]({path.name}).*"
    parts.insert(1, note)
    return "\n\n".join(parts) + "\n", pictures
