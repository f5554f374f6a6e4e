"""Trained weights: one safetensors file per model, and a card with its provenance.

The card, JSON, states the SHA-256 of the file; loading a file with another hash is an error. Heads
are :class:`offaxis.geometry.Layers` and need no torch. Weight matrices are rounded to float16, and
the metrics on a card were measured after rounding.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from experiments.data.cache import make_folder
from offaxis.errors import InvalidInput, OffaxisError
from offaxis.files import replacing
from offaxis.geometry import Layers

if TYPE_CHECKING:
    from torch import nn

    from experiments.models.task_aware import DigitReader, LinearPairs

CIFAR_ENCODERS: Final = ("published/resnet20-0", "published/resnet20-1")
"""The networks on whose features the heads of the reference recipe are trained."""

STARTS: Final = 5
"""Heads of the reference recipe per kind and encoder."""

DIGIT_STARTS: Final = 5
"""MNIST encoders of the reference recipe, each tuned together with its own head."""


def reference_heads() -> dict[str, tuple[str, ...]]:
    """Return the heads trained by the recipe of the paper's public code, by data set.

    Examples
    --------
    >>> from experiments.models.weights import reference_heads
    >>> reference_heads()["mnist"]
    ('relu-0', 'relu-1', 'relu-2', 'relu-3', 'relu-4')
    """
    encoders = range(len(CIFAR_ENCODERS))
    cifar10 = [f"linear-{encoder}" for encoder in encoders]
    for kind in ("relu", "gelu", "tanh"):
        cifar10 += [f"{kind}-{encoder}-{start}" for encoder in encoders for start in range(STARTS)]
    return {
        "cifar10": tuple(cifar10),
        "mnist": tuple(f"relu-{start}" for start in range(DIGIT_STARTS)),
    }


def network_of(data: str, head: str) -> str:
    """Return the network whose vectors a head of the reference recipe reads.

    Examples
    --------
    >>> from experiments.models.weights import network_of
    >>> network_of("mnist", "relu-2")
    'published/mnist-encoder-2'
    """
    number = int(head.split("-")[1])
    return CIFAR_ENCODERS[number] if data == "cifar10" else f"published/mnist-encoder-{number}"


NETWORKS: Final = (
    "resnet20",
    "mnist-encoder",
    *CIFAR_ENCODERS,
    *(f"published/mnist-encoder-{start}" for start in range(DIGIT_STARTS)),
)
"""torch modules, from images to vectors."""

HEADS: Final = (
    "cifar10-linear",
    "cifar10-relu",
    "cifar10-gelu",
    "cifar10-tanh",
    "mnist-relu",
    *(f"published/{data}-{head}" for data, names in reference_heads().items() for head in names),
)
"""Plain layers, from vectors to logits."""

TASK_AWARE: Final = "published/mnist-task-aware"
"""The mechanism of Cheng et al. (2022), for every budget."""

NAMES: Final = (*NETWORKS, *HEADS, TASK_AWARE)


class DamagedWeights(OffaxisError, ValueError):
    """A weights file does not have the hash on its card.

    Examples
    --------
    >>> from pathlib import Path
    >>> from experiments.models import DamagedWeights, load_card, load_model
    >>> from experiments.models.weights import save_head
    >>> folder, card = Path("weights"), load_card("mnist-relu")
    >>> card = save_head(folder, load_model("mnist-relu"), card)
    >>> size = (folder / "mnist-relu.safetensors").write_bytes(b"something else")
    >>> try:
    ...     load_model("mnist-relu", folder=folder)
    ... except DamagedWeights as error:
    ...     print(error)
    weights/mnist-relu.safetensors has SHA-256 ..., its card states ...; restore the file or train
    mnist-relu again
    """


@dataclass(frozen=True)
class Card:
    """Metrics and provenance of a model.

    Attributes
    ----------
    name, sha256 : str
        The model and the hash of its file.
    about : str
        What it maps to what.
    metrics : dict
        Accuracies by name.
    provenance : dict
        Data and their fingerprints, recipe, seed, epochs, versions, hash of the training code.

    Examples
    --------
    >>> from experiments.models import Card, load_card
    >>> card: Card = load_card("resnet20")
    >>> card.provenance["data"]["name"], card.provenance["recipe"]["epochs"]
    ('cifar10', 200)
    """

    name: str
    sha256: str
    about: str
    metrics: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


def _folder(folder: Path | None) -> Traversable:
    return files("experiments").joinpath("weights") if folder is None else folder


def _file(name: str) -> str:
    return f"{name}.safetensors"


def load_card(name: str, *, folder: Path | None = None) -> Card:
    """Return the card of a bundled model, or of one in ``folder``.

    Examples
    --------
    >>> from experiments.models import load_card
    >>> card = load_card("cifar10-relu")
    >>> card.about
    'head 64→10→32→10 with relu on the features of resnet20'
    >>> round(card.metrics["test accuracy"], 2)
    0.91
    """
    if name not in NAMES:
        raise InvalidInput(f"no model {name!r}; choose one of {', '.join(NAMES)}")
    try:
        text = _folder(folder).joinpath(f"{name}.json").read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"no weights of {name} in {_folder(folder)}; train them first"
        ) from error
    return Card(**json.loads(text))


def load_model(name: str, *, folder: Path | None = None) -> Any:
    """Return a trained model: a torch module in evaluation mode, or ``Layers`` for a head.

    Parameters
    ----------
    name : str
        One of ``experiments.models.NAMES``.
    folder : Path, optional
        Folder with other weights than the bundled ones.

    Raises
    ------
    DamagedWeights
        If the file's SHA-256 is not the one on its card.

    Examples
    --------
    >>> from experiments.models import load_model
    >>> head = load_model("cifar10-relu")
    >>> [weight.shape for weight in head.weights]
    [(10, 64), (32, 10), (10, 32)]
    """
    card = load_card(name, folder=folder)
    resource = _folder(folder).joinpath(_file(name))
    digest = hashlib.sha256(resource.read_bytes()).hexdigest()
    if digest != card.sha256:
        raise DamagedWeights(
            f"{resource} has SHA-256 {digest[:16]}…, its card states {card.sha256[:16]}…; "
            f"restore the file or train {name} again"
        )
    if name in HEADS:
        with as_file(resource) as path:
            return Layers.load(path)
    if name == TASK_AWARE:
        return _task_aware(resource.read_bytes())
    return _network(name, resource.read_bytes())


def _network(name: str, content: bytes) -> nn.Module:
    from safetensors.torch import load

    from experiments.models.networks import MnistEncoder, ResNet20

    projected = name in CIFAR_ENCODERS
    net: nn.Module = ResNet20(projected=projected) if "resnet20" in name else MnistEncoder()
    # Copying into float32 parameters widens the stored float16 values.
    net.load_state_dict(load(content))
    return net.eval()


def _task_aware(content: bytes) -> tuple[DigitReader, LinearPairs]:
    from safetensors.torch import load

    from experiments.models.task_aware import DigitReader, LinearPairs

    tensors = load(content)
    reader, budgets = DigitReader(), tensors["epsilons"].flatten().tolist()
    pairs = LinearPairs(1, budgets)
    reader.load_state_dict({key: tensors.pop(key) for key in reader.state_dict()})
    pairs.load_state_dict(tensors)
    return reader.eval(), pairs.eval()


def save_network(folder: Path, net: nn.Module, card: Card) -> Card:
    """Store a network, with matrices in float16; return the finished card."""
    return _save(folder, net.state_dict(), card)


def save_task_aware(folder: Path, reader: DigitReader, pairs: LinearPairs, card: Card) -> Card:
    """Store the task-aware mechanism and its reader in one file; return the finished card."""
    return _save(folder, reader.state_dict() | pairs.state_dict(), card)


def _save(folder: Path, tensors: dict[str, Any], card: Card) -> Card:
    from safetensors.torch import save

    rounded = {
        key: (value.half() if value.ndim > 1 else value).detach().cpu().contiguous()
        for key, value in tensors.items()
    }
    return _store(folder, save(rounded), card)


def save_head(folder: Path, head: Layers, card: Card) -> Card:
    """Store a head; return the finished card."""
    path = folder / _file(card.name)
    make_folder(path.parent)
    head.save(path)
    return _store(folder, path.read_bytes(), card)


def _store(folder: Path, content: bytes, card: Card) -> Card:
    finished = Card(**{**asdict(card), "sha256": hashlib.sha256(content).hexdigest()})
    path = folder / _file(card.name)
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(content)
    save_card(folder, finished)
    return finished


def save_card(folder: Path, card: Card) -> None:
    """Write a card next to its weights."""
    text = json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n"
    with replacing(folder / f"{card.name}.json") as file:
        file.write(text.encode())


def code_hash() -> str:
    """Return the SHA-256 of the training code: the Python files of this folder, by name."""
    digest = hashlib.sha256()
    for source in sorted(files("experiments.models").iterdir(), key=lambda entry: entry.name):
        if source.name.endswith(".py"):
            digest.update(f"{source.name}\n".encode() + source.read_bytes())
    return digest.hexdigest()
