"""Training is seeded, and an interruption changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from experiments.models.heads import mlp
from experiments.models.training import Plan, train
from offaxis.errors import InvalidInput

PLAN = Plan("toy", epochs=6, batch=16, seed=3, cosine=True, warmup=1, keep="best")


class Killed(Exception):
    """The simulated end of a process."""


def run(plan=PLAN, checkpoint=None, kill_after=None):
    torch.manual_seed(plan.seed)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(70, 8, generator=generator)
    y = (x[:, 0] > 0).long()
    model = mlp("relu", 8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    lines = []

    def log(line):
        lines.append(line)
        if len(lines) == kill_after:
            raise Killed

    trained = train(
        model,
        optimizer,
        lambda rows: functional.cross_entropy(model(x[rows]), y[rows]),
        lambda: float((model(x).argmax(1) == y).float().mean()),
        len(x),
        plan,
        checkpoint=checkpoint,
        log=log,
    )
    return model.state_dict(), trained


def same(a, b):
    return all(torch.equal(a[key], b[key]) for key in a)


def test_weights_depend_on_the_seed():
    first, trained = run()
    assert same(first, run()[0])
    assert not same(first, run(Plan("toy", 6, 16, seed=4))[0])
    assert len(trained.scores) == len(trained.losses) == 6
    assert trained.losses[-1] < trained.losses[0]


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, epochs):
    checkpoint = tmp_path / "toy.checkpoint"
    with pytest.raises(Killed):
        run(checkpoint=checkpoint, kill_after=epochs)
    resumed, trained = run(checkpoint=checkpoint)
    whole, uninterrupted = run()
    assert same(resumed, whole)
    assert trained.scores == uninterrupted.scores
    assert trained.losses == uninterrupted.losses


def test_a_damaged_checkpoint_or_one_of_another_run_is_refused(tmp_path):
    checkpoint = tmp_path / "toy.checkpoint"
    run(checkpoint=checkpoint)
    with pytest.raises(InvalidInput, match="another run"):
        run(Plan("toy", 7, 16, seed=3), checkpoint=checkpoint)
    checkpoint.write_bytes(b"torn")
    with pytest.raises(InvalidInput, match="no checkpoint"):
        run(checkpoint=checkpoint)


def scored(scores, plan):
    """Train a model whose single weight counts the epochs, with the given scores."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    next_score = iter(scores).__next__
    trained = train(model, optimizer, lambda _: -model.weight.sum(), next_score, 1, plan)
    return model.weight.item(), trained


def test_patience_stops_and_the_best_epoch_is_kept():
    plan = Plan("toy", epochs=50, batch=1, patience=2, keep="best")
    weight, trained = scored([0.1, 0.5, 0.4, 0.5, 0.9], plan)
    assert len(trained.scores) == 4
    assert trained.best_epoch == weight == 2


def test_by_default_the_last_weights_are_kept():
    weight, _ = scored([0.5, 0.1, 0.2], Plan("toy", epochs=3, batch=1))
    assert weight == 3
