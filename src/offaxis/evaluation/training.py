"""Training the affine maps of a release, with clipping and noise between them.

It needs torch, and a task with derivatives. The maps are public like any others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from offaxis.decoding import LinearDecoder
from offaxis.encoding import AffineEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import TaskModel, as_task_model
from offaxis.geometry.public import evenly
from offaxis.mechanisms.networks import TaskOutputs
from offaxis.randomizers.base import Ball
from offaxis.randomizers.laplace import LatticeForm
from offaxis.randomizers.privunit import RankForm
from offaxis.release import Release
from offaxis.simulation import draw_observations
from offaxis.vectors import Vectors

__all__ = ["end_to_end"]

_NUMBERS: Final = 1 << 22
"""The most numbers of public vectors that are trained on."""

_STEPS: Final = 2000
_BATCH: Final = 512
_RATE: Final = 3e-3
_CHECKS: Final = 8
"""How often during the training the maps are compared on held-out vectors."""

_HELD_OUT: Final = 5
"""One public vector in this many is held out."""

_REPEATS: Final = 4


def end_to_end(
    release: Release, model: Any, public: Any, *, steps: int = _STEPS, seed: int = 0
) -> Release:
    """Train the affine maps of a release on what its decoded reports do to the task.

    Contract: the randomizer's kind, budget and guarantee stay; encoder, radius and decoder remain
    public maps. Reshapings minimise a surrogate: noise to first order, without clipping. Here a
    fifth of the public vectors is held out, and the maps w = A(z − c), clipping to the ball, and
    ẑ = Bv + d are trained together, through the randomizer, by the cross entropy of the model's
    own answers (one output: by its squared error). The maps that do best on the held-out vectors
    are returned; if none is better there, the release itself. Means over people are biased.

    Noise that does not depend on the vector is added; that of a direction is drawn at a pole and
    reflected onto the direction, which has the same law and a derivative.

    Parameters
    ----------
    release : Release
        Of "laplace", "spherical-laplace", "gaussian", "privunit2", "privunitg" or "projunit", with
        affine maps. A good start is that of :func:`offaxis.evaluation.tune`.
    model : model
        The public task, as in :func:`offaxis.fit`; it must have derivatives.
    public : array (n, m), or callable returning an iterator of batches
    steps, seed : int
        Number of training steps, and the seed of the training.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation.training import end_to_end
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((3, 6)), rng.standard_normal((1000, 6))
    >>> release = offaxis.fit(head, public, epsilon=4, mechanism="privunit2")
    >>> trained = end_to_end(release, head, public, steps=40)  # 2,000 by default
    >>> trained.guarantee == release.guarantee
    True
    """
    task = as_task_model(model)
    _check_maps(release)
    Z = evenly(public, max(2, _NUMBERS // release.input_dim))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for matrices this small, threads cost more than they save
    try:
        return _train_maps(release, task, Z, steps, seed)
    finally:
        torch.set_num_threads(threads)


def _check_maps(release: Release) -> None:
    randomizer = release.randomizer
    known = isinstance(randomizer, LatticeForm | RankForm) and (
        getattr(randomizer, "target", "direction") == "direction"
    )
    affine = isinstance(release.encoder, AffineEncoder) and isinstance(
        release.decoder, LinearDecoder
    )
    if not known or not affine:
        raise InvalidInput(
            f"maps are trained for additive noise and for directions between affine maps, not for "
            f"{randomizer.kind} between {release.encoder.kind} and {release.decoder.kind}: fit a "
            f"release with mechanism='privunit2' or 'laplace' and a reshaping"
        )


def _train_maps(release: Release, task: TaskModel, Z: Vectors, steps: int, seed: int) -> Release:
    rng = np.random.default_rng(seed)
    held = rng.permutation(len(Z)) < len(Z) // _HELD_OUT
    fitted_to, held_out = Z[~held], np.tile(Z[held], (_REPEATS, 1))
    if not held.any():
        raise InvalidInput(f"training needs at least {_HELD_OUT} public vectors, got {len(Z)}")
    encoder: Any = release.encoder
    decoder: Any = release.decoder
    on_unit: Any = replace(release.randomizer, radius=1.0)  # type: ignore[type-var]
    radius = release.randomizer.radius  # type: ignore[attr-defined]
    starts = (encoder.matrix / radius, decoder.matrix * radius, decoder.offset)
    A, B, d = (torch.tensor(part, dtype=torch.float32, requires_grad=True) for part in starts)
    centred = torch.as_tensor(fitted_to - encoder.centre, dtype=torch.float32)
    answers = np.array(task.outputs(fitted_to))
    best, best_score = release, _score(release, task, held_out, seed)
    optimizer = torch.optim.Adam([A, B, d], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        rows = rng.integers(0, len(centred), _BATCH)
        decoded = _observed(on_unit, centred[rows] @ A.T, rng) @ B.T + d
        outputs: torch.Tensor = TaskOutputs.apply(decoded, task)  # type: ignore[no-untyped-call]
        loss = _loss(outputs, answers[rows], answers)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % max(1, steps // _CHECKS) == 0:
            A_now, B_now, d_now = (part.detach().double().numpy() for part in (A, B, d))
            maps = AffineEncoder(A_now, encoder.centre), LinearDecoder(B_now, d_now)
            trained = replace(release, encoder=maps[0], randomizer=on_unit, decoder=maps[1])
            score = _score(trained, task, held_out, seed)
            if score > best_score:
                best, best_score = trained, score
    return best if best is release else _without_expectation(best)


def _without_expectation(release: Release) -> Release:
    """Record that the maps were trained; what the start was expected to keep no longer holds."""
    omitted = ("goal", "expected", "ceiling", "percentile")
    provenance = release.provenance
    settings = {k: v for k, v in provenance.settings.items() if k not in omitted}
    settings["trained"] = "end to end"
    return replace(release, provenance=replace(provenance, settings=settings))


def _observed(randomizer: Any, W: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Draw observations of rows with the randomizer's law, differentiable in the rows."""
    domain, shape = randomizer.domain, tuple(W.shape)
    if isinstance(domain, Ball):
        noise = draw_observations(randomizer, np.zeros(shape), rng)
        lengths = torch.linalg.vector_norm(W, ord=domain.order, dim=1, keepdim=True)
        clipped = W / lengths.clamp_min(domain.radius) * domain.radius
        noisy: torch.Tensor = clipped + torch.as_tensor(noise, dtype=W.dtype)
        return noisy
    pole = np.zeros(shape)
    pole[:, 0] = 1.0
    drawn = torch.as_tensor(draw_observations(randomizer, pole, rng), dtype=W.dtype)
    unit = W / torch.linalg.vector_norm(W, dim=1, keepdim=True).clamp_min(1e-12)
    # A reflection takes the pole to the direction; of two, the one whose axis is longer.
    side = torch.where(unit[:, :1] > 0, -1.0, 1.0)
    axis = side * torch.as_tensor(pole, dtype=W.dtype) - unit
    share = 2 * (axis * drawn).sum(dim=1, keepdim=True) / (axis * axis).sum(dim=1, keepdim=True)
    observed: torch.Tensor = side * (drawn - share * axis)
    return observed


def _loss(outputs: torch.Tensor, answers: Vectors, every: Vectors) -> torch.Tensor:
    if outputs.shape[1] == 1:
        lost = outputs - torch.as_tensor(answers, dtype=outputs.dtype)
        squared: torch.Tensor = lost.square().mean() / max(float(every.var()), 1e-12)
        return squared
    right = torch.as_tensor(answers.argmax(axis=1))
    if (every >= 0).all() and np.allclose(every.sum(axis=1), 1):
        outputs = outputs.clamp_min(1e-9).log()
    return torch.nn.functional.cross_entropy(outputs, right)


def _score(release: Release, task: TaskModel, Z: Vectors, seed: int) -> float:
    """Return how often the answers of held-out vectors are kept; of one output, less its error."""
    rng = np.random.default_rng([seed, 1])
    observed = draw_observations(release.randomizer, release.encoder.encode(Z), rng)
    given, kept = task.outputs(Z), task.outputs(release.decoder.decode(observed))
    if given.shape[1] == 1:
        return -float(np.square(given - kept).mean())
    return float((given.argmax(axis=1) == kept.argmax(axis=1)).mean())
