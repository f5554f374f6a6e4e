"""The networks from images to vectors: ResNet-20 for CIFAR-10, and a variational autoencoder.

ResNet-20 for images of 32×32 follows He et al. (2016): three stages of three blocks with 16, 32 and
64 channels; shortcuts have no weights. The mean over the last 8×8 positions is the feature vector,
64 numbers; a linear head maps it to ten logits. 0.27 million weights.

For MNIST the encoder is 784→512→512→(μ, log σ²) with m = 32, the decoder 32→512→512→784, ReLU
between layers. The loss is binary cross-entropy plus the divergence from a standard normal law, per
image. Then the encoder and a head 32→10→32→10 are tuned jointly with cross-entropy. The vector z of
an image is μ: computing features draws no random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from experiments.data.cache import Progress
from experiments.data.cache import silent as no_progress
from experiments.data.sets import Labels, Pixels
from experiments.models.heads import mlp
from experiments.models.training import Log, Plan, Trained, exact_kernels, silent, train

FEATURES: Final = 64
CLASSES: Final = 10

_BLOCKS = 3
_AT_ONCE = 500
_LOG_EVERY = 10
_PADDING = 4
# Mean and standard deviation of the CIFAR-10 training images, in units of 255.
_MEAN: Final = (0.4914, 0.4822, 0.4465)
_SPREAD: Final = (0.2470, 0.2435, 0.2616)


class _Block(nn.Module):
    """Two convolutions with a shortcut around them.

    Where the image shrinks, the shortcut takes every second pixel and adds channels of zeros, as
    for CIFAR-10 in He et al. (2016), or is a convolution (``projected``), as in the paper's public
    code.
    """

    def __init__(self, inward: int, outward: int, projected: bool) -> None:
        super().__init__()
        self.stride = 1 if inward == outward else 2
        self.conv1 = nn.Conv2d(inward, outward, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outward)
        self.conv2 = nn.Conv2d(outward, outward, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outward)
        self.grown = outward - inward
        self.shortcut = (
            nn.Sequential(
                nn.Conv2d(inward, outward, 1, self.stride, bias=False), nn.BatchNorm2d(outward)
            )
            if projected and self.grown
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(x)))
        inner = self.norm2(self.conv2(inner))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.grown:
            half = self.grown // 2
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, self.grown - half))
        return functional.relu(inner + x)


class ResNet20(nn.Module):
    """From normalised images, (n, 3, 32, 32), to ten logits; ``features`` stops before the head."""

    def __init__(self, *, projected: bool = False) -> None:
        super().__init__()
        widths = (16, 32, FEATURES)
        self.conv = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        blocks: list[nn.Module] = []
        inward = widths[0]
        for width in widths:
            for _ in range(_BLOCKS):
                blocks.append(_Block(inward, width, projected))
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
    """Return uint8 planes as input of the network: mean 0 and spread 1 in every colour."""
    mean = torch.tensor(_MEAN, device=planes.device).view(1, 3, 1, 1)
    spread = torch.tensor(_SPREAD, device=planes.device).view(1, 3, 1, 1)
    return (planes.float() / 255 - mean) / spread


def augmented(images: Tensor) -> Tensor:
    """Shift each image by up to four pixels and mirror half of them, at random; pad with zeros."""
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
    """How the network is trained: momentum 0.9, a cosine schedule after a warm-up or drops.

    ``projected`` chooses shortcuts that are convolutions, ``black`` padding of shifted images with
    black instead of the mean colour. With ``every``, the best of the scores after every so many
    epochs decides which weights are kept; without, the last epoch.
    """

    epochs: int = 200
    batch: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    nesterov: bool = True
    warmup: int = 5
    drops: tuple[int, ...] = ()
    projected: bool = False
    black: bool = False
    every: int | None = None
    seed: int = 0

    @classmethod
    def reference(cls, seed: int) -> ResNetRecipe:
        """Return the recipe of the paper's public code."""
        return cls(
            weight_decay=1e-4,
            nesterov=False,
            warmup=0,
            drops=(100, 150),
            projected=True,
            black=True,
            every=20,
            seed=seed,
        )


