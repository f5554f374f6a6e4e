"""ResNet-20 for images of 32×32, as He et al. (2016) built it for CIFAR-10.

Three stages of three blocks with 16, 32 and 64 channels; shortcuts have no weights. The mean over
the last 8×8 positions is the feature vector, 64 numbers; a linear head makes ten logits of it.
0.27 million weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from offaxis.data.parts import Progress
from offaxis.data.parts import silent as no_progress
from offaxis.data.sets import Labels, Pixels
from offaxis.studies.models.training import Log, Plan, Trained, exact_kernels, silent, train

FEATURES: Final = 64
CLASSES: Final = 10

_BLOCKS = 3
_AT_ONCE = 500
_PADDING = 4
# Of the CIFAR-10 training images, in units of 255.
_MEAN: Final = (0.4914, 0.4822, 0.4465)
_SPREAD: Final = (0.2470, 0.2435, 0.2616)


class _Block(nn.Module):
    """Two convolutions around which the input is carried along."""

    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        self.stride = 1 if inward == outward else 2
        self.conv1 = nn.Conv2d(inward, outward, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outward)
        self.conv2 = nn.Conv2d(outward, outward, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outward)
        self.grown = outward - inward

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(x)))
        inner = self.norm2(self.conv2(inner))
        if self.grown:
            # Every second pixel, and channels of zeros: the paper's shortcut without weights.
            half = self.grown // 2
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, self.grown - half))
        return functional.relu(inner + x)


class ResNet20(nn.Module):
    """From normalised images, (n, 3, 32, 32), to ten logits; ``features`` stops before the head."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, FEATURES)
        self.conv = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        blocks: list[nn.Module] = []
        inward = widths[0]
        for width in widths:
            for _ in range(_BLOCKS):
                blocks.append(_Block(inward, width))
                inward = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(FEATURES, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, images: Tensor) -> Tensor:
        """Return the pooled features, (n, 64); none is negative."""
        x = functional.relu(self.norm(self.conv(images)))
        pooled: Tensor = self.blocks(x).mean(dim=(2, 3))
        return pooled

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.features(images))
        return logits


def as_planes(pixels: Pixels, device: torch.device) -> Tensor:
    """Return uint8 images, colours last, as a uint8 tensor with colours first."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2)


def normalised(planes: Tensor) -> Tensor:
    """Return uint8 planes as the network wants them: mean 0 and spread 1 in every colour."""
    mean = torch.tensor(_MEAN, device=planes.device).view(1, 3, 1, 1)
    spread = torch.tensor(_SPREAD, device=planes.device).view(1, 3, 1, 1)
    return (planes.float() / 255 - mean) / spread


def augmented(images: Tensor) -> Tensor:
    """Shift each normalised image by up to four pixels and mirror every other one, at random."""
    rows, _, height, width = images.shape
    device = images.device
    padded = functional.pad(images, (_PADDING,) * 4)
    shifts = torch.randint(0, 2 * _PADDING + 1, (2, rows, 1), device=device)
    mirror = torch.rand(rows, 1, device=device) < 0.5
    down = shifts[0] + torch.arange(height, device=device)
    right = torch.arange(width, device=device)
    right = shifts[1] + torch.where(mirror, width - 1 - right, right)
    # One gather for all images: (row, :, y, x) with the colours last.
    batch = torch.arange(rows, device=device).view(-1, 1, 1)
    picked = padded.permute(0, 2, 3, 1)[batch, down.unsqueeze(2), right.unsqueeze(1)]
    return picked.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class ResNetRecipe:
    """How the network is trained: momentum 0.9 (Nesterov), a cosine after a short rise."""

    epochs: int = 200
    batch: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    warmup: int = 5
    seed: int = 0


def train_resnet20(
    pixels: dict[str, Pixels],
    labels: dict[str, Labels],
    recipe: ResNetRecipe,
    device: torch.device,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> tuple[ResNet20, Trained]:
    """Train on ``train`` for all epochs; the score on ``validation`` is only watched."""
    torch.manual_seed(recipe.seed)
    net = ResNet20().to(device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.SGD(
        net.parameters(),
        lr=recipe.learning_rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=recipe.weight_decay,
        fused=on_gpu,
    )
    x, y = as_planes(pixels["train"], device), torch.from_numpy(labels["train"]).to(device)
    # A step is many small kernels: replaying them as one graph is three times as fast.
    forward = torch.compile(net, mode="reduce-overhead") if on_gpu else net

    def loss(rows: Tensor) -> Tensor:
        images = augmented(normalised(x[rows])).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            logits = forward(images)
        return functional.cross_entropy(logits.float(), y[rows])

    def score() -> float:
        vectors = embed(net, pixels["validation"])
        logits = functional.linear(
            torch.from_numpy(vectors), *(w.cpu() for w in net.head.parameters())
        )
        return float((logits.argmax(1).numpy() == labels["validation"]).mean())

    plan = Plan(
        "resnet20", recipe.epochs, recipe.batch, recipe.seed, cosine=True, warmup=recipe.warmup
    )
    return net, train(net, optimizer, loss, score, len(x), plan, checkpoint=checkpoint, log=log)


def embed(
    net: ResNet20, pixels: Pixels, *, progress: Progress = no_progress
) -> NDArray[np.float32]:
    """Return the features of images, (n, 64), on the device where the network is."""
    device = next(net.parameters()).device
    net.eval()
    out = np.empty((len(pixels), FEATURES), np.float32)
    with torch.inference_mode(), exact_kernels():
        for start in range(0, len(out), _AT_ONCE):
            progress("features", start, len(out))
            rows = slice(start, start + _AT_ONCE)
            out[rows] = net.features(normalised(as_planes(pixels[rows], device))).cpu().numpy()
    return out
