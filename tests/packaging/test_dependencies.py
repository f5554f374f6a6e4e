"""Every dependency is reviewed, and the lock files match the requirements."""

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


def test_the_core_installs_exactly_the_reviewed_packages() -> None:
    assert closure("offaxis") - {"colorama"} == set(reviewed()["core"])


def test_a_collector_installs_exactly_the_reviewed_packages() -> None:
    packages = reviewed()
    added = closure("offaxis", "collector") - set(packages["core"]) - set(packages["windows"])
    assert added == set(packages["collector"])


def test_licences_are_allowed_and_as_reviewed() -> None:
    packages, allowed = reviewed(), dependencies.allowed()
    for name, expected in (packages["core"] | packages["collector"]).items():
        assert licence(name) == expected, name
        assert set(re.split(r" AND | OR ", expected)) <= allowed, name


@pytest.mark.parametrize(("file", "extra"), [("collector.txt", "collector"), ("build.txt", None)])
def test_lock_files_hold_the_requirements_with_hashes(file: str, extra: str | None) -> None:
    text = (FOLDER / file).read_text()
    required = (
        [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
        if extra
        else tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    )
    versions = LOCKED.findall(text)
    for requirement in map(Requirement, required):
        name = canonicalize_name(requirement.name)
        locked_versions = [version for package, version in versions if package == name]
        assert locked_versions, f"{requirement} is not locked: make lock"
        fits = map(requirement.specifier.contains, locked_versions)
        assert all(fits), f"{requirement}: make lock"
    # Every version has at least one hash.
    for block in re.split(r"\n(?=\S)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_the_lock_file_of_the_collector_holds_only_reviewed_packages() -> None:
    assert locked("collector.txt") == set().union(*reviewed().values())


def test_the_stated_requirements_of_pyspark_are_true() -> None:
    """tools/resolving.py states them, because pyspark has no wheel with metadata."""
    from tools.resolving import _STATED

    stated = Requirement(tomllib.loads(_STATED)["dependency-metadata"][0]["requires-dist"][0])
    required = [Requirement(line) for line in distribution("pyspark").requires or ()]
    (py4j,) = [requirement for requirement in required if requirement.marker is None]
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
