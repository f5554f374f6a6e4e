"""What the task looks at: the Gram of a model over public vectors, and a whole fit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import offaxis
from offaxis.bench import task
from offaxis.bench.effort import Effort
from offaxis.bench.results import OURS, Contender, Race
from offaxis.bench.rivals import installed
from offaxis.bench.rivals.numpy import gram_one_by_one
from offaxis.geometry import PublicVectors, as_task_model
from offaxis.geometry import measure as measure_geometry

_ROWS: Final = 40_000
_ALONE: Final = 300


def measure(effort: Effort) -> Iterator[Race]:
    """Race the streaming Gram against a loop, automatic differentiation and a covariance."""
    head, Z = task.data().head, task.many(_ROWS)
    alone = Z[:_ALONE]
    plain = as_task_model(head)
    contenders = {
        OURS: Contender(lambda: measure_geometry(plain, PublicVectors(Z)), len(Z)),
        "NumPy, one vector at a time": Contender(lambda: gram_one_by_one(head, alone), len(alone)),
    }
    if installed("sklearn"):
        from offaxis.bench.rivals.sklearn import covariance

        contenders["scikit-learn's covariance, no task"] = Contender(lambda: covariance(Z), len(Z))
    yield effort.race("Gram", "plain weights, m = 64, k = 10", "vectors/s", contenders)
    if installed("torch"):
        yield _torch(effort)


def _torch(effort: Effort) -> Race:
    import torch

    from offaxis.bench.rivals.torch import as_module, gram_by_autograd, gram_by_jacrev

    Z = task.many(_ROWS)
    module, tensor = as_module(task.data().head), torch.as_tensor(Z, dtype=torch.float32)
    model, alone = as_task_model(module), tensor[:_ALONE]
    contenders = {
        OURS: Contender(lambda: measure_geometry(model, PublicVectors(Z)), len(Z)),
        "autograd, one output at a time": Contender(
            lambda: gram_by_autograd(module, alone), len(alone)
        ),
        "torch.func, vmap of jacrev": Contender(lambda: gram_by_jacrev(module, tensor), len(Z)),
    }
    return effort.race("Gram", "torch module, m = 64, k = 10", "vectors/s", contenders)


def measure_fits(effort: Effort) -> Iterator[Race]:
    """Time whole fits; a whitening map, which knows no task and no budget, is a floor."""
    head, public = task.data().head, task.data().public
    for name in ("laplace", "privunit2", "response"):
        contenders = {
            OURS: Contender(
                partial(offaxis.fit, head, public, epsilon=task.EPSILON, randomizer=name)
            )
        }
        if installed("sklearn"):
            from offaxis.bench.rivals.sklearn import whitening

            contenders["scikit-learn's PCA, no task"] = Contender(partial(whitening, public))
        yield effort.race("fit", f"{name}, {len(public):,} public vectors", "s", contenders)
