"""Release files as an attacker writes them: any content, with a matching hash.

Written from docs/release-format.md and not from the code, so that a file that is taken apart and
put together here tests one against the other.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any


@dataclass
class Draft:
    """A release file in parts, each of which can be changed."""

    manifest: Any
    tensors: dict[str, Any]
    data: bytes


def take_apart(blob: bytes) -> Draft | None:
    """Return the parts of a file, or None if it is too damaged."""
    try:
        (size,) = struct.unpack_from("<Q", blob)
        tensors = json.loads(blob[8 : 8 + size])
        manifest = json.loads(tensors.pop("__metadata__")["offaxis"].partition("\n")[2])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return None
    return Draft(manifest, tensors, blob[8 + size :])


def canonical(manifest: Any) -> str:
    """Return the canonical text of a manifest."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"))


def put_together(draft: Draft, text: str | None = None, *, digest: str | None = None) -> bytes:
    """Write a file; by default with the canonical text and the matching hash."""
    text = canonical(draft.manifest) if text is None else text
    if digest is None:
        digest = content_hash(text, draft)
    header = {"__metadata__": {"offaxis": f"{digest}\n{text}"}, **draft.tensors}
    return with_header(json.dumps(header), draft.data)


def contents(draft: Draft) -> dict[str, tuple[list[int], bytes]]:
    """Return the shape and the bytes of every tensor."""
    return {
        name: (entry["shape"], draft.data[slice(*entry["data_offsets"])])
        for name, entry in draft.tensors.items()
    }


def fill(draft: Draft, tensors: dict[str, tuple[list[int], bytes]]) -> None:
    """Replace the tensors of a draft, one after the other, as a writer does."""
    draft.tensors, draft.data = {}, b""
    for name, (shape, content) in tensors.items():
        offsets = [len(draft.data), len(draft.data) + len(content)]
        draft.tensors[name] = {"dtype": "F64", "shape": shape, "data_offsets": offsets}
        draft.data += content


def with_header(header: str | bytes, data: bytes = b"") -> bytes:
    """Write a file with any header."""
    head = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(head)) + head + data


def content_hash(text: str, draft: Draft) -> str:
    """Return the hash of a draft; a tensor without valid offsets counts as empty."""
    digest = hashlib.sha256(b"offaxis-release-1\n")
    parts = [("manifest", text.encode("utf-8", "surrogatepass"))]
    for name, entry in sorted(draft.tensors.items()):
        try:
            begin, end = entry["data_offsets"]
            parts.append((f"{name}:{tuple(entry['shape'])}", draft.data[begin:end]))
        except (ValueError, KeyError, TypeError):
            parts.append((name, b""))
    for name, content in parts:
        digest.update(f"{name}:{len(content)}\n".encode("utf-8", "surrogatepass") + content)
    return digest.hexdigest()
