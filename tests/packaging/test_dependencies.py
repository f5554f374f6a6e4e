"""No package comes in unseen, and what is locked is what is asked for."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import dependencies
from tools.dependencies import FOLDER, LOCKED, ROOT, closure, licence, locked, reviewed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_core_installs_exactly_what_was_reviewed() -> None:
    assert closure("offaxis") - {"colorama"} == set(reviewed()["core"])


def test_a_collector_installs_exactly_what_was_reviewed() -> None:
    known = reviewed()
    more = closure("offaxis", "collector") - set(known["core"]) - set(known["windows"])
    assert more == set(known["collector"])


def test_licences_are_allowed_and_as_reviewed() -> None:
    known, allowed = reviewed(), dependencies.allowed()
    for name, told in (known["core"] | known["collector"]).items():
        assert licence(name) == told, name
        assert set(re.split(r" AND | OR ", told)) <= allowed, name


@pytest.mark.parametrize(("file", "extra"), [("collector.txt", "collector"), ("build.txt", None)])
def test_locks_hold_what_is_asked_for_by_hashes(file: str, extra: str | None) -> None:
    text = (FOLDER / file).read_text()
    asked = (
        [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
        if extra
        else tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    )
    versions = LOCKED.findall(text)
    for need in map(Requirement, asked):
        fitting = [found for name, found in versions if name == canonicalize_name(need.name)]
        assert fitting, f"{need} is not locked: make lock"
        assert all(need.specifier.contains(found) for found in fitting), f"{need}: make lock"
    # Nothing is taken on trust: each version stands before hashes.
    for block in re.split(r"\n(?=\S)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_the_collectors_lock_holds_nothing_unreviewed() -> None:
    assert locked("collector.txt") == set().union(*reviewed().values())


def test_pyspark_is_asked_for_as_stated() -> None:
    """tools/resolving.py states what pyspark asks for, because nobody wants its source."""
    from tools.resolving import _STATED

    stated = Requirement(tomllib.loads(_STATED)["dependency-metadata"][0]["requires-dist"][0])
    real = [Requirement(line) for line in distribution("pyspark").requires or ()]
    (py4j,) = [need for need in real if need.marker is None]
    assert py4j.name == stated.name
    assert stated.specifier.contains(distribution("py4j").version)


def test_a_changed_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "tiny-1.dist-info"
    home.mkdir()
    (tmp_path / "tiny.py").write_text("")
    empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (home / "RECORD").write_text(f"tiny.py,sha256={empty},0\ntiny-1.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert dependencies.altered(["tiny"]) == []
    (tmp_path / "tiny.py").write_text("import os")
    assert dependencies.altered(["tiny"]) == ["tiny: tiny.py"]
    (tmp_path / "tiny.py").unlink()
    assert dependencies.altered(["tiny"]) == ["tiny: tiny.py"]
