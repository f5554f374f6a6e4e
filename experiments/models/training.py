"""The training loop: seeded, checkpointed, and the same whether or not it was interrupted.

Every epoch begins with a seed of its own, made from the run's seed and the epoch's number, and a
checkpoint is written when an epoch is over. A run that was killed goes on from the last one and
draws the same numbers as if nothing had happened: on a CPU the weights are the same bit by bit; on
a GPU they are as far as its kernels repeat themselves, which is not promised.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from offaxis.errors import InvalidInput
from offaxis.files import replacing

Log = Callable[[str], None]
"""Called with a line after every epoch."""


def silent(line: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Plan:
    """How long and in which steps.

    Attributes
    ----------
    name : str
        What is trained; a checkpoint of something else is refused.
    epochs, batch, seed : int
        Passes over the data, rows a step, and where randomness begins.
    patience : int, optional
        Stop once so many epochs in a row did not improve the score.
    cosine : bool
        Whether the learning rate falls to zero along half a cosine, step by step.
    warmup : int
        Epochs over which the learning rate rises from zero first.
    keep : "last" or "best"
        Which epoch's weights the model has in the end.
    """

    name: str
    epochs: int
    batch: int
    seed: int = 0
    patience: int | None = None
    cosine: bool = False
    warmup: int = 0
    keep: Literal["last", "best"] = "last"


@dataclass
class Trained:
    """Where a run stands: scores and mean losses so far, and the weights of the best epoch."""

    scores: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the highest score, from 1."""
        return self.scores.index(max(self.scores)) + 1

    def over(self, plan: Plan) -> bool:
        """Whether all epochs are done or patience has run out."""
        done = len(self.scores)
        waited = done - self.best_epoch if done else 0
        return done >= plan.epochs or (plan.patience is not None and waited >= plan.patience)


def choose_device() -> torch.device:
    """Return the GPU when there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Have a GPU convolve in full float32, so that features do not depend on the machine."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor], Tensor],
    score: Callable[[], float],
    rows: int,
    plan: Plan,
    *,
    checkpoint: Path | None = None,
    log: Log = silent,
) -> Trained:
    """Train ``model`` in place.

    Parameters
    ----------
    model, optimizer
        Fresh, and made from the same seed in every attempt.
    loss : callable
        From row numbers to the mean loss of these rows, in training mode.
    score : callable
        The model's score in evaluation mode; more is better.
    rows : int
        How many rows there are to train on.
    checkpoint : Path, optional
        Where the state is kept between epochs; if it is there, training goes on from it.
    """
    run = Trained()
    if checkpoint is not None and checkpoint.exists():
        _resume(checkpoint, plan, model, optimizer, run)
    device = next(model.parameters()).device
    # All steps are of one size; the few rows left over wait for another epoch's order.
    steps = max(1, rows // plan.batch)
    rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    while not run.over(plan):
        epoch = len(run.scores)
        # A seed for every epoch: nothing of the generator's state has to be carried over.
        torch.manual_seed((plan.seed << 32) + epoch + 1)
        model.train()
        order = torch.randperm(rows, device=device)
        total = torch.zeros((), device=device)
        for step in range(steps):
            factor = _rate(plan, epoch * steps + step, steps)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            value = loss(order[step * plan.batch : (step + 1) * plan.batch])
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            optimizer.step()
            total += value.detach()
        model.eval()
        with torch.no_grad():
            run.scores.append(score())
        run.losses.append(float(total) / steps)
        if plan.keep == "best" and run.best_epoch == epoch + 1:
            run.best = copy.deepcopy(model.state_dict())
        if checkpoint is not None:
            _save(checkpoint, plan, model, optimizer, run)
        log(f"{plan.name} {epoch + 1}/{plan.epochs} loss {run.losses[-1]:.4f} {run.scores[-1]:.4f}")
    if plan.keep == "best":
        model.load_state_dict(run.best)
    model.eval()
    return run


def _rate(plan: Plan, step: int, steps: int) -> float:
    """Return the share of the full learning rate that a step takes."""
    rising = plan.warmup * steps
    if step < rising:
        return (step + 1) / rising
    if not plan.cosine:
        return 1.0
    passed = (step - rising) / (plan.epochs * steps - rising)
    return (1 + math.cos(math.pi * passed)) / 2


def _save(
    path: Path, plan: Plan, model: nn.Module, optimizer: torch.optim.Optimizer, run: Trained
) -> None:
    state: dict[str, Any] = {
        "plan": asdict(plan),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "run": {"scores": run.scores, "losses": run.losses, "best": run.best},
    }
    content = io.BytesIO()
    torch.save(state, content)
    with replacing(path) as file:
        file.write(content.getbuffer())


def _resume(
    path: Path, plan: Plan, model: nn.Module, optimizer: torch.optim.Optimizer, run: Trained
) -> None:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        found = state["plan"]
    except Exception as error:  # torch names no class for what a damaged file raises
        raise InvalidInput(f"{path} is no checkpoint: {error}; remove it to start anew") from error
    if found != asdict(plan):
        raise InvalidInput(f"{path} belongs to another run, {found}; remove it or choose --out")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    run.scores, run.losses, run.best = (state["run"][key] for key in ("scores", "losses", "best"))
