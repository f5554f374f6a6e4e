"""Test an installed offaxis as a new user would use it: from Python and from the command line.

Run it with the interpreter under test, isolated from the repository: ``python -I tools/smoke.py``.
It needs only the core dependencies. It also imports every module: an import may fail only because
an optional package is missing, never because a part of offaxis is.
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
    *("onnx", "onnxruntime", "transformers", "mlflow", "flwr", "opendp", "psutil", "pytest"),
}
"""Packages that extras install."""

DATA = (
    "py.typed",
    "collector/migrations/env.py",
    "collector/pages/client/package.json",
    "collector/pages/dashboard",
)
"""Files that are not modules and are easily left out of a wheel."""


FALSE_ALARM = 1e-6
"""Probability that an audit raises a false alarm on a sound release."""


def check(condition: bool, message: str) -> None:
    """Exit with ``message`` if the condition is false."""
    if not condition:
        sys.exit(f"smoke: {message}")


def test_python(folder: Path) -> None:
    """Fit, save, load, privatize, decode and audit a small release."""
    import offaxis
    from offaxis.auditing import audit
    from offaxis.geometry import Layers

    rng = np.random.default_rng(0)
    public = rng.standard_normal((200, 4))
    model = Layers([rng.standard_normal((2, 4))], [np.zeros(2)])
    offaxis.fit(model, public, epsilon=3, mechanism="laplace").save(folder / "python.release")
    release = offaxis.load(folder / "python.release")
    decoded = release.decode(release.privatize(public[:20]))
    check(decoded.shape == (20, 4) and bool(np.isfinite(decoded).all()), "decoding is broken")
    check(str(release.guarantee.epsilon) == "3", f"the guarantee is {release.guarantee}")
    result = audit(release, reports=2000, false_alarm=FALSE_ALARM)
    check(not result.violated, "the audit raises a false alarm")
    np.save(folder / "public.npy", public)
    model.save(folder / "head.safetensors")


def test_command(folder: Path) -> None:
    """Repeat the steps with the installed command."""
    script = Path(sysconfig.get_path("scripts")) / "offaxis"

    def run(arguments: str) -> str:
        command = [str(script), *arguments.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        failure = f"`offaxis {arguments}` exited with {done.returncode}: {done.stderr}"
        check(done.returncode == 0, failure)
        return done.stdout

    version = distribution("offaxis").version
    check(run("--version") == f"offaxis {version}\n", "the command has a different version")
    run("fit --model head.safetensors --public public.npy --epsilon 3 --out my.release")
    run("privatize my.release --vectors public.npy --out my.reports")
    run("decode my.release --reports my.reports --out decoded.npy")
    check(np.load(folder / "decoded.npy").shape == (200, 4), "decoding by the command is broken")
    card = json.loads(run("inspect my.release --json"))
    check(card["guarantee"]["epsilon"] == "3", f"the card says {card['guarantee']}")
    run(f"audit my.release --reports 2000 --false-alarm {FALSE_ALARM}")


def import_all_modules() -> int:
    """Import all modules; return how many need an extra."""
    import offaxis
    from offaxis.errors import MissingExtra

    need_extra = 0
    for module in pkgutil.walk_packages(offaxis.__path__, "offaxis.", onerror=lambda _: None):
        if module.name.endswith(".__main__") or ".migrations." in module.name:
            continue
        try:
            importlib.import_module(module.name)
        except MissingExtra:
            need_extra += 1
        except ModuleNotFoundError as error:
            missing = str(error.name).split(".")[0]
            check(missing in OPTIONAL, f"{module.name} cannot be imported: {error}")
            need_extra += 1
    return need_extra


def main() -> None:
    """Run all checks and print one line."""
    import offaxis

    home = Path(offaxis.__file__).parent
    check("site-packages" in home.parts, f"not an installed offaxis: {home}")
    for name in DATA:
        check(
            files("offaxis").joinpath(name).is_file() or (home / name).is_dir(), f"{name} missing"
        )
    with tempfile.TemporaryDirectory() as folder:
        test_python(Path(folder))
        test_command(Path(folder))
    need_extra = import_all_modules()
    print(f"offaxis {offaxis.__version__} works; {need_extra} modules need an extra")


if __name__ == "__main__":
    main()
