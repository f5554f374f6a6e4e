"""The task-aware mechanism of Cheng, Tang and Chinchali (2022) for MNIST, by its public code.

A linear encoder takes the 784 pixels to three numbers, Laplace noise is added, a linear decoder
returns an image, and a fixed convolutional network reads it. Encoder and decoder are trained
together, noise in the loop, for the network's cross entropy on 6,000 images; one pair per budget.

**No guarantee.** Its noise has the variance (Δ/ε)², which is that of a Laplace scale Δ/(√2 ε): √2
times less than ε needs. Δ is the largest distance *within the evaluated images*, so it is computed
from private data and does not bound the distance of others. Nothing is clipped.

Facts taken from the public code of the method (chengjiangnan/task_aware_privacy): data, networks,
optimizers, number of steps, and the noise. All budgets and starts are trained at once here: their
weights are separate, so that their gradients are, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from experiments.data.sets import Labels, Pixels
from experiments.models.training import Log, silent

SIDE: Final = 28
IMAGES: Final = 6_000
"""Training images: the first ones of the data set."""

TESTED: Final = 1_000
"""Test images: the first ones of the data set."""

NUMBERS: Final = 3
"""Numbers per report."""


@dataclass(frozen=True)
class TaskAwareRecipe:
    """How reader, encoder and decoder are trained: Adam (AMSGrad), weight decay on the encoder.

    On every batch, noise is drawn once, and encoder and decoder take ``inner`` steps in turns.
    """

    starts: int = 3
    epochs: int = 60
    inner: int = 10
    reader_epochs: int = 30
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.2
    seed: int = 0


class DigitReader(nn.Module):
    """From images (n, 784) in [0, 1] to ten logits: two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, 1, 2)
        self.conv2 = nn.Conv2d(16, 32, 5, 1, 2)
        self.out = nn.Linear(32 * 7 * 7, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        x = images.view(-1, 1, SIDE, SIDE)
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        logits: Tensor = self.out(x.flatten(1))
        return logits


class LinearPairs(nn.Module):
    """A linear encoder and decoder for each of several budgets and starts."""

    def __init__(self, starts: int, budgets: Sequence[float]) -> None:
        super().__init__()
        pairs = starts * len(budgets)
        self.register_buffer("epsilons", torch.tensor(list(budgets)).repeat(starts).view(-1, 1, 1))
        inward = [nn.Linear(SIDE * SIDE, NUMBERS) for _ in range(pairs)]
        outward = [nn.Linear(NUMBERS, SIDE * SIDE) for _ in range(pairs)]
        self.encoder = nn.ParameterList(_stacked(inward))
        self.decoder = nn.ParameterList(_stacked(outward))

    def encode(self, images: Tensor) -> Tensor:
        """Return the codes of images (n, 784), one row of codes per pair: (pairs, n, 3)."""
        weight, bias = self.encoder
        return torch.baddbmm(bias, images.expand(len(weight), -1, -1), weight)

    def decode(self, codes: Tensor) -> Tensor:
        """Return decoded images, (pairs, n, 784)."""
        weight, bias = self.decoder
        return torch.baddbmm(bias, codes, weight)

    def noise_scales(self, codes: Tensor) -> Tensor:
        """Return Δ/(√2 ε) of every pair, Δ the largest ℓ1 distance among its codes: (pairs, 1, 1).

        This is the scale of the public code; :mod:`experiments.models.task_aware` says what it
        lacks.
        """
        widest = torch.stack([torch.cdist(one, one, p=1).amax() for one in codes])
        scales: Tensor = widest.view(-1, 1, 1) / (2**0.5 * self.epsilons)  # type: ignore[operator]
        return scales


def _stacked(layers: Sequence[nn.Linear]) -> list[nn.Parameter]:
    weights = torch.stack([layer.weight.detach().T for layer in layers])
    biases = torch.stack([layer.bias.detach()[None] for layer in layers])
    return [nn.Parameter(weights.contiguous()), nn.Parameter(biases)]


def laplace(scales: Tensor, like: Tensor) -> Tensor:
    """Return Laplace noise of these scales, in the shape of ``like``."""
    signs = torch.sign(torch.rand_like(like) - 0.5)
    return scales * signs * torch.empty_like(like).exponential_()


def train_task_aware(
    pixels: Pixels,
    labels: Labels,
    budgets: Sequence[float],
    recipe: TaskAwareRecipe,
    device: torch.device,
    *,
    log: Log = silent,
) -> tuple[DigitReader, LinearPairs]:
    """Train the reader, then the pairs for all budgets, on the first images of a training set."""
    torch.manual_seed(recipe.seed)
    x, y = _unit(pixels[:IMAGES], device), torch.from_numpy(labels[:IMAGES].copy()).to(device)
    reader, pairs = DigitReader().to(device), LinearPairs(recipe.starts, budgets).to(device)
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(
        reader.parameters(), lr=recipe.learning_rate, amsgrad=True, fused=on_gpu
    )
    for epoch in range(recipe.reader_epochs):
        for rows in _batches(len(x), recipe.batch, device):
            loss = functional.cross_entropy(reader(x[rows]), y[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        log(f"reader {epoch + 1}/{recipe.reader_epochs} loss {float(loss.detach()):.4f}")
    for weight in reader.parameters():
        weight.requires_grad_(False)
    settings: dict[str, Any] = {"lr": recipe.learning_rate, "amsgrad": True, "fused": on_gpu}
    turns = (
        torch.optim.Adam(pairs.encoder, weight_decay=recipe.weight_decay, **settings),
        torch.optim.Adam(pairs.decoder, **settings),
    )
    for epoch in range(recipe.epochs):
        for rows in _batches(len(x), recipe.batch, device):
            images, truth = x[rows], y[rows].repeat(len(pairs.encoder[0]))
            with torch.no_grad():
                codes = pairs.encode(images)
                noise = laplace(pairs.noise_scales(codes), codes)
            for _ in range(recipe.inner):
                for turn in turns:
                    decoded = pairs.decode(pairs.encode(images) + noise)
                    # The sum over pairs of their mean losses: each pair gets its own gradient.
                    loss = functional.cross_entropy(reader(decoded), truth, reduction="sum")
                    loss = loss / len(rows)
                    pairs.zero_grad()
                    torch.autograd.backward(loss)
                    turn.step()
        log(f"task-aware {epoch + 1}/{recipe.epochs} loss {float(loss.detach()) / len(codes):.4f}")
    return reader.eval(), pairs.eval()


def task_aware_scores(
    reader: DigitReader, pairs: LinearPairs, pixels: Pixels, labels: Labels, seeds: int
) -> NDArray[np.float64]:
    """Return the accuracies on the first test images, one per pair and seed: (pairs, seeds)."""
    x = _unit(pixels[:TESTED], torch.device("cpu"))
    truth = torch.from_numpy(labels[:TESTED].copy())
    scores = []
    with torch.inference_mode():
        codes = pairs.encode(x)
        scales = pairs.noise_scales(codes)
        for seed in range(seeds):
            torch.manual_seed(seed)
            decoded = pairs.decode(codes + laplace(scales, codes))
            answers = torch.stack([reader(images).argmax(1) for images in decoded])
            scores.append((answers == truth).double().mean(1).numpy())
    return np.stack(scores, axis=1)


def _batches(count: int, size: int, device: torch.device) -> list[Tensor]:
    return list(torch.split(torch.randperm(count, device=device), size))


def _unit(pixels: Pixels, device: torch.device) -> Tensor:
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1)
    return torch.from_numpy(rows).to(device).float() / 255
