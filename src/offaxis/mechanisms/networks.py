"""Task-aware, nonlinear: an encoder and a decoder network trained together, noise between them.

After Cheng, Tang and Chinchali (2022), trained on *public* vectors (theirs sees private ones). The
encoder maps a vector to a few numbers in the ℓ1 ball of radius one, Laplace noise of the release's
own budget is added, the decoder maps them to a vector ẑ, and both learn to make ‖T(ẑ) − T(z)‖²
small. The networks are public maps like any other: the guarantee is the Laplace randomizer's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import nn

from offaxis.decoding import NetworkDecoder
from offaxis.encoding import Frame, NetworkEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import TaskModel, as_task_model
from offaxis.geometry.public import evenly
from offaxis.mechanisms.base import Parts, PublicInputs
from offaxis.randomizers import make
from offaxis.simulation import draw_observations
from offaxis.simulation.releases import Channel
from offaxis.vectors import Vectors, as_integer

__all__ = ["noise_aware"]

LATENT: Final = 3
"""Numbers a report carries when not told: the published choice for MNIST."""

_MOST: Final = 4096
_HIDDEN: Final = 64
_EPOCHS: Final = 30
_STEPS: Final = (200, 3000)
"""At least and at most."""

_BATCH: Final = 256
_RATE: Final = 3e-3
_RADIUS: Final = 1.0


class TaskOutputs(torch.autograd.Function):
    """The task's outputs, with the gradient that its own Jacobians give."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, task: TaskModel) -> torch.Tensor:
        """Return the outputs and keep the Jacobians."""
        vectors = z.detach().double().numpy()
        ctx.jacobians = torch.as_tensor(np.array(task.jacobians(vectors)), dtype=z.dtype)
        return torch.as_tensor(np.array(task.outputs(vectors)), dtype=z.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Pull a gradient back through the Jacobians."""
        return torch.einsum("nk,nkm->nm", gradient, ctx.jacobians), None


def _standard_frame(inputs: PublicInputs) -> Frame:
    """Return centred coordinates of unit variance, in which a network learns well."""
    deviation = np.sqrt(np.diag(inputs.frame.covariance_of(inputs.covariance)))
    scale = np.where(deviation > 0, deviation, 1.0)
    return inputs.frame.then(np.diag(1 / scale), np.diag(scale), inputs.frame.mean_of(inputs.mean))


def prepare(inputs: PublicInputs) -> Parts:
    """Train both networks for the given budget."""
    if inputs.task is None:
        raise InvalidInput("task-aware-network trains through the model: pass the model itself")
    asked = LATENT if inputs.size is None else inputs.size
    latent = as_integer(asked, "size", 1, _MOST, meaning="numbers a report carries")
    frame = _standard_frame(inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small matrices only wait for each other
    try:
        encoder, decoder = _train(inputs, frame, latent)
    finally:
        torch.set_num_threads(threads)
    randomizer = make("laplace", dim=latent, radius=_RADIUS, epsilon=inputs.epsilon)
    return Parts(
        _encoder(encoder, frame),
        randomizer,
        _decoder(decoder, frame),
        settings={"latent": float(latent)},
    )


def _train(inputs: PublicInputs, frame: Frame, latent: int) -> tuple[nn.Sequential, nn.Sequential]:
    assert inputs.task is not None
    sample = inputs.sample
    encoded = torch.as_tensor(frame.encoder.encode(sample), dtype=torch.float32)
    answers = torch.as_tensor(np.array(inputs.task.outputs(sample)), dtype=torch.float32)
    spread = answers.var(dim=0).sum().clamp_min(1e-12)
    back = torch.as_tensor(frame.lift(np.eye(frame.dim)), dtype=torch.float32)
    centre = torch.as_tensor(frame.centre, dtype=torch.float32)
    steps = int(np.clip(_EPOCHS * len(encoded) // _BATCH, *_STEPS))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(inputs.seed & 0x7FFFFFFFFFFFFFFF)
        encoder = nn.Sequential(
            nn.Linear(frame.dim, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, latent)
        )
        decoder = nn.Sequential(
            nn.Linear(latent, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, frame.dim)
        )
        noise = torch.distributions.Laplace(0.0, 2 * _RADIUS / float(inputs.epsilon))
        weights = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(weights, lr=_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = torch.randint(len(encoded), (_BATCH,))
            code = encoder(encoded[chosen])
            code = code / code.abs().sum(dim=1, keepdim=True).clamp_min(_RADIUS) * _RADIUS
            decoded = decoder(code + noise.sample(code.shape)) @ back.T + centre
            outputs: torch.Tensor = TaskOutputs.apply(decoded, inputs.task)  # type: ignore[no-untyped-call]
            error = outputs - answers[chosen]
            loss = error.square().sum(dim=1).mean() / spread
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return encoder, decoder


def plain_layers(network: nn.Sequential) -> tuple[list[Vectors], list[Vectors]]:
    """Return weights and biases of the affine layers, as arrays."""
    linear = [part for part in network if isinstance(part, nn.Linear)]
    weights = [part.weight.detach().double().numpy() for part in linear]
    return weights, [part.bias.detach().double().numpy() for part in linear]


def _encoder(network: nn.Sequential, frame: Frame) -> NetworkEncoder:
    """Return the network with the way into its coordinates folded into its first layer."""
    weights, biases = plain_layers(network)
    assert frame.forward is not None
    weights[0] = weights[0] @ frame.forward
    biases[0] = biases[0] - weights[0] @ frame.centre
    return NetworkEncoder(weights, biases)


def _decoder(network: nn.Sequential, frame: Frame) -> NetworkDecoder:
    """Return the network with the way back folded into its last layer."""
    weights, biases = plain_layers(network)
    weights[-1] = frame.lift(weights[-1])
    biases[-1] = frame.lift(biases[-1][:, None])[:, 0] + frame.centre
    return NetworkDecoder(weights, biases)


# ----------------------------------------------------------------------------
# A decoder network trained on publicly simulated reports of a given release.
#
# Contract: the release keeps its encoder, its randomizer and its guarantee. The network sees what
# the randomizer would report of *public* vectors, with fresh noise in every step, and learns to
# make ‖T(ẑ) − T(z)‖² small for the task T. It is biased in a mean over people. The same public
# vectors and seed give the same network on the same machine.

_DECODER_HIDDEN: Final = 128
_DECODER_RATE: Final = 2e-3
_DECODER_STEPS: Final = 2000
_SAMPLE_NUMBERS: Final = 1 << 22


def noise_aware(
    channel: Channel, model: Any, public: Any, *, steps: int = _DECODER_STEPS, seed: int = 0
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
    >>> from offaxis.mechanisms.networks import noise_aware
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
        return _train_decoder(channel, as_task_model(model), Z, steps, seed)
    finally:
        torch.set_num_threads(threads)


def _train_decoder(
    channel: Channel, task: TaskModel, Z: Vectors, steps: int, seed: int
) -> NetworkDecoder:
    rng = np.random.default_rng(seed)
    encoded = channel.encoder.encode(Z)
    first = draw_observations(channel.randomizer, encoded, rng)
    centre, spread = first.mean(axis=0), _positive(first.std(axis=0))
    middle, width = Z.mean(axis=0), _positive(Z.std(axis=0))
    back, shift = (torch.as_tensor(part, dtype=torch.float32) for part in (width, middle))
    answers = torch.as_tensor(np.array(task.outputs(Z)), dtype=torch.float32)
    scale = answers.var(dim=0).sum().clamp_min(1e-12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(centre.size, _DECODER_HIDDEN),
            nn.ReLU(),
            nn.Linear(_DECODER_HIDDEN, _DECODER_HIDDEN),
            nn.ReLU(),
            nn.Linear(_DECODER_HIDDEN, middle.size),
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=_DECODER_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = rng.integers(0, len(Z), _BATCH)
            observed = (
                draw_observations(channel.randomizer, encoded[chosen], rng) - centre
            ) / spread
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
