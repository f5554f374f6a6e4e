"""The public and private parts of the image sets, and the heads trained on their features.

The training set of a data set is split 80:20 into *train* and *validation*, by a seed that is part
of the experiment and independent of the seed of a training run. Both are **public**: networks and
heads are trained on ``train``, epochs are chosen on ``validation``, and a release is fitted on
``train``. The *test* set, clean or corrupted, is **private**: it represents people's data, and
nothing is trained, fitted or chosen on it.

A head is the public model of a release: a multilayer perceptron m→10→32→10 with dropout 0.3 after
each activation, or the linear head that a network was trained with. Heads are trained in torch and
stored as :class:`offaxis.geometry.Layers`, so that evaluating a release needs NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from experiments.data import Images
from experiments.data.sets import Labels, Pixels
from experiments.models.training import Log, Plan, Trained, silent, train
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers

PARTS: Final = ("train", "validation", "test")
PUBLIC: Final = ("train", "validation")

_SEED = 0
_REFERENCE_SEED = 42
_VALIDATION_SHARE = 0.2


def split_rows(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a training set that are for training and for validation, in order."""
    shuffled = np.random.default_rng(_SEED).permutation(rows)
    cut = rows - round(_VALIDATION_SHARE * rows)
    return np.sort(shuffled[:cut]), np.sort(shuffled[cut:])


def reference_rows(data: str, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same for the split of the paper's public code, row for row.

    For CIFAR-10 the first fifth of NumPy's permutation of seed 42 is for validation, for MNIST the
    last fifth of torch's.
    """
    held = round(_VALIDATION_SHARE * rows)
    if data == "mnist":
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(_REFERENCE_SEED))
        shuffled = np.roll(order.numpy(), held)
    else:
        shuffled = np.random.default_rng(_REFERENCE_SEED).permutation(rows)
    return np.sort(shuffled[held:]), np.sort(shuffled[:held])


def part_of(images: Images, part: str, *, reference: bool = False) -> tuple[Pixels, Labels]:
    """Return the images and labels of a part; rows keep the order of the data set."""
    if part == "test":
        return images.test_images, images.test_labels
    if part not in PUBLIC:
        raise InvalidInput(f"part must be one of {', '.join(PARTS)}, got part={part!r}")
    count = len(images.train_labels)
    split = reference_rows(images.name, count) if reference else split_rows(count)
    rows = split[PUBLIC.index(part)]
    return images.train_images[rows], images.train_labels[rows]


# ---- Heads on frozen features

ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,  # the exact one, x Φ(x), is torch's default
    "tanh": nn.Tanh,
}
HIDDEN: Final = (10, 32)
DROPOUT: Final = 0.3

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class HeadRecipe:
    """How a head is trained on features: a cosine schedule, the best of several starts.

    ``decoupled`` chooses AdamW instead of Adam, ``centred`` whether the first layer starts centred
    on the mean feature, ``every`` after how many epochs the validation score is looked at.
    """

    starts: int = 5
    epochs: int = 60
    batch: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    decoupled: bool = True
    centred: bool = True
    every: int = 1
    seed: int = 0

    @classmethod
    def reference(cls, seed: int) -> HeadRecipe:
        """Return the recipe of the paper's public code: one start, Adam, not centred."""
        return cls(1, 100, 256, 1e-3, 1e-4, decoupled=False, centred=False, every=20, seed=seed)


def mlp(activation: str, inputs: int, outputs: int = 10, dropout: float = DROPOUT) -> nn.Sequential:
    """Return a fresh head m→10→32→k."""
    sizes = (inputs, *HIDDEN)
    parts: list[nn.Module] = []
    for inward, outward in zip(sizes, HIDDEN, strict=False):
        parts += [nn.Linear(inward, outward), ACTIVATIONS[activation](), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], outputs))


def as_layers(head: nn.Module, activation: str, name: str) -> Layers:
    """Return the weights of a head, rounded to float16, as plain layers."""
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    return Layers(
        [_rounded(linear.weight) for linear in linears],
        [_rounded(linear.bias) for linear in linears],
        activation=activation,
        name=name,
    )


def _rounded(weight: Tensor) -> NDArray[np.float64]:
    return weight.detach().cpu().half().double().numpy()


def accuracy(head: Layers, vectors: Floats, labels: Labels) -> float:
    """Return the share of vectors whose largest logit is the right one."""
    return float((head.outputs(vectors.astype(np.float64)).argmax(1) == labels).mean())


def train_head(
    activation: str,
    vectors: dict[str, Floats],
    labels: dict[str, Labels],
    recipe: HeadRecipe,
    log: Log = silent,
) -> tuple[nn.Sequential, Trained]:
    """Train on ``train``; keep the start and the epoch that are best on ``validation``.

    A head this narrow depends on its start: a ReLU that is never active stays inactive.
    """
    attempts = [
        _attempt(activation, vectors, labels, recipe, start, log) for start in range(recipe.starts)
    ]
    return max(attempts, key=lambda attempt: max(attempt[1].scores))


def _attempt(
    activation: str,
    vectors: dict[str, Floats],
    labels: dict[str, Labels],
    recipe: HeadRecipe,
    start: int,
    log: Log,
) -> tuple[nn.Sequential, Trained]:
    seed = recipe.seed * recipe.starts + start
    torch.manual_seed(seed)
    x, y = torch.from_numpy(vectors["train"]), torch.from_numpy(labels["train"])
    held, truth = torch.from_numpy(vectors["validation"]), torch.from_numpy(labels["validation"])
    head = mlp(activation, x.shape[1])
    if recipe.centred:
        _centre(head, x.mean(0))
    adam = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
    optimizer = adam(head.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)

    def loss(rows: Tensor) -> Tensor:
        return functional.cross_entropy(head(x[rows]), y[rows])

    def score() -> float:
        return float((head(held).argmax(1) == truth).float().mean())

    plan = Plan(
        f"{activation} head, start {start + 1}",
        recipe.epochs,
        recipe.batch,
        seed,
        cosine=True,
        keep="best",
        every=recipe.every,
    )
    return head, train(head, optimizer, loss, score, len(x), plan, log=log)


def _centre(head: nn.Sequential, mean: Tensor) -> None:
    """Centre the first layer at the vectors' mean, which is not 0, as features are nonnegative.

    Otherwise some units would start far from the data.
    """
    first = head[0]
    if isinstance(first, nn.Linear):
        with torch.no_grad():
            first.bias.copy_(-first.weight @ mean)
