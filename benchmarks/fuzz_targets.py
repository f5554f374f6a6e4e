"""The targets of benchmarks/fuzz.py, and the sources of their hostile inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import forgery, mutation, oracle, seeds

Target = Callable[[bytes], str]
Fresh = Callable[[Random], bytes]


def targets(folder: Path) -> dict[str, tuple[Target, Fresh, Sequence[bytes]]]:
    """Return, by name, the target, a generator of hostile inputs, and valid seed inputs.

    The first byte of every input but a release file selects the release it is for.
    """
    releases, files, reports = seeds.releases(), seeds.files(), seeds.reports()

    def chosen(blob: bytes) -> tuple[Any, bytes]:
        return releases[blob[0] % len(releases)] if blob else releases[0], blob[1:]

    def release_file(blob: bytes) -> str:
        return oracle.load_file(folder / "release", blob)

    def number(blob: bytes) -> str:
        """Use a text as a parameter, or both as a parameter and in the stated guarantee."""
        selector = blob[0] if blob else 0
        draft = forgery.take_apart(files[selector % len(files)])
        assert draft is not None
        text = blob[1:].decode("utf-8", "surrogateescape" if selector % 2 else "replace")
        parameters = draft.manifest["randomizer"]["parameters"]
        name = "delta" if "delta" in parameters and selector >= 128 else "epsilon"
        parameters[name] = text
        if selector % 3 == 0:
            draft.manifest["guarantee"][name] = text
        return oracle.load(forgery.put_together(draft))

    def fresh_release(rng: Random) -> bytes:
        return mutation.mutant(rng.choice(files), rng)

    def fresh_number(rng: Random) -> bytes:
        text = mutation.near(rng.choice(mutation.TEXTS), rng)
        return rng.randbytes(1) + text.encode("utf-8", "surrogatepass")

    def report(blob: bytes) -> str:
        """Decode pieces unchanged, or each after a valid header."""
        release, content = chosen(blob)
        if blob and blob[0] >= 128:
            size = release.randomizer.payload_size
            return oracle.decode(release, [oracle.framed(release, p) for p in cut(content, size)])
        return oracle.decode(release, cut(content, release.report_size))

    def payload(blob: bytes) -> str:
        release, content = chosen(blob)
        size = release.randomizer.payload_size + (blob[0] % 32 == 31 if blob else 0)
        return oracle.read_payloads(release, cut(content, size))

    def report_file(blob: bytes) -> str:
        release, content = chosen(blob)
        return oracle.decode_file(release, folder / "reports", content)

    def fresh_reports(rng: Random) -> bytes:
        index = rng.randrange(len(releases))
        parts = [*rng.choices(reports[index], k=rng.randrange(3))]
        parts.append(mutation.hostile_report(rng.choice(reports[index]), rng))
        return bytes([index]) + b"".join(parts)

    def fresh_payload(rng: Random) -> bytes:
        index = rng.randrange(len(releases))
        return bytes([index]) + mutation.hostile_report(rng.choice(reports[index]), rng)[12:]

    whole = [bytes([i]) + b"".join(parts) for i, parts in enumerate(reports)]
    texts = [
        bytes([i]) + text for i in range(0, 256, 5) for text in (b"1/3", b"1e-9", b"3", b"0.1")
    ]
    return {
        "release": (oracle.load, fresh_release, files),
        "release file": (release_file, fresh_release, files),
        "number": (number, fresh_number, texts),
        "report": (report, fresh_reports, whole),
        "payload": (payload, fresh_payload, [w[:1] + w[13:] for w in whole]),
        "report file": (report_file, fresh_reports, whole),
    }


def cut(content: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces, the last of which may be short."""
    return [content[i : i + size] for i in range(0, len(content), size)]
