"""Releases whose reports are made by the JavaScript client, usable wherever a release is."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offaxis
from offaxis.auditing import AuditResult
from offaxis.decoding import CodewordDecoder, ShiftDecoder
from offaxis.decoding.pairs import CellsDecoder
from offaxis.encoding import ArgmaxEncoder, Classes, ShiftEncoder
from offaxis.encoding.pairs import pair_encoder, table_of
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import to_bytes
from offaxis.privacy.guarantee import Unit
from offaxis.randomizers import KaryResponse, Laplace, PrivUnit2, Randomizer, SubsetSelection
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array
from tests.fuzz import seeds

CLIENT = Path(offaxis.__file__).parent / "collector" / "pages" / "client"
_MAKER = Path(__file__).parent / "node" / "maker.mjs"
_PROCESSES = 2
"""An audit draws reports of two vectors concurrently."""


class Maker:
    """Makes reports in processes of Node."""

    def __init__(self, node: str, client: Path, file: Path) -> None:
        command = [node, str(_MAKER), str(client / "index.js"), str(file)]
        self._running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(_PROCESSES)
        ]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._running:
            self._idle.put(process)

    def reports(self, rows: Vectors) -> bytes:
        """Return the reports of all rows, or b"" if one was rejected."""
        process = self._idle.get()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(struct.pack("<II", *rows.shape) + rows.astype("<f8").tobytes())
            process.stdin.flush()
            head = process.stdout.read(4)
            assert len(head) == 4, "the client ended"
            return process.stdout.read(*struct.unpack("<I", head))
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the processes."""
        for process in self._running:
            process.communicate(timeout=60)


@dataclass(frozen=True, eq=False)
class InJavaScript(Release):
    """A release whose reports are made in JavaScript; it reads and decodes in Python."""

    maker: Any = None

    def privatize(self, vectors: Any) -> bytes | list[bytes]:
        """Pass the vectors to the client unchecked; the client must reject invalid ones."""
        array = as_array(vectors, "vectors")
        rows = np.atleast_2d(array).astype(np.float64)
        made = self.maker.reports(rows) if rows.size else b""
        if not made:
            raise InvalidInput("the client rejected these vectors")
        reports = [made[i : i + self.report_size] for i in range(0, len(made), self.report_size)]
        return reports[0] if array.ndim == 1 else reports


@contextmanager
def in_javascript(release: Release, node: str, client: Path = CLIENT) -> Iterator[Release]:
    """Yield a release whose reports come from a folder with the client or a broken control."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a.release"
        file.write_bytes(to_bytes(release))
        maker = Maker(node, client, file)
        parts = (release.encoder, release.randomizer, release.decoder, release.provenance)
        try:
            yield InJavaScript(*parts, asked=release.asked, maker=maker)
        finally:
            maker.close()


def release_of(randomizer: Randomizer) -> Release:
    """Return a release of a randomizer: vectors unchanged, or the symbol of the largest entry."""
    origin = seeds.releases()[0].provenance
    unit: Unit = "user" if isinstance(randomizer, Memoised) and randomizer.draws else "item"
    if isinstance(randomizer, KaryResponse | SubsetSelection):
        k = randomizer.size
        encoder = ArgmaxEncoder(np.eye(k), np.zeros(k), np.zeros(k))
        decoder = CodewordDecoder(np.eye(k), np.full(k, 1 / k))
        return Release(encoder, randomizer, decoder, origin, unit=unit)
    zeros = np.zeros(randomizer.domain.dim)
    return Release(ShiftEncoder(zeros), randomizer, ShiftDecoder(zeros), origin, unit=unit)


BROKEN = {
    "laplace": ("laplace.js", "Laplace(this.log2Scale,", "Laplace(this.log2Scale - 1,"),
    "privunit2": ("privunit.js", "near, this.epsilon)", "near, this.epsilon.times(ODDS))"),
    "response": ("response.js", "1, this.epsilon)", "1, this.epsilon.times(ODDS))"),
    "subset": ("subset.js", "chosen, this.epsilon)", "chosen, this.epsilon.times(ODDS))"),
}
"""By kind: a module of the client and a fault in it. Half the noise, or odds of e^{3ε/2}."""

_ODDS = 'import { Fraction } from "./fraction.js";\nconst ODDS = new Fraction(3n, 2n);\n'


def broken_client(folder: Path, kind: str) -> Path:
    """Copy the client into a folder, with one fault."""
    shutil.copytree(CLIENT, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    name, correct, broken = BROKEN[kind]
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(correct) == 1, "the client has changed; adapt BROKEN"
    head = _ODDS if "ODDS" in broken else ""
    (folder / name).write_text(head + text.replace(correct, broken), encoding="utf-8")
    return folder


def cells_by_answers(epsilon: Fraction) -> Release:
    """Return a release of pairs: two cells by two answers or none, as sets of the six symbols."""
    asked = (Classes(["no", "yes"], optional=True),)
    encoder = pair_encoder("cells", "relu")([np.eye(2)], [np.zeros(2)], table_of(asked))
    decoder = CellsDecoder(np.full(2, 1 / 2), np.array([3.0]))
    origin = seeds.releases()[0].provenance
    return Release(encoder, SubsetSelection(6, epsilon), decoder, origin, asked=asked)


def audited(epsilon: Fraction) -> dict[str, Release]:
    """Return small releases to audit, by kind; their worst pair attains the guarantee."""
    return {
        "response": release_of(KaryResponse(4, epsilon)),
        "laplace": release_of(Laplace(2, 1.0, epsilon)),
        "privunit2": release_of(PrivUnit2(2, 1.0, epsilon)),
        "subset": cells_by_answers(epsilon),
    }


def largest_epsilon(result: AuditResult) -> float:
    """Return the largest bound on ε from whole reports; two tests draw from the randomizer."""
    partial = ("reduced", "coarse-lattice")
    bounds = [f.epsilon for f in result.findings if f.test not in partial]
    return max(bound for bound in bounds if bound is not None)
