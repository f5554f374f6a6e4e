"""A decoder network trained on publicly simulated reports of a given release.

Contract: the release keeps its encoder, its randomizer and its guarantee. The network sees what the
randomizer would report of *public* vectors, with fresh noise in every step, and learns to make
‖T(ẑ) − T(z)‖² small for the task T. It is biased in a mean over people. The same public vectors and
seed give the same network on the same machine.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import nn

from offaxis.decoding import NetworkDecoder
from offaxis.decoding.channel import Channel, evenly
from offaxis.geometry import TaskModel, as_task_model
from offaxis.recipes.trained import TaskOutputs, plain_layers
from offaxis.vectors import Vectors

__all__ = ["noise_aware"]

_HIDDEN: Final = 128
_BATCH: Final = 256
_RATE: Final = 2e-3
_STEPS: Final = 2000
_SAMPLE_NUMBERS: Final = 1 << 22


def noise_aware(
    channel: Channel, model: Any, public: Any, *, steps: int = _STEPS, seed: int = 0
) -> NetworkDecoder:
    """Train the decoder.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer
    model : model
        The public task, as in :func:`offaxis.fit`.
    public : array (n, m), or callable returning an iterator of batches
    steps, seed : int
        Of the training.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import offaxis
    >>> from offaxis.recipes.noise_aware import noise_aware
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2)
    >>> trained = noise_aware(release, np.ones((1, 3)), public, steps=20)  # 2,000 by default
    >>> better = replace(release, decoder=trained, mean_decoder=release.decoder)
    >>> better.guarantee == release.guarantee, better.decoder.unbiased
    (True, False)
    """
    Z = evenly(public, max(2, _SAMPLE_NUMBERS // channel.encoder.input_dim))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small matrices only wait for each other
    try:
        return _train(channel, as_task_model(model), Z, steps, seed)
    finally:
        torch.set_num_threads(threads)


def _train(channel: Channel, task: TaskModel, Z: Vectors, steps: int, seed: int) -> NetworkDecoder:
    rng = np.random.default_rng(seed)
    encoded = channel.encoder.encode(Z)
    first = channel.randomizer.simulate(encoded, rng)
    centre, spread = first.mean(axis=0), _positive(first.std(axis=0))
    middle, width = Z.mean(axis=0), _positive(Z.std(axis=0))
    back, shift = (torch.as_tensor(part, dtype=torch.float32) for part in (width, middle))
    answers = torch.as_tensor(np.array(task.outputs(Z)), dtype=torch.float32)
    scale = answers.var(dim=0).sum().clamp_min(1e-12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(centre.size, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, middle.size),
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = rng.integers(0, len(Z), _BATCH)
            observed = (channel.randomizer.simulate(encoded[chosen], rng) - centre) / spread
            decoded = network(torch.as_tensor(observed, dtype=torch.float32)) * back + shift
            outputs: torch.Tensor = TaskOutputs.apply(decoded, task)  # type: ignore[no-untyped-call]
            loss = (outputs - answers[chosen]).square().sum(dim=1).mean() / scale
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    weights, biases = plain_layers(network)
    # The ways into the network's units and out of them are folded into its first and last layer.
    weights[0] = weights[0] / spread
    biases[0] = biases[0] - weights[0] @ centre
    weights[-1] = weights[-1] * width[:, None]
    biases[-1] = biases[-1] * width + middle
    return NetworkDecoder(weights, biases)


def _positive(deviation: Vectors) -> Vectors:
    return np.where(deviation > 0, deviation, 1.0)
