"""Train the models of the experiments: ``python -m experiments.models.train NAME``.

``resnet20`` trains the network with its linear head, ``heads`` three heads on its features,
``mnist`` the autoencoder and its classifier. The names that start with ``published-`` do the same
by the recipes of the paper's public code, into the folder ``published``: one encoder per seed, five
heads of each kind per encoder; ``published-task-aware`` trains the mechanism it is compared with.
The same command resumes a killed run of a network or autoencoder.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, replace
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer

from experiments import data
from experiments.data.cache import Arrays, fingerprint
from experiments.data.sets import Images, Labels, Pixels
from experiments.features import load_features
from experiments.models import heads, networks
from experiments.models.heads import PARTS, part_of
from experiments.models.task_aware import TaskAwareRecipe, task_aware_scores, train_task_aware
from experiments.models.training import Trained, choose_device
from experiments.models.weights import (
    CIFAR_ENCODERS,
    STARTS,
    TASK_AWARE,
    Card,
    code_hash,
    load_card,
    load_model,
    save_head,
    save_network,
    save_task_aware,
)
from offaxis.errors import InvalidInput, OffaxisError
from offaxis.evaluation import BUDGETS
from offaxis.geometry import Layers


class Name(StrEnum):
    """What can be trained."""

    resnet20 = "resnet20"
    heads = "heads"
    mnist = "mnist"
    published_resnet20 = "published-resnet20"
    published_heads = "published-heads"
    published_mnist = "published-mnist"
    published_task_aware = "published-task-aware"


_SPLIT = "training set 80:20 into train and validation, both public; the test set is private"

Recipe = (
    networks.ResNetRecipe
    | heads.HeadRecipe
    | networks.VaeRecipe
    | networks.JointRecipe
    | TaskAwareRecipe
)


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
    trainer, published = _TRAINERS[name]
    try:
        for card in trainer(out, seed, epochs, cache, published):
            shown = ", ".join(f"{key} {value:.4f}" for key, value in card.metrics.items())
            typer.echo(f"{card.name}: {shown}")
    except OffaxisError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def _resnet20(
    out: Path, seed: int, epochs: int | None, cache: Path | None, published: bool
) -> list[Card]:
    recipe = networks.ResNetRecipe.reference(seed) if published else networks.ResNetRecipe()
    recipe = _with_epochs(replace(recipe, seed=seed), epochs)
    name = f"published/resnet20-{seed}" if published else "resnet20"
    head_name = f"published/cifar10-linear-{seed}" if published else "cifar10-linear"
    images = data.load("cifar10", cache=cache)
    pixels, labels = _parts(images, published)
    device = choose_device()
    checkpoint = out / f"{name.replace('/', '-')}.checkpoint"
    net, run = networks.train_resnet20(
        pixels, labels, recipe, device, checkpoint=checkpoint, log=typer.echo
    )
    provenance = _provenance(images, recipe, run, device, published)
    about = "ResNet-20, images of 32×32×3 → 64 features → 10 logits (weights with linear head)"
    save_network(out, net, Card(name, "", about))
    # Measured on the stored weights: rounded, and read back.
    rounded = load_model(name, folder=out).to(device)
    linear = heads.as_layers(rounded.head, "identity", head_name)
    vectors = {part: networks.embed_images(rounded, pixels[part]) for part in PARTS}
    metrics = _accuracies(linear, vectors, labels)
    cards = [
        save_network(out, net, Card(name, "", about, metrics, provenance)),
        save_head(
            out, linear, Card(head_name, "", f"the linear head of {name}", metrics, provenance)
        ),
    ]
    checkpoint.unlink()
    return cards


def _heads(
    out: Path, seed: int, epochs: int | None, cache: Path | None, published: bool
) -> list[Card]:
    images = data.load("cifar10", cache=cache)
    network = CIFAR_ENCODERS[seed] if published else "resnet20"
    reference_split = network.startswith("published/")
    pixels, labels = _parts(images, reference_split)
    if _is_bundled(network, out):
        # The bundled network: its features may already be in the cache.
        vectors = {
            part: load_features("cifar10", part=part, network=network, cache=cache).vectors
            for part in PARTS
        }
    else:
        net = load_model(network, folder=out).to(choose_device())
        vectors = {part: networks.embed_images(net, pixels[part]) for part in PARTS}
    # On so small a head, threads wait for each other longer than they work.
    torch.set_num_threads(1)
    if published:
        recipes = {
            f"-{seed}-{start}": heads.HeadRecipe.reference(seed * STARTS + start)
            for start in range(STARTS)
        }
    else:
        recipes = {"": heads.HeadRecipe(seed=seed)}
    jobs = [
        (activation, suffix, _with_epochs(recipe, epochs))
        for activation in heads.ACTIVATIONS
        for suffix, recipe in recipes.items()
    ]
    with (
        ThreadPoolExecutor(1)
        if len(jobs) < 4
        else ProcessPoolExecutor(mp_context=get_context("spawn")) as pool
    ):
        trained = list(
            pool.map(_one_head, *zip(*((*j, vectors, labels) for j in jobs), strict=True))
        )
    cards = []
    for (activation, suffix, recipe), (layers, run) in zip(jobs, trained, strict=True):
        name = f"{'published/' if published else ''}cifar10-{activation}{suffix}"
        about = f"head 64→10→32→10 with {activation} on the features of {network}"
        provenance = _provenance(images, recipe, run, torch.device("cpu"), reference_split)
        metrics = _accuracies(layers, vectors, labels)
        card = Card(name, "", about, metrics, provenance)
        cards.append(save_head(out, replace(layers, name=name), card))
    return cards


def _one_head(
    activation: str,
    suffix: str,
    recipe: heads.HeadRecipe,
    vectors: dict[str, Any],
    labels: dict[str, Labels],
) -> tuple[Layers, Trained]:
    torch.set_num_threads(1)
    head, run = heads.train_head(activation, vectors, labels, recipe)
    return heads.as_layers(head, activation, f"{activation}{suffix}"), run


def _is_bundled(network: str, out: Path) -> bool:
    try:
        return load_card(network, folder=out).sha256 == load_card(network).sha256
    except InvalidInput:
        return False


def _mnist(
    out: Path, seed: int, epochs: int | None, cache: Path | None, published: bool
) -> list[Card]:
    kind = networks.VaeRecipe
    recipe = _with_epochs(kind.reference(seed) if published else kind(seed=seed), epochs)
    joint: networks.VaeRecipe | networks.JointRecipe = recipe
    if published:
        joint = _with_epochs(networks.JointRecipe(seed=seed), epochs)
    name = f"published/mnist-encoder-{seed}" if published else "mnist-encoder"
    head_name = f"published/mnist-relu-{seed}" if published else "mnist-relu"
    images = data.load("mnist", cache=cache)
    pixels, labels = _parts(images, published)
    device = choose_device()
    checkpoints = [
        out / f"{name.replace('/', '-')}-{stage}.checkpoint" for stage in ("vae", "classifier")
    ]
    vae, vae_run = networks.train_vae(
        pixels, recipe, device, checkpoint=checkpoints[0], log=typer.echo
    )
    encoder = vae.encoder
    head, run = networks.tune_encoder(
        encoder, pixels, labels, joint, checkpoint=checkpoints[1], log=typer.echo
    )
    provenance = _provenance(images, joint, run, device, published)
    provenance["autoencoder"] = _progress(vae_run) | {"validation loss": -max(vae_run.scores)}
    about = "encoder 784→512→512→32: the means of a variational autoencoder, tuned with its head"
    save_network(out, encoder, Card(name, "", about))
    rounded = load_model(name, folder=out)
    layers = heads.as_layers(head, "relu", head_name)
    vectors = {part: networks.embed_digits(rounded, pixels[part]) for part in PARTS}
    metrics = _accuracies(layers, vectors, labels)
    cards = [
        save_network(out, encoder, Card(name, "", about, metrics, provenance)),
        save_head(
            out, layers, Card(head_name, "", f"head 32→10→32→10 on {name}", metrics, provenance)
        ),
    ]
    for checkpoint in checkpoints:
        checkpoint.unlink()
    return cards


def _task_aware(
    out: Path, seed: int, epochs: int | None, cache: Path | None, published: bool
) -> list[Card]:
    recipe = _with_epochs(TaskAwareRecipe(seed=seed), epochs)
    images = data.load("mnist", cache=cache)
    device = choose_device()
    reader, pairs = train_task_aware(
        images.train_images, images.train_labels, BUDGETS, recipe, device, log=typer.echo
    )
    about = "the task-aware mechanism of Cheng et al. (2022): 784→3→784 per budget, and its reader"
    provenance = _provenance(images, recipe, None, device, published)
    card = Card(TASK_AWARE, "", about, {}, provenance)
    save_task_aware(out, reader, pairs, card)
    reader, pairs = load_model(TASK_AWARE, folder=out)
    scores = task_aware_scores(reader, pairs, images.test_images, images.test_labels, 1)
    metrics = {
        f"accuracy at ε = {epsilon:g}": float(value)
        for epsilon, value in zip(
            BUDGETS, scores.reshape(-1, len(BUDGETS)).mean(axis=0), strict=True
        )
    }
    return [save_task_aware(out, reader, pairs, replace(card, metrics=metrics))]


_TRAINERS: Final = {
    Name.resnet20: (_resnet20, False),
    Name.heads: (_heads, False),
    Name.mnist: (_mnist, False),
    Name.published_resnet20: (_resnet20, True),
    Name.published_heads: (_heads, True),
    Name.published_mnist: (_mnist, True),
    Name.published_task_aware: (_task_aware, True),
}


def _accuracies(
    head: Layers, vectors: dict[str, Any], labels: dict[str, Labels]
) -> dict[str, float]:
    return {f"{part} accuracy": heads.accuracy(head, vectors[part], labels[part]) for part in PARTS}


def _with_epochs(recipe: Any, epochs: int | None) -> Any:
    return recipe if epochs is None else replace(recipe, epochs=epochs)


def _parts(images: Images, published: bool) -> tuple[dict[str, Pixels], dict[str, Labels]]:
    pairs = {part: part_of(images, part, reference=published) for part in PARTS}
    return {p: pair[0] for p, pair in pairs.items()}, {p: pair[1] for p, pair in pairs.items()}


def _progress(run: Trained) -> dict[str, Any]:
    return {"epochs": len(run.scores), "best epoch": run.best_epoch}


def _provenance(
    images: Images, recipe: Recipe, run: Trained | None, device: torch.device, published: bool
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
        "split": f"{_SPLIT}; rows of the reference" if published else _SPLIT,
        "recipe": asdict(recipe),
        "run": {} if run is None else _progress(run),
        "torch": torch.__version__,
        "device": device.type,
        "code": code_hash(),
    }


if __name__ == "__main__":
    typer.run(main)
