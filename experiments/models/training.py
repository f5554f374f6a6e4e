"""The training loop: seeded, checkpointed, and unaffected by interruptions.

Every epoch starts with a seed derived from the run's seed and the epoch's number, and ends with a
checkpoint. A killed run resumes from the last checkpoint and draws the same numbers as an
uninterrupted one: on a CPU the weights are identical bit by bit; on a GPU as far as its kernels are
deterministic, which is not guaranteed.
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
"""Called with one line after every epoch."""


def silent(line: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Plan:
    """The schedule of a training run.

    Attributes
    ----------
    name : str
        What is trained; a checkpoint with another plan is rejected.
    epochs, batch, seed : int
        Passes over the data, rows per step, and the seed of all randomness.
    patience : int, optional
        Stop after this many epochs in a row without a better score.
    cosine : bool
        Whether the learning rate falls to zero along half a cosine, step by step.
    warmup : int
        Epochs over which the learning rate first rises from zero.
    drops : tuple of int
        Epochs after which the learning rate is divided by ten.
    keep : "last" or "best"
        The epoch whose weights the model has in the end.
    every : int
        Score every so many epochs only; the others cannot be the best.
    """

    name: str
    epochs: int
    batch: int
    seed: int = 0
    patience: int | None = None
    cosine: bool = False
    warmup: int = 0
    drops: tuple[int, ...] = ()
    keep: Literal["last", "best"] = "last"
    every: int = 1


@dataclass
class Trained:
    """The state of a run: scores and mean losses so far, and the weights of the best epoch."""

    scores: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the highest score, from 1."""
        return self.scores.index(max(self.scores)) + 1

    def is_over(self, plan: Plan) -> bool:
        """Return whether all epochs are done or patience has run out."""
        done = len(self.scores)
        waited = done - self.best_epoch if done else 0
        return done >= plan.epochs or (plan.patience is not None and waited >= plan.patience)


def choose_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Make a GPU convolve in full float32, so that features do not depend on the machine."""
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
        Maps row numbers to the mean loss of these rows, in training mode.
    score : callable
        Returns the model's score in evaluation mode; larger is better.
    rows : int
        The number of training rows.
    checkpoint : Path, optional
        File that keeps the state between epochs; training resumes from an existing one.
    """
    run = Trained()
    if checkpoint is not None and checkpoint.exists():
        _resume(checkpoint, plan, model, optimizer, run)
    device = next(model.parameters()).device
    # All steps have the same size; the few rows left over are dropped in this epoch.
    steps = max(1, rows // plan.batch)
    rates = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    while not run.is_over(plan):
        epoch = len(run.scores)
        # One seed per epoch: the generator's state need not be saved.
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
            run.scores.append(-math.inf if (epoch + 1) % plan.every else score())
        run.losses.append(float(total) / steps)
        if plan.keep == "best" and run.best_epoch == epoch + 1:
            run.best = copy.deepcopy(model.state_dict())
        if checkpoint is not None:
            _save(checkpoint, plan, model, optimizer, run)
        shown = f" {run.scores[-1]:.4f}" if math.isfinite(run.scores[-1]) else ""
        log(f"{plan.name} {epoch + 1}/{plan.epochs} loss {run.losses[-1]:.4f}{shown}")
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
        return float(0.1 ** sum(step >= drop * steps for drop in plan.drops))
    progress = (step - rising) / (plan.epochs * steps - rising)
    return (1 + math.cos(math.pi * progress)) / 2


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
        saved = state["plan"]
    except Exception as error:  # torch documents no class for errors in damaged files
        raise InvalidInput(f"{path} is no checkpoint: {error}; remove it to start again") from error
    if saved != asdict(plan):
        raise InvalidInput(f"{path} belongs to another run, {saved}; remove it or choose --out")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    run.scores, run.losses, run.best = (state["run"][key] for key in ("scores", "losses", "best"))
