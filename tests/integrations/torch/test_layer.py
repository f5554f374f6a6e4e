"""PrivateLayer: every forward pass is a new release, and nothing can repeat or undo it."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import offaxis
from offaxis.errors import InvalidInput, InvalidRelease, InvalidReport
from offaxis.integrations.torch import PrivateLayer
from offaxis.mechanisms import posterior


@pytest.fixture
def layer(release: offaxis.Release) -> PrivateLayer:
    return PrivateLayer(release)


@pytest.fixture(scope="session")
def plain(public: np.ndarray) -> offaxis.Release:
    """A release whose decoder is the identity, without a matrix to move to a device."""
    return offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")


@pytest.fixture
def z(public: np.ndarray) -> torch.Tensor:
    return torch.tensor(public[:7], dtype=torch.float32)


def test_half_precision_raises_because_it_would_overflow(release) -> None:
    with pytest.raises(InvalidInput, match="overflows float16"):
        PrivateLayer(release)(torch.zeros(2, release.input_dim, dtype=torch.float16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_output_has_the_shape_and_dtype_of_the_input(
    layer: PrivateLayer, z: torch.Tensor, dtype: object
) -> None:
    for vectors in (z.to(dtype), z[0].to(dtype)):
        released = layer(vectors)
        assert (released.shape, released.dtype) == (vectors.shape, dtype)
        assert released.isfinite().all()
        assert not released.requires_grad


@pytest.mark.parametrize("which", ["release", "plain"])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_decoding_matches_the_release(
    which: str, dtype: torch.dtype, rtol: float, z: torch.Tensor, request: pytest.FixtureRequest
) -> None:
    release = request.getfixturevalue(which)
    layer = PrivateLayer(release, dtype=dtype)
    reports = layer.privatize(z)
    decoded = layer.decode(reports)
    assert decoded.dtype == dtype
    expected = release.decode(reports)
    np.testing.assert_allclose(decoded, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    torch.testing.assert_close(layer.decode(reports[0]), decoded[0])
    assert layer.decode(reports, dtype=torch.float16).dtype == torch.float16


def test_other_decoders_also_match_the_release(
    head, release: offaxis.Release, public: np.ndarray
) -> None:
    """Codewords are looked up on the layer's device; a posterior is decoded in NumPy and moved."""
    coded = offaxis.fit(head, public, epsilon=3, mechanism="response")
    for other in (coded, replace(release, decoder=posterior(release, public))):
        layer = PrivateLayer(other, dtype=torch.float64)
        reports = layer.privatize(torch.tensor(public[:20]))
        np.testing.assert_allclose(layer.decode(reports), other.decode(reports), rtol=1e-12)
        assert PrivateLayer(other, device="meta").decode(reports).is_meta


def test_reports_match_the_release(
    layer: PrivateLayer, release: offaxis.Release, z: torch.Tensor
) -> None:
    assert len(layer.privatize(z[0])) == release.report_size
    assert release.decode(layer.privatize(z)).shape == z.shape
    with pytest.raises(InvalidReport):
        layer.decode([b"OX"])


@pytest.mark.parametrize("which", ["release", "plain"])
def test_decoding_runs_on_the_device_of_the_layer(
    which: str, request: pytest.FixtureRequest
) -> None:
    # The meta device computes only shapes; anything left on the CPU would be an error.
    release = request.getfixturevalue(which)
    layer = PrivateLayer(release).to("meta")
    decoded = layer.decode(release.privatize(np.zeros((2, 6))))
    assert (decoded.device.type, decoded.shape) == ("meta", (2, 6))
    assert PrivateLayer(release, device="meta").decode(release.privatize(np.zeros(6))).is_meta


def test_every_forward_pass_is_a_new_release(layer: PrivateLayer, z: torch.Tensor) -> None:
    for mode in (True, False):
        layer.train(mode)
        draws = []
        for _ in range(2):
            torch.manual_seed(0)
            draws.append(layer(z))
        assert (draws[0] != draws[1]).any(dim=1).all()


def test_an_input_that_requires_a_gradient_raises(layer: PrivateLayer, z: torch.Tensor) -> None:
    hidden = torch.nn.Linear(6, 6)(z)
    with pytest.raises(InvalidInput, match=r"a report has no gradient: pass z.detach\(\)"):
        layer(hidden)
    assert not layer(hidden.detach()).requires_grad
    with torch.no_grad():
        assert not layer(hidden).requires_grad


def test_a_head_after_the_layer_can_be_trained(layer: PrivateLayer, z: torch.Tensor) -> None:
    model = torch.nn.Sequential(layer, torch.nn.Linear(6, 2))
    model(z).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert len(list(model.parameters())) == 2


