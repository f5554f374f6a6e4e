"""From a guarantee for vectors to one for the images (or texts) they were extracted from.

Contract: :func:`image_level_guarantee` returns a guarantee only if the conditions of the corollary
are declared and, as far as code can see them, hold. Where the extractor was fitted and where it
runs cannot be seen from here, so they are declared and become assumptions of the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee
from offaxis.release import Release
from offaxis.vectors import Vectors

FittedOn = Literal["public", "private"]
RunsOn = Literal["client", "server"]

_ASSUMPTIONS: Final = (
    "the feature extractor was fixed before any private image was seen, and its parameters were "
    "fitted on public data only",
    "the feature extractor runs on the client, and neither the image nor its vector leaves it",
    "the feature extractor gives a finite vector for every image: a client that fails to report "
    "reveals that it holds an image of another kind",
)

_SAME: Final = 1e-4
"""Relative tolerance between two extractions: rounding depends on the size of a batch."""


@dataclass(frozen=True)
class FeatureExtraction:
    """A feature extractor, and the two conditions that no code can check.

    Attributes
    ----------
    extract : callable
        Maps a list of images to vectors (n, m).
    fitted_on : {"public", "private"}
        The data its parameters were fitted on. Publish nothing that was fitted on private images:
        the parameters are known to everyone and carry no noise.
    runs_on : {"client", "server"}
        Where it runs. A server that extracts the vectors has seen the images.

    Examples
    --------
    >>> from offaxis.theory import FeatureExtraction
    >>> def brightness(images):
    ...     return np.array([[image.mean(), image.std()] for image in images])
    >>> FeatureExtraction(brightness, fitted_on="public", runs_on="client").runs_on
    'client'
    """

    extract: Callable[[Sequence[Any]], Any]
    fitted_on: FittedOn
    runs_on: RunsOn

    def __post_init__(self) -> None:
        """Check the declarations."""
        if self.fitted_on not in get_args(FittedOn):
            raise InvalidInput(
                f"fitted_on must be 'public' or 'private', got fitted_on={self.fitted_on!r}"
            )
        if self.runs_on not in get_args(RunsOn):
            raise InvalidInput(f"runs_on must be 'client' or 'server', got runs_on={self.runs_on}")


def image_level_guarantee(
    release: Release, extraction: FeatureExtraction, examples: Sequence[Any]
) -> Guarantee:
    """Return the guarantee of a report about the *image* it was made from.

    Let E be a fixed, deterministic feature extractor and Φ a release that is (ε, δ) for every two
    vectors. Then Φ∘E is (ε, δ) for every two images: E(x) and E(x') are two vectors, so

        Pr[Φ(E(x)) ∈ S] ≤ e^ε Pr[Φ(E(x')) ∈ S] + δ   for all images x, x' and all sets S.

    The unit stays that of the release: with the unit "item", one image. Holds if E was fitted on
    public data, runs on the client, and nothing but the report leaves it. If a server extracts the
    vectors, it has seen the image and only the vector is protected, against everybody else. Both
    conditions are declared in ``extraction``. The examples check that E maps every image alone and
    always to the same vector (a network that normalises over its batch does not), and that the
    vectors fit the release. (Paper: corollary "Image-level LDP under client-side feature
    extraction"; :class:`~offaxis.integrations.transformers.PrivateFeatures` is Φ∘E.)

    Parameters
    ----------
    examples : sequence of images
        At least two different **public** images.

    Raises
    ------
    InvalidInput
        If a condition fails; the message names it.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.theory import FeatureExtraction, image_level_guarantee
    >>> def brightness(images):  # in practice: a pre-trained network
    ...     return np.array([[image.mean(), image.std()] for image in images])
    >>> public = list(np.random.default_rng(0).random((100, 8, 8)))
    >>> release = offaxis.fit(np.eye(2), brightness(public), epsilon=4, mechanism="laplace")
    >>> on_client = FeatureExtraction(brightness, fitted_on="public", runs_on="client")
    >>> print(image_level_guarantee(release, on_client, public[:5]))
    ε = 4, pure
    >>> on_server = FeatureExtraction(brightness, fitted_on="public", runs_on="server")
    >>> image_level_guarantee(release, on_server, public[:5])
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: the condition 'extracted on the client' fails: a server that ...
    """
    if extraction.fitted_on != "public":
        raise InvalidInput(
            "the condition 'fixed public extractor' fails: the parameters of an extractor that was "
            "fitted on private images reveal them without any noise; fit it on public data"
        )
    if extraction.runs_on != "client":
        raise InvalidInput(
            "the condition 'extracted on the client' fails: a server that extracts the vector has "
            "seen the image; the guarantee then covers the vector only (release.guarantee)"
        )
    _check_each_alone(release, extraction, list(examples))
    single = release.guarantee
    return Guarantee(
        single.epsilon, single.delta, single.unit, (*single.assumptions, *_ASSUMPTIONS)
    )


def _check_each_alone(release: Release, extraction: FeatureExtraction, examples: list[Any]) -> None:
    if len(examples) < 2:
        raise InvalidInput(f"examples must hold at least two public images, got {len(examples)}")
    together = _vectors(release, extraction, examples)
    size = _SAME * float(np.abs(together).max())
    if not np.allclose(together, _vectors(release, extraction, examples), rtol=0, atol=size):
        raise InvalidInput(
            "the condition 'deterministic extractor' fails: the same images gave other vectors; "
            "switch off dropout and random augmentation"
        )
    alone = np.concatenate([_vectors(release, extraction, [image]) for image in examples])
    if not np.allclose(together, alone, rtol=0, atol=size):
        raise InvalidInput(
            "the condition 'one image, one vector' fails: the vector of an image depends on the "
            "other images of its batch; set the network to evaluation mode"
        )


def _vectors(release: Release, extraction: FeatureExtraction, images: list[Any]) -> Vectors:
    rows = np.asarray(extraction.extract(images), dtype=np.float64)
    expected = (len(images), release.input_dim)
    if rows.shape != expected or not np.isfinite(rows).all():
        raise InvalidInput(
            f"the condition 'vectors of the release' fails: {len(images)} images must give finite "
            f"vectors of shape {expected}, got shape {rows.shape}"
        )
    return rows
