"""Train the models of the experiments: ``python -m experiments.models.train NAME``.

``resnet20`` trains the network with its linear head, ``heads`` three heads on its features,
``mnist`` the autoencoder and its classifier. The same command resumes a killed run.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from experiments import data
from experiments.data.cache import Arrays, fingerprint
from experiments.data.sets import Images, Labels, Pixels
from experiments.features import load_features
from experiments.models import heads, networks
from experiments.models.heads import PARTS, part_of
from experiments.models.training import Trained, choose_device
from experiments.models.weights import (
    Card,
    code_hash,
    load_card,
    load_model,
    save_head,
    save_network,
)
from offaxis.errors import OffaxisError


class Name(StrEnum):
    """What can be trained."""

    resnet20 = "resnet20"
    heads = "heads"
    mnist = "mnist"


_SPLIT = "training set 80:20 into train and validation, both public; the test set is private"

Recipe = networks.ResNetRecipe | heads.HeadRecipe | networks.VaeRecipe


def main(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder for weights and cards.")] = Path("weights"),
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0)] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs, instead of the recipe's.", min=1)
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Cache folder with the data sets.")] = None,
) -> None:
    """Train a model, print its accuracies, and write weights and cards."""
    out.mkdir(parents=True, exist_ok=True)
    trainer = {Name.resnet20: _resnet20, Name.heads: _heads, Name.mnist: _mnist}[name]
    try:
        for card in trainer(out, seed, epochs, cache):
            shown = ", ".join(f"{key} {value:.4f}" for key, value in card.metrics.items())
            typer.echo(f"{card.name}: {shown}")
    except OffaxisError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def _resnet20(out: Path, seed: int, epochs: int | None, cache: Path | None) -> list[Card]:
    recipe = _with_epochs(networks.ResNetRecipe(seed=seed), epochs)
    images = data.load("cifar10", cache=cache)
    pixels, labels = _parts(images)
    device = choose_device()
    checkpoint = out / "resnet20.checkpoint"
    net, run = networks.train_resnet20(
        pixels, labels, recipe, device, checkpoint=checkpoint, log=typer.echo
    )
    provenance = _provenance(images, recipe, run, device)
    about = "ResNet-20, images of 32×32×3 → 64 features → 10 logits (weights with linear head)"
    save_network(out, net, Card("resnet20", "", about))
    # Measured on the stored weights: rounded, and read back.
    rounded = load_model("resnet20", folder=out).to(device)
    linear = heads.as_layers(rounded.head, "identity", "cifar10-linear")
    metrics = {
        f"{part} accuracy": heads.accuracy(
            linear, networks.embed_images(rounded, pixels[part]), labels[part]
        )
        for part in PARTS
    }
    cards = [
        save_network(out, net, Card("resnet20", "", about, metrics, provenance)),
        save_head(
            out,
            linear,
            Card("cifar10-linear", "", "the linear head of resnet20", metrics, provenance),
        ),
    ]
    checkpoint.unlink()
    return cards


def _heads(out: Path, seed: int, epochs: int | None, cache: Path | None) -> list[Card]:
    recipe = _with_epochs(heads.HeadRecipe(seed=seed), epochs)
    images = data.load("cifar10", cache=cache)
    pixels, labels = _parts(images)
    if load_card("resnet20", folder=out).sha256 == load_card("resnet20").sha256:
        # The bundled network: its features may already be in the cache.
        vectors = {part: load_features("cifar10", part=part, cache=cache).vectors for part in PARTS}
    else:
        net = load_model("resnet20", folder=out).to(choose_device())
        vectors = {part: networks.embed_images(net, pixels[part]) for part in PARTS}
    # On so small a head, threads wait for each other longer than they work.
    torch.set_num_threads(1)
    cards = []
    for activation in heads.ACTIVATIONS:
        head, run = heads.train_head(activation, vectors, labels, recipe, log=typer.echo)
        layers = heads.as_layers(head, activation, f"cifar10-{activation}")
        metrics = {
            f"{part} accuracy": heads.accuracy(layers, vectors[part], labels[part])
            for part in PARTS
        }
        about = f"head 64→10→32→10 with {activation} on the features of resnet20"
        provenance = _provenance(images, recipe, run, torch.device("cpu"))
        card = Card(layers.name, "", about, metrics, provenance)
        cards.append(save_head(out, layers, card))
    return cards


def _mnist(out: Path, seed: int, epochs: int | None, cache: Path | None) -> list[Card]:
    recipe = _with_epochs(networks.VaeRecipe(seed=seed), epochs)
    images = data.load("mnist", cache=cache)
    pixels, labels = _parts(images)
    device = choose_device()
    checkpoints = [out / f"{stage}.checkpoint" for stage in ("vae", "classifier")]
    vae, vae_run = networks.train_vae(
        pixels, recipe, device, checkpoint=checkpoints[0], log=typer.echo
    )
    encoder = vae.encoder
    head, run = networks.tune_encoder(
        encoder, pixels, labels, recipe, checkpoint=checkpoints[1], log=typer.echo
    )
    provenance = _provenance(images, recipe, run, device)
    provenance["autoencoder"] = _progress(vae_run) | {"validation loss": -max(vae_run.scores)}
    about = "encoder 784→512→512→32: the means of a variational autoencoder, tuned with its head"
    save_network(out, encoder, Card("mnist-encoder", "", about))
    rounded = load_model("mnist-encoder", folder=out)
    layers = heads.as_layers(head, "relu", "mnist-relu")
    metrics = {
        f"{part} accuracy": heads.accuracy(
            layers, networks.embed_digits(rounded, pixels[part]), labels[part]
        )
        for part in PARTS
    }
    cards = [
        save_network(out, encoder, Card("mnist-encoder", "", about, metrics, provenance)),
        save_head(
            out,
            layers,
            Card("mnist-relu", "", "head 32→10→32→10 on mnist-encoder", metrics, provenance),
        ),
    ]
    for checkpoint in checkpoints:
        checkpoint.unlink()
    return cards


def _with_epochs(recipe: Any, epochs: int | None) -> Any:
    return recipe if epochs is None else replace(recipe, epochs=epochs)


def _parts(images: Images) -> tuple[dict[str, Pixels], dict[str, Labels]]:
    pairs = {part: part_of(images, part) for part in PARTS}
    return {p: pair[0] for p, pair in pairs.items()}, {p: pair[1] for p, pair in pairs.items()}


def _progress(run: Trained) -> dict[str, Any]:
    return {"epochs": len(run.scores), "best epoch": run.best_epoch}


def _provenance(
    images: Images, recipe: Recipe, run: Trained, device: torch.device
) -> dict[str, Any]:
    # The same arrays as in the data cache, so that the fingerprints agree.
    arrays: Arrays = {
        "train_images": images.train_images,
        "train_labels": images.train_labels.astype(np.uint8),
        "test_images": images.test_images,
        "test_labels": images.test_labels.astype(np.uint8),
    }
    return {
        "data": {"name": images.name, "sha256": fingerprint(arrays)},
        "split": _SPLIT,
        "recipe": asdict(recipe),
        "run": _progress(run),
        "torch": torch.__version__,
        "device": device.type,
        "code": code_hash(),
    }


if __name__ == "__main__":
    typer.run(main)
