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
from offaxis.geometry import TaskModel
from offaxis.randomizers import make
from offaxis.recipes.ingredients import Ingredients, Parts
from offaxis.vectors import Vectors, as_integer

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


def _standard_frame(given: Ingredients) -> Frame:
    """Return centred coordinates of unit variance, in which a network learns well."""
    deviation = np.sqrt(np.diag(given.frame.covariance_of(given.covariance)))
    scale = np.where(deviation > 0, deviation, 1.0)
    return given.frame.then(np.diag(1 / scale), np.diag(scale), given.frame.mean_of(given.mean))


def prepare(given: Ingredients) -> Parts:
    """Train both networks for the given budget."""
    if given.task is None:
        raise InvalidInput("task-aware-network trains through the model: pass the model itself")
    asked = LATENT if given.size is None else given.size
    latent = as_integer(asked, "size", 1, _MOST, meaning="numbers a report carries")
    frame = _standard_frame(given)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small matrices only wait for each other
    try:
        encoder, decoder = _train(given, frame, latent)
    finally:
        torch.set_num_threads(threads)
    randomizer = make("laplace", dim=latent, radius=_RADIUS, epsilon=given.epsilon)
    return Parts(
        _encoder(encoder, frame),
        randomizer,
        _decoder(decoder, frame),
        settings={"latent": float(latent)},
    )


def _train(given: Ingredients, frame: Frame, latent: int) -> tuple[nn.Sequential, nn.Sequential]:
    assert given.task is not None
    sample = given.sample
    inputs = torch.as_tensor(frame.encoder.encode(sample), dtype=torch.float32)
    answers = torch.as_tensor(np.array(given.task.outputs(sample)), dtype=torch.float32)
    spread = answers.var(dim=0).sum().clamp_min(1e-12)
    back = torch.as_tensor(frame.lift(np.eye(frame.dim)), dtype=torch.float32)
    centre = torch.as_tensor(frame.centre, dtype=torch.float32)
    steps = int(np.clip(_EPOCHS * len(inputs) // _BATCH, *_STEPS))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(given.seed & 0x7FFFFFFFFFFFFFFF)
        encoder = nn.Sequential(
            nn.Linear(frame.dim, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, latent)
        )
        decoder = nn.Sequential(
            nn.Linear(latent, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, frame.dim)
        )
        noise = torch.distributions.Laplace(0.0, 2 * _RADIUS / float(given.epsilon))
        weights = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(weights, lr=_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = torch.randint(len(inputs), (_BATCH,))
            code = encoder(inputs[chosen])
            code = code / code.abs().sum(dim=1, keepdim=True).clamp_min(_RADIUS) * _RADIUS
            decoded = decoder(code + noise.sample(code.shape)) @ back.T + centre
            outputs: torch.Tensor = TaskOutputs.apply(decoded, given.task)  # type: ignore[no-untyped-call]
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
