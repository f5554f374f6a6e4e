"""Models of questions: untrusted weights files, and their outputs for public vectors.

Contract: a model is read strictly, stored with what is known of it, and read again only when its
outputs are not in memory. One model is evaluated at a time, on batches of public vectors, so that
neither memory nor other requests depend on how wide it is. Questions are answered in threads of
their own of low priority: those of other requests are never all taken.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from offaxis.collector.populations import reason_against, write_support, yield_to_uploads
from offaxis.collector.problems import unavailable
from offaxis.collector.store import AttachedModel, Store
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.learning.likelihoods import Support
from offaxis.release import Release
from offaxis.vectors import Vectors

LARGEST_MODEL: Final = 16 << 20
"""Largest weights file of a question, in bytes."""

MOST_QUESTIONS: Final = 32
MOST_OUTPUTS: Final = 512

VECTORS: Final = "vectors"
"""The question about the coordinates of the vectors themselves."""

MOST_NUMBERS: Final = 1 << 21
"""A batch has at most so many numbers in the widest layer of a model, or one row."""

_MOST_KEPT: Final = 64
_MOST_BYTES: Final = 128 << 20
_THREADS: Final = 2

_Result = TypeVar("_Result")


# ---- What a publisher attaches


def read_model(body: bytes, release: Release, name: str) -> tuple[Layers, bytes]:
    """Read the model of a question, an untrusted weights file; return it and the file to store.

    Raises
    ------
    InvalidInput
        If it is no weights file, or a model of other vectors.
    """
    reason = reason_against(release)
    if reason is not None:
        raise InvalidInput(reason)
    if name == VECTORS:
        raise InvalidInput(f"the name {VECTORS!r} stands for the coordinates of the vectors")
    model = load_model(body)
    if model.input_dim != release.input_dim:
        raise InvalidInput(
            f"this model reads vectors of {model.input_dim} numbers, those of the release have "
            f"{release.input_dim}"
        )
    if not 1 <= _outputs_of(model) <= MOST_OUTPUTS:
        raise InvalidInput(
            f"the model of a question has at least one and at most {MOST_OUTPUTS} outputs, not "
            f"{_outputs_of(model)}"
        )
    # Written again, so that nothing else of the publisher's file is stored.
    stored = Layers(model.weights, model.biases, model.activation, name, model.answers)
    with tempfile.TemporaryDirectory(prefix="offaxis-question-") as folder:
        path = Path(folder) / "model.safetensors"
        stored.save(path)
        return stored, path.read_bytes()


def load_model(content: bytes) -> Layers:
    """Return the model of a weights file."""
    with tempfile.TemporaryDirectory(prefix="offaxis-question-") as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        try:
            return Layers.load(path)
        except Exception:
            # A hostile file may fail anywhere, and the message would have the path of a temporary
            # file.
            raise InvalidInput(
                "a model is a weights file written by offaxis.geometry.Layers.save"
            ) from None


def attached_model(model: Layers, content: bytes) -> AttachedModel:
    """Return what is known of a model without its weights."""
    return AttachedModel(
        model.name, hashlib.sha256(content).hexdigest(), _outputs_of(model), model.answers
    )


def _outputs_of(model: Layers) -> int:
    return len(model.biases[-1])


# ---- Evaluation


def evaluate(model: Layers, vectors: Vectors) -> Vectors:
    """Return the outputs of a model, in batches.

    Raises
    ------
    InvalidInput
        If an output is not finite.
    """
    widest = max(model.input_dim, *(len(bias) for bias in model.biases))
    rows = max(1, MOST_NUMBERS // widest)
    outputs = np.empty((len(vectors), _outputs_of(model)))
    with np.errstate(all="ignore"):
        for start in range(0, len(vectors), rows):
            outputs[start : start + rows] = model.outputs(vectors[start : start + rows])
    unknown = int(np.count_nonzero(~np.isfinite(outputs).all(axis=1)))
    if unknown:
        raise InvalidInput(
            f"the model has no finite output for {unknown:,} of {len(vectors):,} public vectors"
        )
    outputs.flags.writeable = False
    return outputs


class Evaluations:
    """The outputs of attached models for public vectors, and the threads that answer questions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._evaluating = threading.Lock()
        self._known: dict[tuple[str, str], Vectors] = {}
        self._hashes: WeakKeyDictionary[Support, str] = WeakKeyDictionary()
        self._threads = ThreadPoolExecutor(
            _THREADS, "offaxis-questions", initializer=yield_to_uploads
        )

    def submit(self, work: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Do work on questions in a thread of its own."""
        try:
            return self._threads.submit(work, *arguments)
        except RuntimeError:
            raise unavailable("the collector is stopping") from None

    def outputs(self, release: str, model: AttachedModel, support: Support) -> Vectors:
        """Return the outputs of the attached model of a release, (J, k).

        Raises
        ------
        InvalidInput
            If an output is not finite, or the model was removed or replaced meanwhile.
        """

        def load() -> Layers:
            content = self._store.model(release, model)
            if content is None:
                raise InvalidInput(f"the question {model.name!r} was removed or replaced")
            return load_model(content)

        return self._outputs(model, support, load)

    def check(self, model: AttachedModel, layers: Layers, support: Support) -> None:
        """Raise if a model that is being attached has an output that is not finite."""
        self._outputs(model, support, lambda: layers)

    def close(self) -> None:
        """Finish the work that is running, and drop what waits."""
        self._threads.shutdown(cancel_futures=True)

    def _outputs(
        self, model: AttachedModel, support: Support, load: Callable[[], Layers]
    ) -> Vectors:
        key = self._hash(support), model.hash
        found = self._find(key)
        if found is not None:
            return found
        with self._evaluating:
            # Another request may have evaluated it while this one waited.
            found = self._find(key)
            if found is None:
                found = evaluate(load(), support.vectors)
                self._keep(key, found)
        return found

    def _hash(self, support: Support) -> str:
        with self._lock:
            known = self._hashes.get(support)
        if known is None:
            known = write_support(support)[0]
            with self._lock:
                self._hashes[support] = known
        return known

    def _find(self, key: tuple[str, str]) -> Vectors | None:
        with self._lock:
            found = self._known.pop(key, None)
            if found is not None:
                self._known[key] = found  # the last ones are kept longest
            return found

    def _keep(self, key: tuple[str, str], outputs: Vectors) -> None:
        with self._lock:
            known = self._known
            size = sum(part.nbytes for part in known.values()) + outputs.nbytes
            while known and (len(known) >= _MOST_KEPT or size > _MOST_BYTES):
                size -= known.pop(next(iter(known))).nbytes
            known[key] = outputs
