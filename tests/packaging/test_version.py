"""The version is stated in one place, and importing the package stays light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version

import offaxis
from tools.module_map import ROOT

HEAVY = {"numpy", "scipy", "pydantic", "cryptography", "torch", "sklearn", "pandas", "pyarrow"}


def test_the_version_is_the_same_everywhere() -> None:
    assert version("offaxis") == offaxis.__version__
    package = json.loads((ROOT / "src/offaxis/collector/pages/client/package.json").read_text())
    assert package["version"] == offaxis.__version__
    released = re.findall(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0][0] == offaxis.__version__
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", released[0][1])


def test_no_other_file_states_the_version() -> None:
    stated = re.compile(rf"""(?<![\d.=]){re.escape(offaxis.__version__)}(?![\d.])""")
    allowed = {
        ROOT / "src/offaxis/version.py",
        ROOT / "src/offaxis/collector/pages/client/package.json",
    }
    files = [ROOT / "pyproject.toml", ROOT / "mkdocs.yml", ROOT / "README.md", ROOT / "Makefile"]
    files += (ROOT / "src/offaxis").rglob("*.py")
    files += (ROOT / "src/offaxis/collector/pages").rglob("*.js")
    assert [
        str(file) for file in files if file not in allowed and stated.search(file.read_text())
    ] == []


def test_importing_offaxis_imports_nothing_heavy() -> None:
    code = "import sys, offaxis; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "offaxis" in loaded
    assert not HEAVY & loaded
    # The public names are still listed.
    assert {"fit", "load", "recommend"} <= set(dir(offaxis))
