"""Networks trained on public vectors: the decoder noise_aware, and task-aware-network.

The networks are public maps like any other: the guarantee is the randomizer's.
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
"""Default number of coordinates in a report: the published choice for MNIST."""

_MOST: Final = 4096

_HIDDEN: Final = 64

_EPOCHS: Final = 30

_STEPS: Final = (200, 3000)
"""The fewest and the most."""

_BATCH: Final = 256

_RATE: Final = 3e-3

_RADIUS: Final = 1.0

_DECODER_HIDDEN: Final = 128

_DECODER_RATE: Final = 2e-3

_DECODER_STEPS: Final = 2000

_SAMPLE_NUMBERS: Final = 1 << 22


def noise_aware(
    channel: Channel, model: Any, public: Any, *, steps: int = _DECODER_STEPS, seed: int = 0
) -> NetworkDecoder:
    """Train a decoder network on simulated reports of public vectors.

    Contract: the release keeps its encoder, its randomizer and its guarantee. The network sees
    simulated reports of *public* vectors, with fresh noise in every step, and learns to make
    ‖T(ẑ) − T(z)‖² small for the task T. It is biased in a mean over people. The same public vectors
    and seed give the same network on the same machine.

    Parameters
    ----------
    channel : Release, or anything with an encoder and a randomizer
    model : model
        The public task, as in :func:`offaxis.fit`.
    public : array (n, m), or callable returning an iterator of batches
    steps, seed : int
        Number of training steps, and the seed of the training.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.mechanisms.networks import noise_aware
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2, mechanism="laplace")
    >>> trained = noise_aware(release, np.ones((1, 3)), public, steps=20)  # 2,000 by default
    >>> better = release.with_decoder(trained)
    >>> better.guarantee == release.guarantee
    True
    """
    Z = evenly(public, max(2, _SAMPLE_NUMBERS // channel.encoder.input_dim))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for matrices this small, threads cost more than they save
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
    mean, deviation = Z.mean(axis=0), _positive(Z.std(axis=0))
    back, shift = (torch.as_tensor(part, dtype=torch.float32) for part in (deviation, mean))
    answers = torch.as_tensor(np.array(task.outputs(Z)), dtype=torch.float32)
    scale = answers.var(dim=0).sum().clamp_min(1e-12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(centre.size, _DECODER_HIDDEN),
            nn.ReLU(),
            nn.Linear(_DECODER_HIDDEN, _DECODER_HIDDEN),
            nn.ReLU(),
            nn.Linear(_DECODER_HIDDEN, mean.size),
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=_DECODER_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            rows = rng.integers(0, len(Z), _BATCH)
            observed = (draw_observations(channel.randomizer, encoded[rows], rng) - centre) / spread
            decoded = network(torch.as_tensor(observed, dtype=torch.float32)) * back + shift
            outputs: torch.Tensor = TaskOutputs.apply(decoded, task)  # type: ignore[no-untyped-call]
            loss = (outputs - answers[rows]).square().sum(dim=1).mean() / scale
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    weights, biases = plain_layers(network)
    # Fold the standardisation of inputs and outputs into the first and the last layer.
    weights[0] = weights[0] / spread
    biases[0] = biases[0] - weights[0] @ centre
    weights[-1] = weights[-1] * deviation[:, None]
    biases[-1] = biases[-1] * deviation + mean
    return NetworkDecoder(weights, biases)


def _positive(deviation: Vectors) -> Vectors:
    return np.where(deviation > 0, deviation, 1.0)


# ---- task-aware-network


def prepare(inputs: PublicInputs) -> Parts:
    """Train an encoder and a decoder network together, with noise between them.

    After Cheng, Tang and Chinchali (2022), trained on *public* vectors (theirs sees private ones).
    The encoder maps a vector to a few numbers in the ℓ1 ball of radius one, Laplace noise of the
    release's budget is added, the decoder maps them to a vector ẑ, and both learn to make
    ‖T(ẑ) − T(z)‖² small.
    """
    if inputs.task is None:
        raise InvalidInput("task-aware-network trains through the model: pass the model itself")
    size = LATENT if inputs.size is None else inputs.size
    latent = as_integer(size, "size", 1, _MOST, meaning="numbers per report")
    frame = _standard_frame(inputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for matrices this small, threads cost more than they save
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
            rows = torch.randint(len(encoded), (_BATCH,))
            code = encoder(encoded[rows])
            code = code / code.abs().sum(dim=1, keepdim=True).clamp_min(_RADIUS) * _RADIUS
            decoded = decoder(code + noise.sample(code.shape)) @ back.T + centre
            outputs: torch.Tensor = TaskOutputs.apply(decoded, inputs.task)  # type: ignore[no-untyped-call]
            error = outputs - answers[rows]
            loss = error.square().sum(dim=1).mean() / spread
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return encoder, decoder


def _standard_frame(inputs: PublicInputs) -> Frame:
    """Return centred coordinates of unit variance, in which a network learns well."""
    deviation = np.sqrt(np.diag(inputs.frame.covariance_of(inputs.covariance)))
    scale = np.where(deviation > 0, deviation, 1.0)
    return inputs.frame.then(np.diag(1 / scale), np.diag(scale), inputs.frame.mean_of(inputs.mean))


def _encoder(network: nn.Sequential, frame: Frame) -> NetworkEncoder:
    """Return the network with the map to its coordinates folded into the first layer."""
    weights, biases = plain_layers(network)
    assert frame.forward is not None
    weights[0] = weights[0] @ frame.forward
    biases[0] = biases[0] - weights[0] @ frame.centre
    return NetworkEncoder(weights, biases)


def _decoder(network: nn.Sequential, frame: Frame) -> NetworkDecoder:
    """Return the network with the map back to vectors folded into the last layer."""
    weights, biases = plain_layers(network)
    weights[-1] = frame.lift(weights[-1])
    biases[-1] = frame.lift(biases[-1][:, None])[:, 0] + frame.centre
    return NetworkDecoder(weights, biases)


def plain_layers(network: nn.Sequential) -> tuple[list[Vectors], list[Vectors]]:
    """Return weights and biases of the affine layers, as arrays."""
    linear = [part for part in network if isinstance(part, nn.Linear)]
    weights = [part.weight.detach().double().numpy() for part in linear]
    return weights, [part.bias.detach().double().numpy() for part in linear]


class TaskOutputs(torch.autograd.Function):
    """The outputs of a task as a torch function, differentiated by the task's Jacobians."""

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