def test_compiling_does_not_freeze_the_noise(layer: PrivateLayer, z: torch.Tensor) -> None:
    compiled = torch.compile(torch.nn.Sequential(layer, torch.nn.Identity()), backend="eager")
    assert (compiled(z) != compiled(z)).any(dim=1).all()
    privatize = torch.compile(layer.privatize, backend="eager")
    assert len({*privatize(z[:1]), *privatize(z[:1])}) == 2


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated but still exists
def test_tracing_raises(layer: PrivateLayer, z: torch.Tensor) -> None:
    with pytest.raises(InvalidInput, match="traced"):
        torch.jit.trace(layer, z)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of real reports of every call of ``Release.privatize``."""
    counts: list[int] = []
    privatize = offaxis.Release.privatize

    def counted(self: offaxis.Release, vectors: torch.Tensor) -> bytes | list[bytes]:
        counts.append(len(vectors))
        return privatize(self, vectors)

    monkeypatch.setattr(offaxis.Release, "privatize", counted)
    return counts


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_layer_draws_no_second_report(
    reentrant: bool, layer: PrivateLayer, z: torch.Tensor, drawn: list[int]
) -> None:
    """It would repeat the forward pass during the backward pass, to save memory."""
    head = torch.nn.Linear(6, 2)

    def scaled(vectors: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return head(layer(vectors)) * factor

    factor = torch.ones(1, requires_grad=True)
    loss = checkpoint(scaled, z, factor, use_reentrant=reentrant).sum()
    with pytest.raises(InvalidInput, match=r"backward pass.*torch.utils.checkpoint only after"):
        loss.backward()
    assert drawn == [7]
    # After the layer it is allowed.
    checkpoint(head, layer(z), use_reentrant=False).sum().backward()
    assert drawn == [7, 7]


def test_a_torch_without_these_private_names_still_releases(
    layer: PrivateLayer, z: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch._C, "_current_graph_task_id")
    monkeypatch.delattr("torch.fx.experimental.proxy_tensor.get_proxy_mode")
    assert layer(z).shape == z.shape


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_recording_a_graph_raises(
    mode: str, layer: PrivateLayer, z: torch.Tensor, drawn: list[int]
) -> None:
    """One report would become a constant of the graph."""
    with pytest.raises(InvalidInput, match="traced"):
        make_fx(layer, tracing_mode=mode)(z)
    with pytest.raises(InvalidInput, match="traced"):
        torch.export.export(torch.nn.Sequential(layer), (z,), strict=False)
    with FakeTensorMode() as fake, pytest.raises(InvalidInput, match="traced"):
        layer(fake.from_tensor(z))
    assert drawn == []
    assert layer(z).shape == z.shape, "the layer still works"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_release_nothing(
    layer: PrivateLayer, z: torch.Tensor, value: float
) -> None:
    z[2, 1] = value
    with pytest.raises(InvalidInput, match="finite"):
        layer(z)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (torch.zeros(2, 6, dtype=torch.int64), "floating-point tensor, got torch.int64"),
        (np.zeros((2, 6), dtype=np.complex64), "floating-point tensor, got complex64"),
        ([0.0] * 6, "floating-point tensor, got list"),
        (torch.zeros(2, 5), "dimension 6, got 5"),
        (torch.zeros(0, 6), "empty"),
        (torch.zeros(1, 2, 6), "one vector or a batch"),
    ],
)
def test_invalid_inputs_raise_with_the_reason(
    layer: PrivateLayer, vectors: object, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        layer(vectors)


def test_the_repr_shows_the_guarantee(layer: PrivateLayer, release: offaxis.Release) -> None:
    expected = f"PrivateLayer(ε = 3, pure, unit='item', release={release.hash[:16]})"
    assert repr(layer) == expected
    assert repr(PrivateLayer()) == "PrivateLayer(empty)"


@pytest.mark.parametrize("which", ["release", "plain"])
@pytest.mark.parametrize("has_release", [True, False])
def test_a_state_survives_torch_save(
    which: str, has_release: bool, z: torch.Tensor, request: pytest.FixtureRequest
) -> None:
    release = request.getfixturevalue(which)
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(PrivateLayer(release), torch.nn.Linear(6, 2)).state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    target = torch.nn.Sequential(
        PrivateLayer(release if has_release else None, dtype=torch.float64), torch.nn.Linear(6, 2)
    )
    target.load_state_dict(state, strict=True)
    loaded = target[0]
    assert loaded.release == release
    reports = release.privatize(z)
    np.testing.assert_allclose(loaded.decode(reports), release.decode(reports), rtol=1e-12)


def test_a_state_survives_safetensors(
    layer: PrivateLayer, release: offaxis.Release, tmp_path: Path
) -> None:
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    empty = PrivateLayer()
    empty.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    assert empty.release == release


def test_loading_never_replaces_a_release(layer: PrivateLayer, plain: offaxis.Release) -> None:
    before = layer.release
    with pytest.raises(InvalidRelease, match=r"the layer has .*PrivateLayer\(\) accepts any"):
        layer.load_state_dict(PrivateLayer(plain).state_dict())
    assert layer.release is before


def test_a_damaged_state_raises(layer: PrivateLayer) -> None:
    state = layer.state_dict()
    damaged = state["_extra_state"].clone()
    damaged[-1] ^= 1
    for invalid in (damaged, damaged[:-1], damaged[:0], damaged.float(), b"bytes"):
        with pytest.raises(InvalidRelease):
            PrivateLayer().load_state_dict({**state, "_extra_state": invalid})
    with pytest.raises(RuntimeError, match="_extra_state"):
        PrivateLayer().load_state_dict({})


def test_using_an_empty_layer_raises(z: torch.Tensor) -> None:
    for use in (lambda: PrivateLayer()(z), lambda: PrivateLayer().decode([b""])):
        with pytest.raises(InvalidInput, match="this layer is empty"):
            use()


def test_released_vectors_are_not_kept(layer: PrivateLayer, z: torch.Tensor) -> None:
    layer(z)
    file = io.BytesIO()
    torch.save(layer, file)
    for row in z:
        for octets in (row.numpy().tobytes(), row.double().numpy().tobytes()):
            assert octets not in file.getvalue()
    torch.save((layer, z), file)
    assert z[0].numpy().tobytes() in file.getvalue(), "the search works"


def test_a_copied_layer_keeps_its_release(layer: PrivateLayer, z: torch.Tensor) -> None:
    copied = copy.deepcopy(layer)
    assert copied.release == layer.release
    assert (copied(z) != layer(z)).any(dim=1).all()
