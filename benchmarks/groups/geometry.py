"""The Gram matrix of a model over public vectors, and whole fits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.groups import task
from benchmarks.harness import OURS, Contender, Effort, Race
from benchmarks.rivals import gpu_name, installed
from benchmarks.rivals.numpy import gram_one_by_one
from offaxis.fitting import fit
from offaxis.geometry import PublicVectors, as_task_model
from offaxis.geometry import measure as measure_geometry

_ROWS: Final = 40_000
_ALONE: Final = 300
"""Vectors that are handled one at a time."""


def measure(effort: Effort) -> Iterator[Race]:
    """Compare the streaming Gram with a loop, automatic differentiation and a covariance."""
    head, Z = task.data().head, task.vectors(_ROWS)
    alone = Z[:_ALONE]
    plain = as_task_model(head)
    contenders = {
        OURS: Contender(lambda: measure_geometry(plain, PublicVectors(Z)), len(Z)),
        "NumPy, one vector at a time": Contender(lambda: gram_one_by_one(head, alone), len(alone)),
    }
    if installed("sklearn"):
        from benchmarks.rivals.sklearn import covariance

        contenders["scikit-learn's covariance, no task"] = Contender(lambda: covariance(Z), len(Z))
    yield effort.race("Gram", "plain weights, m = 64, k = 10", "vectors/s", contenders)
    if installed("torch"):
        yield with_torch(effort, "cpu", _ROWS)
    if gpu_name():
        yield with_torch(effort, "cuda", 10 * _ROWS)


def with_torch(effort: Effort, device: str, rows: int) -> Race:
    """Compare the Gram of a module on a device with automatic differentiation there."""
    import torch

    from benchmarks.rivals.torch import as_module, gram_by_autograd, gram_by_jacrev, synchronized

    Z, head = task.vectors(rows), task.data().head
    module = as_module(head, device)
    on_device = torch.as_tensor(Z, dtype=torch.float32, device=device)
    model, alone = as_task_model(module), on_device[:_ALONE]
    public = Z if device == "cpu" else on_device
    contenders = {
        OURS: Contender(lambda: measure_geometry(model, PublicVectors(public)), rows),
        "autograd, one output at a time": Contender(
            synchronized(gram_by_autograd, device, module, alone), len(alone)
        ),
        "torch.func, vmap of jacrev": Contender(
            synchronized(gram_by_jacrev, device, module, on_device), rows
        ),
    }
    if device != "cpu":
        on_cpu = as_task_model(as_module(head))
        contenders["offaxis on the CPU"] = Contender(
            lambda: measure_geometry(on_cpu, PublicVectors(Z)), rows
        )
    where = "" if device == "cpu" else f", on {device}"
    return effort.race("Gram", f"torch module, m = 64, k = 10{where}", "vectors/s", contenders)


def measure_fits(effort: Effort) -> Iterator[Race]:
    """Time whole fits; a whitening map, which ignores task and budget, is a lower bound."""
    head, public = task.data().head, task.data().public
    for name in ("laplace", "privunit2", "response"):
        contenders = {
            OURS: Contender(partial(fit, head, public, epsilon=task.EPSILON, mechanism=name))
        }
        if installed("sklearn"):
            from benchmarks.rivals.sklearn import whitening

            contenders["scikit-learn's PCA, no task"] = Contender(partial(whitening, public))
        yield effort.race("fit", f"{name}, {len(public):,} public vectors", "s", contenders)
