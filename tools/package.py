"""Build sdist and wheel, compare them with the repository, and use both in empty environments.

``python -m tools.package [DIST]`` (``make package``) ends with an error if

- the wheel from the sdist and the wheel from the repository differ in any file;
- the wheel lacks a file that git knows under src/offaxis, or has one that git ignores;
- the sdist lacks anything that git knows and a builder or tester needs;
- the metadata is not valid, or has an extra, a licence file or a Python version that it should not;
- ``tools/smoke.py`` fails in an environment that holds the wheel, or the sdist, and nothing else;
- a collector from the wheel does not start, migrate its database and serve its pages.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

from tools.environments import environment
from tools.ports import free_port
from tools.resolving import PYTHONS, ROOT

PAGES = ("/readyz", "/dashboard", "/browser/client/index.js")
IN_SDIST = ("src", "tests", "docs", "deploy", "benchmarks", "examples", "tools", "requirements")


def tracked(*folders: str) -> set[str]:
    """Return the files of the folders that git tracks, or would: all that it does not ignore."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def build(out: Path, *what: str, isolated: bool = True) -> Path:
    """Build ``--wheel``, ``--sdist`` or both in turn; return the newest file."""
    more = () if isolated else ("--no-isolation",)
    command = [sys.executable, "-m", "build", *what, *more, "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return max(out.iterdir(), key=lambda file: (file.suffix == ".whl", file.stat().st_mtime))


def contents(wheel: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/")
        }


def metadata(wheel: Path) -> Metadata:
    """Return the wheel's metadata, checked by the rules of the package index."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def faults_of_wheel(wheel: Path) -> list[str]:
    """Say what is wrong with a wheel's files and metadata, if anything."""
    faults = []
    found = {name for name in contents(wheel) if name.startswith("offaxis/")}
    wanted = {name.removeprefix("src/") for name in tracked("src/offaxis")}
    faults += [f"the wheel lacks {name}" for name in sorted(wanted - found)]
    faults += [f"the wheel has {name}, which git ignores" for name in sorted(found - wanted)]
    about = metadata(wheel)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    if set(about.provides_extra or ()) != extras:
        faults.append(f"extras are {about.provides_extra}, not {sorted(extras)}")
    if about.license_expression != "Apache-2.0" or set(about.license_files or ()) != {
        "LICENSE",
        "NOTICE",
    }:
        faults.append(f"licence: {about.license_expression}, files {about.license_files}")
    if str(about.requires_python) != ">=3.11":
        faults.append(f"it takes Python {about.requires_python}")
    named = {f"Programming Language :: Python :: {version}" for version in PYTHONS}
    faults += [f"no classifier {name}" for name in sorted(named - set(about.classifiers or ()))]
    return faults


def faults_of_sdist(sdist: Path) -> list[str]:
    """Say which tracked file an sdist lacks."""
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    top = {name for name in tracked() if "/" not in name and not name.startswith(".")}
    return [f"the sdist lacks {name}" for name in sorted((tracked(*IN_SDIST) | top) - found)]


def install(package: Path, home: Path, *, extras: str = "") -> Path:
    """Install a package into an empty environment, and return its interpreter."""
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    return environment(home, *constraints, f"{package}{extras}")


def smoke(python: Path) -> str:
    """Run tools/smoke.py by an environment's interpreter; return its one line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-I", str(ROOT / "tools/smoke.py")]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout.strip()


def collects(python: Path) -> None:
    """Start a collector from an environment and ask for its pages."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python.parent / "offaxis"), "serve", "--port", str(port)]
        log = Path(folder) / "log"
        with log.open("w") as file:
            running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=file)
        try:
            _wait_for(running, log)
            for page in PAGES:
                _ask(f"http://127.0.0.1:{port}{page}")
        finally:
            running.terminate()
            running.wait(30)


def _wait_for(collector: subprocess.Popen[bytes], log: Path, patience: float = 60.0) -> None:
    """Wait until it says that it listens: who answers on a port may be another."""
    end = time.monotonic() + patience
    while "Uvicorn running" not in log.read_text():
        if (code := collector.poll()) is not None:
            sys.exit(f"the collector ended with code {code}\n{log.read_text()[-2000:]}")
        if time.monotonic() > end:
            sys.exit(f"the collector has not started\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


def _ask(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return
    except urllib.error.HTTPError as error:
        sys.exit(f"{url} answers {error.code}")
    except OSError as error:
        sys.exit(f"{url} does not answer: {error}")


def main(out: Path) -> None:
    """Do it all and say what was done."""
    out.mkdir(exist_ok=True)
    if old := list(out.iterdir()):
        sys.exit(f"{out} is not empty ({old[0].name}, …); run make clean")
    wheel = build(out)
    sdist = next(out.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory() as folder:
        direct = build(Path(folder), "--wheel")
        faults = faults_of_wheel(wheel) + faults_of_sdist(sdist)
        if contents(direct) != contents(wheel):
            faults.append("the wheel from the sdist is not the wheel from the repository")
        if faults:
            sys.exit("\n".join(faults))
        for package in (wheel, sdist):
            python = install(package, Path(folder) / f"with{package.suffix}")
            print(f"{package.name}: {smoke(python)}")
        collects(install(wheel, Path(folder) / "collector", extras="[collector]"))
        print(f"{wheel.name}: its collector starts, migrates and serves its pages")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
