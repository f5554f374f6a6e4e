"""MNIST: a variational autoencoder whose encoder is then tuned together with a classifier.

Encoder 784→512→512→(μ, log σ²) with m = 32, decoder 32→512→512→784, ReLU between layers; binary
cross-entropy plus the divergence from a standard normal law, per image. Afterwards the encoder and
a head 32→10→32→10 are tuned jointly with cross-entropy. The vector z of an image is μ: nothing is
drawn when features are computed.
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
from offaxis.studies.models.heads import mlp
from offaxis.studies.models.training import Log, Plan, Trained, silent, train

PIXELS: Final = 28 * 28
HIDDEN: Final = 512
LATENT: Final = 32

_AT_ONCE = 1_000


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
    """The autoencoder around an encoder; spread and decoder serve its training only."""

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
        """Return the mean loss of images: reconstruction and divergence, summed over an image."""
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
    """How autoencoder and classifier are trained: Adam, and patience on ``validation``."""

    epochs: int = 300
    batch: int = 512
    learning_rate: float = 1e-3
    patience: int = 10
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
    """Train until the loss on ``validation`` has not fallen for ``patience`` epochs."""
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
    recipe: VaeRecipe,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> tuple[nn.Sequential, Trained]:
    """Tune an encoder in place, together with a fresh head on its vectors; return the head."""
    device = next(encoder.parameters()).device
    torch.manual_seed(recipe.seed)
    head = mlp("relu", LATENT, dropout=0.0).to(device)
    both = nn.Sequential(encoder, head)
    x, held = as_unit(pixels["train"], device), as_unit(pixels["validation"], device)
    y, truth = (torch.from_numpy(labels[part]).to(device) for part in ("train", "validation"))
    plan = Plan(
        "classifier",
        recipe.epochs,
        recipe.batch,
        recipe.seed,
        patience=recipe.patience,
        keep="best",
    )
    run = train(
        both,
        torch.optim.Adam(both.parameters(), lr=recipe.learning_rate),
        lambda rows: functional.cross_entropy(both(x[rows]), y[rows]),
        lambda: float((both(held).argmax(1) == truth).float().mean()),
        len(x),
        plan,
        checkpoint=checkpoint,
        log=log,
    )
    return head, run


def embed(
    encoder: MnistEncoder, pixels: Pixels, *, progress: Progress = no_progress
) -> NDArray[np.float32]:
    """Return the vectors of images, (n, 32), on the device where the encoder is."""
    device = next(encoder.parameters()).device
    encoder.eval()
    out = np.empty((len(pixels), LATENT), np.float32)
    with torch.inference_mode():
        for start in range(0, len(out), _AT_ONCE):
            progress("features", start, len(out))
            rows = slice(start, start + _AT_ONCE)
            out[rows] = encoder(as_unit(pixels[rows], device)).cpu().numpy()
    return out
