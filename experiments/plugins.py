"""Your mechanisms and your data in any study, without a change of this repository.

A plugin is a Python file or module with one or both of

- ``MECHANISMS``, a mapping from labels to classes of randomizers or mechanisms
  (:class:`offaxis.randomizers.CustomRandomizer`, :class:`offaxis.mechanisms.Mechanism`);
- ``DATA``, a list of :func:`data_set`: public vectors, a model, and vectors with known answers.

    python -m experiments run main-mlp --plugin mine.py            # your rows in the paper's table
    python -m experiments run main-mlp --plugin mine.py --on mine  # the paper's rows on your data

The file is run: use only your own.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from experiments.engine import Row, Study
from experiments.methods import Method
from experiments.scores import Metric
from experiments.sources import PublicTask, Setting, register_source
from experiments.without_guarantee import TASK_AWARE_IMAGES
from offaxis import mechanisms, randomizers
from offaxis.errors import InvalidInput, UnsupportedModel, unknown_name
from offaxis.geometry import answer_names, as_task_model

RESHAPED: Final = "+PA"
"""The end of the label of a reshaped row, as in the paper."""


def data_set(name: str, model: Any, public: Any, vectors: Any, answers: Any) -> Setting:
    """Return a data set of your own: fit on ``public``, measure on ``vectors``.

    Parameters
    ----------
    name : str
        One word.
    model : public model
        As in :func:`offaxis.fit`.
    public : array (n, m)
        Public vectors that releases are fitted to.
    vectors, answers : arrays (k, m) and (k,)
        Other vectors and their true answers: class indices for a classifier, whose accuracy is
        measured; numbers for a model with one output, whose root mean squared error is measured.

    Examples
    --------
    >>> from experiments.plugins import data_set
    >>> Z = np.random.default_rng(0).standard_normal((300, 4))
    >>> data_set("signs", np.eye(2, 4), Z[:200], Z[200:], Z[200:, :2].argmax(axis=1)).metric
    'accuracy'
    """
    if not name or name.split() != [name]:
        raise InvalidInput(f"the name of a data set is one word, got {name!r}")
    task = as_task_model(model)
    public, vectors, answers = (np.asarray(array) for array in (public, vectors, answers))
    if answers.dtype.kind in "US" and (names := answer_names(task)) is not None:
        places = {answer: place for place, answer in enumerate(names)}
        if unknown := sorted(set(answers.tolist()) - set(places)):
            raise InvalidInput(f"the model of {name} has no answer {unknown[0]!r}: {names}")
        answers = np.array([places[answer] for answer in answers.tolist()])
    if len(vectors) != len(answers):
        raise InvalidInput(f"{name} has {len(vectors)} vectors and {len(answers)} answers")
    outputs = task.outputs(vectors[:1].astype(np.float64)).shape[1]
    metric: Metric = "accuracy" if outputs > 1 else "rmse"
    if outputs > 1 and not (
        np.issubdtype(answers.dtype, np.integer) and 0 <= answers.min() <= answers.max() < outputs
    ):
        raise InvalidInput(f"the answers of {name} must be integers from 0 to {outputs - 1}")
    return Setting(name, PublicTask(task, public), lambda seed: (vectors, answers), metric)


@dataclass(frozen=True)
class Plugin:
    """What a plugin adds.

    Attributes
    ----------
    methods : mapping
        Label → method: every mechanism plain, and reshaped if it can be.
    data : mapping
        Name → data set.
    """

    methods: Mapping[str, Method]
    data: Mapping[str, Setting]

    def into(self, study: Study, on: str | None = None) -> Study:
        """Return a study with these methods, on its own data or on a data set of the plugin."""
        if on is not None:
            study = self._moved(study, on)
        places = dict.fromkeys((row.level, row.setting, row.epsilons) for row in study.rows)
        added = [
            Row(label, level, setting, method, epsilons)
            for level, setting, epsilons in places
            for label, method in self.methods.items()
        ]
        labels = {row.label for row in study.rows}
        if taken := labels & set(self.methods):
            raise InvalidInput(
                f"{study.name} has a row {min(taken)!r} already: use another label in MECHANISMS"
            )
        return replace(study, rows=(*study.rows, *added), show=_as_table(study))

    def _moved(self, study: Study, on: str) -> Study:
        if on not in self.data:
            raise InvalidInput(unknown_name("data set", on, tuple(self.data), "DATA of the plugin"))
        rows: dict[Any, Row] = {}
        for row in study.rows:
            method, prefix = replace(row.method, protocol="ours"), _derivation(row.setting)
            level = row.level if prefix.startswith("means") else ""
            enough = _people(prefix) <= len(self.data[on].sample(0).vectors)
            if method.kind != TASK_AWARE_IMAGES and enough and _applies(method, self.data[on]):
                moved = Row(row.label, level, f"{prefix}{on}", method, row.epsilons)
                rows[row.label, level, moved.setting, method.key] = moved
        return replace(
            study,
            name=f"{study.name}-on-{on}",
            title=f"{study.title}: its methods on {on}",
            about=f"The methods of the study {study.name} on the data set {on} of a plugin.",
            rows=tuple(rows.values()),
            table="",
            level=study.level if any(row.level for row in rows.values()) else "",
        )


_DERIVED: Final = re.compile(r"((agreement|fidelity|pooled|means \d+) )*")


def _derivation(setting: str) -> str:
    """Return the words before a setting that derive another one from it."""
    found = _DERIVED.match(setting)
    return found[0] if found else ""


def _people(prefix: str) -> int:
    """Return over how many people a derived setting takes means; 0 for others."""
    found = re.search(r"means (\d+)", prefix)
    return int(found[1]) if found else 0


def _applies(method: Method, setting: Setting) -> bool:
    """Whether a method can be fitted to this task: some are for one output or for classes only."""
    if method.slow or not method.reports:
        return True
    try:
        method.make(setting, [1.0])
    except (InvalidInput, UnsupportedModel):
        return False
    return True


def _as_table(study: Study) -> Any:
    return study.show if study.show in ("table", "levels") else "table"


def load(target: str) -> Plugin:
    """Run a plugin, a file or the name of a module, and return what it adds.

    Raises
    ------
    InvalidInput
        If it cannot be imported, or has neither MECHANISMS nor DATA.
    """
    module = _imported(target)
    own: Mapping[str, Any] = getattr(module, "MECHANISMS", {})
    data: Sequence[Setting] = getattr(module, "DATA", ())
    if not own and not data:
        raise InvalidInput(
            f"the plugin {target} has neither MECHANISMS nor DATA (docs: Your mechanism, your data)"
        )
    if not isinstance(own, Mapping):
        raise InvalidInput(f"MECHANISMS of {target} must be a mapping, {{label: mechanism}}")
    version = _version(Path(str(module.__file__)))
    methods: dict[str, Method] = {}
    for place, (label, mechanism) in enumerate(own.items()):
        methods.update(_methods(label, mechanism, version, place))
    for setting in data:
        register_source(setting)
    return Plugin(methods, {setting.name: setting for setting in data})


def _version(file: Path) -> str:
    """Return a hash of the plugin and of all modules beside it that are imported."""
    folder, digest = file.resolve().parent, hashlib.sha256(file.read_bytes())
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and folder in Path(path).resolve().parents and "site-packages" not in path:
            digest.update(name.encode() + Path(path).read_bytes())
    return digest.hexdigest()[:16]


def _methods(label: str, given: Any, version: str, place: int) -> dict[str, Method]:
    mechanism = mechanisms.find_mechanism(given)
    if isinstance(given, type):
        randomizers.register(given)
    if mechanism.name not in mechanisms.NAMES:
        # A name for each label: several may be one mechanism with other settings.
        mechanism = mechanisms.register(replace(mechanism, name=f"{mechanism.name}.{place}"))
    plain = Method(f"{label}, plain", mechanism=mechanism.name, version=version)
    if mechanism.reshaping == "none":
        return {label: plain}
    shaped = replace(plain, title=f"{label}, reshaped", reshaping="jacobian")
    return {label: plain, f"{label}{RESHAPED}": shaped}


def _imported(target: str) -> ModuleType:
    try:
        if not target.endswith(".py"):
            return importlib.import_module(target)
        path = Path(target).resolve()
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        name = f"offaxis_plugin_{path.stem}"  # no other module is called so
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidInput(
            f"the plugin {target} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module
