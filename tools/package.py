"""Build sdist and wheel, compare them with the repository, and test both in new environments.

``python -m tools.package [DIST]`` (``make package``) fails if

- the wheel built from the sdist and the one built from the repository differ in any file;
- the wheel lacks a file that git tracks under src/offaxis, or has one that git ignores;
- the sdist lacks a tracked file that is needed to build or test the package;
- the metadata is not valid, or has the wrong extras, licence files or Python versions;
- ``tools/smoke.py`` fails in an environment with only the wheel, or only the sdist;
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

from tools.environments import create_environment
from tools.ports import free_port
from tools.resolving import PYTHONS, ROOT

PAGES = ("/readyz", "/dashboard", "/browser/client/index.js")
IN_SDIST = (
    *("src", "tests", "docs", "deploy", "experiments", "benchmarks", "examples", "tools"),
    "requirements",
)


def tracked(*folders: str) -> set[str]:
    """Return the files in the folders that git tracks or could track: all that are not ignored."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def build(out: Path, *options: str, isolated: bool = True) -> Path:
    """Build an sdist and then a wheel, or with ``--wheel`` only a wheel; return the wheel."""
    isolation = () if isolated else ("--no-isolation",)
    command = [sys.executable, "-m", "build", *options, *isolation]
    command += ["--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return max(out.iterdir(), key=lambda file: (file.suffix == ".whl", file.stat().st_mtime))


def contents(wheel: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/")
        }


def metadata(wheel: Path) -> Metadata:
    """Return the metadata of a wheel, validated by the rules of the package index."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def faults_of_wheel(wheel: Path) -> list[str]:
    """Return the faults in the files and metadata of a wheel."""
    faults = []
    packed = {name for name in contents(wheel) if name.startswith("offaxis/")}
    expected = {name.removeprefix("src/") for name in tracked("src/offaxis")}
    faults += [f"the wheel lacks {name}" for name in sorted(expected - packed)]
    faults += [f"the wheel has {name}, which git ignores" for name in sorted(packed - expected)]
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
        faults.append(f"requires Python {about.requires_python}")
    versions = {f"Programming Language :: Python :: {version}" for version in PYTHONS}
    faults += [f"no classifier {name}" for name in sorted(versions - set(about.classifiers or ()))]
    return faults


def faults_of_sdist(sdist: Path) -> list[str]:
    """Return the tracked files that an sdist lacks."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    top_level = {name for name in tracked() if "/" not in name and not name.startswith(".")}
    expected = tracked(*IN_SDIST) | top_level
    return [f"the sdist lacks {name}" for name in sorted(expected - packed)]


def install(package: Path, home: Path, *, extras: str = "") -> Path:
    """Install a package into a new environment, and return its interpreter."""
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    return create_environment(home, *constraints, f"{package}{extras}")


def smoke(python: Path) -> str:
    """Run tools/smoke.py with an environment's interpreter; return its output."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-I", str(ROOT / "tools/smoke.py")]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout.strip()


def check_collector(python: Path) -> None:
    """Start the collector of an environment and request its pages."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python.parent / "offaxis"), "serve", "--port", str(port)]
        log = Path(folder) / "log"
        with log.open("w") as file:
            server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=file)
        try:
            _wait_until_listening(server, log)
            for page in PAGES:
                _request(f"http://127.0.0.1:{port}{page}")
        finally:
            server.terminate()
            server.wait(30)


def _wait_until_listening(
    collector: subprocess.Popen[bytes], log: Path, patience: float = 60.0
) -> None:
    """Wait for the log line of the server: another process could be listening on the port."""
    end = time.monotonic() + patience
    while "Uvicorn running" not in log.read_text():
        if (code := collector.poll()) is not None:
            sys.exit(f"the collector ended with code {code}\n{log.read_text()[-2000:]}")
        if time.monotonic() > end:
            sys.exit(f"the collector has not started\n{log.read_text()[-2000:]}")
        time.sleep(0.2)


def _request(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return
    except urllib.error.HTTPError as error:
        sys.exit(f"{url} responds with {error.code}")
    except OSError as error:
        sys.exit(f"{url} does not respond: {error}")


def main(out: Path) -> None:
    """Build, check and test sdist and wheel."""
    out.mkdir(exist_ok=True)
    if existing := list(out.iterdir()):
        sys.exit(f"{out} is not empty ({existing[0].name}, …); run make clean")
    wheel = build(out)
    sdist = next(out.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory() as folder:
        direct = build(Path(folder), "--wheel")
        faults = faults_of_wheel(wheel) + faults_of_sdist(sdist)
        if contents(direct) != contents(wheel):
            faults.append("the wheel from the sdist differs from the wheel from the repository")
        if faults:
            sys.exit("\n".join(faults))
        for package in (wheel, sdist):
            python = install(package, Path(folder) / f"with{package.suffix}")
            print(f"{package.name}: {smoke(python)}")
        check_collector(install(wheel, Path(folder) / "collector", extras="[collector]"))
        print(f"{wheel.name}: the collector starts, migrates its database and serves its pages")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
