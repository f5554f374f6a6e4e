"""A release's public encoder, with a network in front if there is one, as an ONNX model.

**The graph is not private.** It holds what is public and deterministic. The client behind it clips
and draws exact noise from the operating system's randomness; a graph could draw floating-point
noise only, which leaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx import ModelProto, helper

from offaxis.arrays import to_numpy
from offaxis.errors import InvalidInput
from offaxis.faces.onnx.graph import encoder_graph, model_of
from offaxis.faces.onnx.network import behind, from_layers, from_torch
from offaxis.formats.reports import frame
from offaxis.geometry import Layers
from offaxis.randomizers.domain import FiniteSet
from offaxis.release import Release
from offaxis.sampling.entropy import Entropy
from offaxis.version import __version__

Precision = Literal["float32", "float64"]

_SINGLE_RADII: Final = (2.0**-40, 2.0**40)
NOT_PRIVATE: Final = (
    "This graph is the public encoder only and protects nobody. What it returns must pass "
    "the release's randomizer before it leaves the device."
)


def to_onnx(
    release: Release,
    network: Any = None,
    *,
    example: Any = None,
    names: Sequence[str] | None = None,
    free_axes: Sequence[int] = (0,),
    dtype: Precision = "float32",
) -> ModelProto:
    """Return the public encoder of a release as an ONNX model; **no noise is in it**.

    From ``vectors`` (n, m) to ``encoded`` (n, r), or to ``symbols`` (n,) for a codebook. Every
    input has a finite encoding: NaN counts as zero, an infinity as the largest number, and rows
    that could overflow (beyond 2^56 in float32, 2^500 in float64) are shrunk. The hash and the
    guarantee of the release are in ``metadata_props``.

    Parameters
    ----------
    release : Release
    network : torch.nn.Module or Layers, optional
        A public network in front, whose outputs (n, m) are the vectors. The graph then takes what
        the network takes.
    example : tensor or tuple of tensors
        An input of the torch network, with its batch axis first.
    names : sequence of str, optional
        Of the torch network's inputs in the graph: by default ``input``, or ``input_0`` and so on.
    free_axes : sequence of int
        Axes of the torch network's inputs that may be of any length, whatever the example has:
        (0, 1) for batches of token sequences.
    dtype : {"float32", "float64"}
        Of the encoder, and of the input where no torch network stands in front. GELU is computed
        in float32 either way, as far as ONNX Runtime has it.

    Returns
    -------
    onnx.ModelProto
        Checked; ``onnx.save(model, path)`` writes it.

    Raises
    ------
    InvalidInput
        If the network does not give vectors of the release's dimension, torch cannot export it, or
        the release needs float64.

    Examples
    --------
    >>> import onnxruntime
    >>> from offaxis import fit
    >>> from offaxis.faces.onnx import privatize_encoded, to_onnx
    >>> public = np.random.default_rng(0).normal(size=(99, 3))
    >>> release = fit(np.eye(3)[:1], public, epsilon=4)
    >>> model = to_onnx(release)
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> (encoded,) = session.run(None, {"vectors": public[:2].astype(np.float32)})
    >>> bool(np.allclose(encoded, release.encoder.encode(public[:2]), atol=1e-5))
    True
    >>> reports = privatize_encoded(release, encoded)          # on the device: exact noise
    >>> release.decode(reports).shape
    (2, 3)
    >>> {p.key: p.value for p in model.metadata_props}["offaxis.guarantee"]
    'ε = 4, pure'
    """
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InvalidInput(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    _check_radius(release, kind)
    model = model_of(encoder_graph(release.encoder, kind))
    if isinstance(network, Layers):
        model = behind(from_layers(network, kind), model, release, network.biases[-1].size)
    elif network is not None:
        before, width = from_torch(network, example, names, free_axes, kind)
        model = behind(before, model, release, width)
    elif example is not None:
        raise InvalidInput("example is an input of a torch network; leave it out without one")
    _describe(model, release)
    onnx.checker.check_model(model, full_check=True)
    return model


def privatize_encoded(release: Release, encoded: Any) -> bytes | list[bytes]:
    """Turn what an exported graph returned into reports, as :meth:`Release.privatize` would.

    The randomizer clips and draws exact noise from the operating system's randomness, so that the
    guarantee holds whatever the graph did. **Every call spends the budget again.**

    Parameters
    ----------
    encoded : array (r,) or (n, r), or symbols () or (n,)
        Finite numbers, or the integers of a codebook.

    Returns
    -------
    bytes, or list of bytes for a batch

    Raises
    ------
    InvalidInput
        If it is not an encoding of this release. Nothing is released then.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.faces.onnx import privatize_encoded
    >>> release = fit(np.eye(3)[:1], np.random.default_rng(0).normal(size=(99, 3)), epsilon=4)
    >>> encoded = np.zeros(3, dtype=np.float32)                # from a session, see to_onnx
    >>> len(privatize_encoded(release, encoded)) == release.report_size
    True
    """
    array = to_numpy(encoded, "encoded vectors")
    single = array.ndim == (0 if isinstance(release.randomizer.domain, FiniteSet) else 1)
    batch = array[None] if single else array
    payloads = release.randomizer.report(batch, Entropy())
    reports = frame(payloads, release.randomizer.wire_id, release.hash)
    return reports[0] if single else reports


def _check_radius(release: Release, kind: np.dtype[Any]) -> None:
    radius = getattr(release.randomizer, "radius", 1.0)
    low, high = _SINGLE_RADII
    if kind.itemsize == 4 and not low <= radius <= high:
        raise InvalidInput(f"float32 is too narrow for radius={radius!r}; use dtype='float64'")


def _describe(model: ModelProto, release: Release) -> None:
    facts = {
        "offaxis.release": release.hash,
        "offaxis.guarantee": str(release.guarantee),
        "offaxis.unit": release.unit,
        "offaxis.randomizer": release.randomizer.kind,
        "offaxis.not_private": NOT_PRIVATE,
        "offaxis.version": __version__,
    }
    helper.set_model_props(model, facts)
    model.doc_string = NOT_PRIVATE
