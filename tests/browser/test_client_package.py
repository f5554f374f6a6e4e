"""The JavaScript client as a package: complete, and with one source of randomness."""

from __future__ import annotations

import json
import re
from pathlib import Path

import offaxis

PACKAGE = Path(offaxis.__file__).parent / "collector" / "pages" / "client"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.js"))


def test_the_package_is_complete():
    package = json.loads((PACKAGE / "package.json").read_text())
    assert (package["name"], package["license"]) == ("offaxis", "Apache-2.0")
    assert package["version"] == offaxis.__version__
    assert not {"dependencies", "devDependencies", "peerDependencies", "scripts"} & set(package)
    for file in modules():
        imported = re.findall(r"from \"([^\"]+)\"|import\(", file.read_text())
        paths = [file.parent / name for name in imported]
        assert all(path.suffix == ".js" and path.exists() for path in paths), file
    packed = {file for pattern in package["files"] for file in PACKAGE.glob(pattern)}
    assert set(modules()) <= packed
    public = (PACKAGE / "index.js").read_text()
    names = set(re.findall(r"\b[A-Za-z]\w+", re.sub(r"/\*.*?\*/|from \".*?\"|export", "", public)))
    typed = set(
        re.findall(r"^export (?:class|function) (\w+)", (PACKAGE / "index.d.ts").read_text(), re.M)
    )
    assert names == typed


def test_only_one_module_uses_randomness():
    users = [f.name for f in modules() if "getRandomValues" in f.read_text()]
    assert users == ["entropy.js"]
    assert not [f for f in modules() if "Math.random" in f.read_text()]