def train_resnet20(
    pixels: dict[str, Pixels],
    labels: dict[str, Labels],
    recipe: ResNetRecipe,
    device: torch.device,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> tuple[ResNet20, Trained]:
    """Train on ``train`` for all epochs; ``validation`` decides only where the recipe says so."""
    torch.manual_seed(recipe.seed)
    net = ResNet20(projected=recipe.projected).to(device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.SGD(
        net.parameters(),
        lr=recipe.learning_rate,
        momentum=0.9,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=on_gpu,
    )
    x, y = as_planes(pixels["train"], device), torch.from_numpy(labels["train"]).to(device)
    # A step consists of many small kernels: replaying them as one graph is three times as fast.
    forward = torch.compile(net, mode="reduce-overhead") if on_gpu else net

    def loss(rows: Tensor) -> Tensor:
        planes = x[rows]
        images = normalised(augmented(planes)) if recipe.black else augmented(normalised(planes))
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            logits = forward(images)
        return functional.cross_entropy(logits.float(), y[rows])

    def score() -> float:
        vectors = embed_images(net, pixels["validation"])
        logits = functional.linear(
            torch.from_numpy(vectors), *(w.cpu() for w in net.head.parameters())
        )
        return float((logits.argmax(1).numpy() == labels["validation"]).mean())

    plan = Plan(
        "resnet20",
        recipe.epochs,
        recipe.batch,
        recipe.seed,
        cosine=not recipe.drops,
        warmup=recipe.warmup,
        drops=recipe.drops,
        keep="best" if recipe.every else "last",
        every=recipe.every or _LOG_EVERY,
    )
    return net, train(net, optimizer, loss, score, len(x), plan, checkpoint=checkpoint, log=log)


def embed_images(
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


# ---- MNIST: a variational autoencoder, whose encoder is then tuned together with a classifier

PIXELS: Final = 28 * 28
HIDDEN: Final = 512
LATENT: Final = 32

_DIGITS_AT_ONCE = 1_000


class MnistEncoder(nn.Module):
    """From images in [0, 1], (n, 784), to their vectors, (n, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.mean = nn.Linear(HIDDEN, LATENT)

    def forward(self, images: Tensor) -> Tensor:
        """Return μ."""
        vectors: Tensor = self.mean(self.body(images))
        return vectors


class VAE(nn.Module):
    """The autoencoder around an encoder; log_variance and decoder are used in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = MnistEncoder()
        self.log_variance = nn.Linear(HIDDEN, LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, PIXELS),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean loss per image: reconstruction plus divergence."""
        body = self.encoder.body(images)
        mean, log_variance = self.encoder.mean(body), self.log_variance(body)
        drawn = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        seen = functional.binary_cross_entropy_with_logits(
            self.decoder(drawn), images, reduction="sum"
        )
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
        loss: Tensor = (seen + divergence) / len(images)
        return loss


@dataclass(frozen=True)
class VaeRecipe:
    """How autoencoder and classifier are trained: Adam, with patience on ``validation``."""

    epochs: int = 300
    batch: int = 512
    learning_rate: float = 1e-3
    patience: int = 10
    seed: int = 0

    @classmethod
    def reference(cls, seed: int) -> VaeRecipe:
        """Return the recipe of the paper's public code for the autoencoder."""
        return cls(epochs=100, seed=seed)


@dataclass(frozen=True)
class JointRecipe:
    """How the paper's public code tunes the encoder together with its head: Adam, cosine.

    The weights of the last epoch are kept.
    """

    epochs: int = 100
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    seed: int = 0


def as_unit(pixels: Pixels, device: torch.device) -> Tensor:
    """Return uint8 images as rows of numbers in [0, 1]."""
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1)
    return torch.from_numpy(rows).to(device).float() / 255


def train_vae(
    pixels: dict[str, Pixels],
    recipe: VaeRecipe,
    device: torch.device,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> tuple[VAE, Trained]:
    """Train until the loss on ``validation`` has not improved for ``patience`` epochs."""
    torch.manual_seed(recipe.seed)
    vae = VAE().to(device)
    x, held = as_unit(pixels["train"], device), as_unit(pixels["validation"], device)
    plan = Plan(
        "vae", recipe.epochs, recipe.batch, recipe.seed, patience=recipe.patience, keep="best"
    )
    run = train(
        vae,
        torch.optim.Adam(vae.parameters(), lr=recipe.learning_rate),
        lambda rows: vae(x[rows]),
        lambda: -float(vae(held)),
        len(x),
        plan,
        checkpoint=checkpoint,
        log=log,
    )
    return vae, run


def tune_encoder(
    encoder: MnistEncoder,
    pixels: dict[str, Pixels],
    labels: dict[str, Labels],
    recipe: VaeRecipe | JointRecipe,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> tuple[nn.Sequential, Trained]:
    """Tune an encoder in place together with a fresh head on its vectors; return the head."""
    device = next(encoder.parameters()).device
    torch.manual_seed(recipe.seed)
    head = mlp("relu", LATENT, dropout=0.0).to(device)
    both = nn.Sequential(encoder, head)
    x, held = as_unit(pixels["train"], device), as_unit(pixels["validation"], device)
    y, truth = (torch.from_numpy(labels[part]).to(device) for part in ("train", "validation"))
    plan = Plan("classifier", recipe.epochs, recipe.batch, recipe.seed)
    if isinstance(recipe, JointRecipe):
        plan, decay = replace(plan, cosine=True, every=_LOG_EVERY), recipe.weight_decay
    else:
        plan, decay = replace(plan, patience=recipe.patience, keep="best"), 0.0
    run = train(
        both,
        torch.optim.Adam(both.parameters(), lr=recipe.learning_rate, weight_decay=decay),
        lambda rows: functional.cross_entropy(both(x[rows]), y[rows]),
        lambda: float((both(held).argmax(1) == truth).float().mean()),
        len(x),
        plan,
        checkpoint=checkpoint,
        log=log,
    )
    return head, run


def embed_digits(
    encoder: MnistEncoder, pixels: Pixels, *, progress: Progress = no_progress
) -> NDArray[np.float32]:
    """Return the vectors of images, (n, 32), on the device where the encoder is."""
    device = next(encoder.parameters()).device
    encoder.eval()
    out = np.empty((len(pixels), LATENT), np.float32)
    with torch.inference_mode():
        for start in range(0, len(out), _DIGITS_AT_ONCE):
            progress("features", start, len(out))
            rows = slice(start, start + _DIGITS_AT_ONCE)
            out[rows] = encoder(as_unit(pixels[rows], device)).cpu().numpy()
    return out
