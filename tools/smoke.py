"""Use an installed offaxis as a stranger would: by Python and by its command, in an empty folder.

Run by the interpreter under test, isolated from the repository: ``python -I tools/smoke.py``. It
needs the core dependencies alone. Every module is imported; the ones that cannot be must lack an
optional package, never a part of offaxis.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

import numpy as np

OPTIONAL = {
    *("torch", "jax", "sklearn", "pandas", "pyarrow", "pyspark", "dp_accounting", "matplotlib"),
    *("jinja2", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "prometheus_client"),
    *("onnx", "onnxruntime", "transformers", "mlflow", "flwr", "opendp", "psutil"),
}
"""Packages that extras bring."""

DATA = (
    "py.typed",
    "collector/migrations/env.py",
    "collector/pages/client/package.json",
    "collector/pages/dashboard",
)
"""What is no module, and easily forgotten."""


def check(holds: bool, what: str) -> None:
    """End with ``what`` if it does not hold."""
    if not holds:
        sys.exit(f"smoke: {what}")


def every_module() -> int:
    """Import all modules; return how many need an extra."""
    import offaxis
    from offaxis.errors import MissingExtra

    waiting = 0
    for found in pkgutil.walk_packages(offaxis.__path__, "offaxis.", onerror=lambda _: None):
        if found.name.endswith(".__main__") or ".migrations." in found.name:
            continue
        try:
            importlib.import_module(found.name)
        except MissingExtra:
            waiting += 1
        except ModuleNotFoundError as error:
            lacks = str(error.name).split(".")[0]
            check(lacks in OPTIONAL, f"{found.name} cannot be imported: {error}")
            waiting += 1
    return waiting


RARELY = 1e-6
"""How often the audit may accuse a sound release by chance."""


def by_python(folder: Path) -> None:
    """Fit, save, load, privatize, decode and audit a tiny release."""
    import offaxis
    from offaxis.audit import audit
    from offaxis.geometry import Layers

    rng = np.random.default_rng(0)
    public = rng.standard_normal((200, 4))
    model = Layers([rng.standard_normal((2, 4))], [np.zeros(2)])
    offaxis.fit(model, public, epsilon=3).save(folder / "python.release")
    release = offaxis.load(folder / "python.release")
    decoded = release.decode(release.privatize(public[:20]))
    check(decoded.shape == (20, 4) and bool(np.isfinite(decoded).all()), "decoding is broken")
    check(str(release.guarantee.epsilon) == "3", f"the guarantee is {release.guarantee}")
    found = audit(release, reports=2000, false_alarm=RARELY)
    check(not found.violated, "the audit accuses a sound release")
    np.save(folder / "public.npy", public)
    model.save(folder / "head.safetensors")


def by_command(folder: Path) -> None:
    """Do the same with the installed command."""
    command = Path(sysconfig.get_path("scripts")) / "offaxis"

    def run(words: str) -> str:
        line = [str(command), *words.split()]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        check(done.returncode == 0, f"`offaxis {words}` gave {done.returncode}: {done.stderr}")
        return done.stdout

    version = distribution("offaxis").version
    check(run("--version") == f"offaxis {version}\n", "the command has another version")
    run("fit --model head.safetensors --public public.npy --epsilon 3 --out my.release")
    run("privatize my.release --vectors public.npy --out my.reports")
    run("decode my.release --reports my.reports --out decoded.npy")
    check(np.load(folder / "decoded.npy").shape == (200, 4), "decoding by command is broken")
    card = json.loads(run("inspect my.release --json"))
    check(card["guarantee"]["epsilon"] == "3", f"the card says {card['guarantee']}")
    run(f"audit my.release --reports 2000 --false-alarm {RARELY}")


def main() -> None:
    """Check it all; say so in one line."""
    import offaxis

    home = Path(offaxis.__file__).parent
    check("site-packages" in home.parts, f"this is not an installed offaxis: {home}")
    for name in DATA:
        check(files("offaxis").joinpath(name).is_file() or (home / name).is_dir(), f"no {name}")
    with tempfile.TemporaryDirectory() as folder:
        by_python(Path(folder))
        by_command(Path(folder))
    waiting = every_module()
    print(f"offaxis {offaxis.__version__} works; {waiting} modules wait for an extra")


if __name__ == "__main__":
    main()
