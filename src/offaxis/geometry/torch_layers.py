"""Torch modules read as :class:`~offaxis.geometry.Layers`: exact, or not at all.

A module whose forward pass is a chain of affine maps, common activations and normalisations is
traced symbolically (torch.fx) and rewritten as layers. The result is compared with the module on
random vectors, in double precision where the module can compute in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import torch
from torch import fx, nn

from offaxis.geometry.chains import Chain, NotAChain, log_soft, soft
from offaxis.geometry.layers import Layers
from offaxis.vectors import Vectors

_LARGEST: Final = 1 << 27
"""The most parameters: a release file has at most 1 GiB."""

_TOLERANCES: Final = {torch.float64: 1e-9, torch.float32: 2e-5}

_TWO_BYTES: Final = 3e-2

Outputs = Callable[[Vectors], Vectors]


def read_layers(module: nn.Module, outputs: Outputs, dtype: torch.dtype) -> Layers | None:
    """Return the module as layers that give the same answers, or None.

    Parameters
    ----------
    module : torch.nn.Module
        In eval mode.
    outputs : callable
        The module's outputs as the adapter computes them.
    dtype : torch.dtype
        The dtype it computes them in.
    """
    name = type(module).__name__
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    if sum(part.numel() for part in module.parameters()) > _LARGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chain = _chain_of(module)
            layers = chain.layers(name)
            if layers is None or not _agrees(chain, layers, module, outputs, dtype):
                return None
    except Exception:
        # Whatever tracing or foreign code raises, the module is then not known as layers.
        return None
    return chain.with_answers(layers)


def _agrees(
    chain: Chain, layers: Layers, module: nn.Module, outputs: Outputs, dtype: torch.dtype
) -> bool:
    """Compare the layers with the module on random vectors of several sizes."""
    rng = np.random.default_rng(0)
    for size in (0.1, 1.0, 10.0):
        Z = size * rng.standard_normal((32, layers.input_dim))
        actual = layers.outputs(Z)
        actual = actual if chain.squash is None else chain.squash(actual)
        try:
            agrees = _close(_in_double(module, Z), actual, _TOLERANCES[torch.float64])
        except Exception:
            agrees = False  # a module with a fixed dtype
        if not agrees and not _close(outputs(Z), actual, _TOLERANCES.get(dtype, _TWO_BYTES)):
            return False
    return True


def _close(expected: Vectors, actual: Vectors, tolerance: float) -> bool:
    if expected.shape != actual.shape or not np.isfinite(expected).all():
        return False
    return bool(np.abs(expected - actual).max() <= tolerance * np.abs(expected).max() + 1e-300)


def _in_double(module: nn.Module, Z: Vectors) -> Vectors:
    """Return the outputs of the module with all parameters in double precision."""
    state = {
        name: part.double() if part.is_floating_point() else part
        for parts in (module.named_parameters(), module.named_buffers())
        for name, part in parts
    }
    device = next((part.device for part in state.values()), torch.device("cpu"))
    z = torch.tensor(Z, dtype=torch.float64, device=device)
    out: torch.Tensor = torch.func.functional_call(module, state, (z,))
    if out.dtype != torch.float64:
        raise NotAChain("the module casts to another precision")
    result: Vectors = out.reshape(len(Z), -1).cpu().numpy()
    return result


# ---- Tracing


class _Value:
    """A value that depends on the input; only the newest one may be used."""


class _Shape:
    """A size of the input, as in x.view(x.shape[0], -1)."""


def _chain_of(module: nn.Module) -> Chain:
    """Return the operations of a module, or raise."""
    # In a Sequential, a module of torch itself is not traced but read as a whole.
    root = module if isinstance(module, fx.GraphModule) else nn.Sequential(module)
    graph = root.graph if isinstance(root, fx.GraphModule) else fx.Tracer().trace(root)
    reader = _Reader(root)
    for node in graph.nodes:
        reader.read(node)
    return reader.chain


class _Reader:
    """Follows the nodes of a traced graph along its chain."""

    def __init__(self, root: nn.Module) -> None:
        self.chain = Chain()
        self._root = root
        self._values: dict[fx.Node, Any] = {}
        self._newest: _Value | None = None

    def read(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            if self._newest is None:
                self._newest = self._values[node] = _Value()
            elif node.users:
                raise NotAChain("several inputs")
        elif node.op == "get_attr":
            self._values[node] = _attribute(self._root, str(node.target))
        elif node.op == "output":
            (result,) = node.args
            result = result[0] if isinstance(result, tuple | list) and len(result) == 1 else result
            if not isinstance(result, fx.Node) or self._values[result] is not self._newest:
                raise NotAChain("an output that is not the last value")
        elif node.users:
            self._values[node] = self._call(node)

    def _call(self, node: fx.Node) -> Any:
        look_up = self._values.__getitem__
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), look_up)
        kwargs = dict(kwargs)
        if node.op == "call_module":
            part = self._root.get_submodule(str(node.target))
            if kwargs or args != (self._newest,):
                raise NotAChain(f"{node.target} on more than the last value")
            return self._advance(_read_module(part, self.chain))
        parts = [*_leaves(args), *_leaves(kwargs.values())]
        if any(isinstance(part, _Value) and part is not self._newest for part in parts):
            raise NotAChain("a value that is used again")  # a residual connection
        name = _name_of(node.target)
        if any(isinstance(part, _Value) for part in parts):
            if name in _SIZES:
                return _Shape()
            if name in _UNCHANGED:
                return self._newest
            is_aten = isinstance(node.target, torch._ops.OpOverload)
            return self._advance(_read_function(name, args, kwargs, self.chain, aten=is_aten))
        if any(isinstance(part, _Shape) for part in parts):
            return _Shape()
        if node.op == "call_method":
            return getattr(args[0], name)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _advance(self, changed: bool) -> _Value | None:
        if changed:
            self._newest = _Value()
        return self._newest


def _leaves(values: Iterable[Any]) -> list[Any]:
    """Return the values in nested tuples and lists."""
    flat: list[Any] = []
    for value in values:
        flat += _leaves(value) if isinstance(value, tuple | list) else [value]
    return flat


def _attribute(root: nn.Module, path: str) -> Any:
    value: Any = root
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _name_of(target: Any) -> str:
    """Return the name of a function or method, without the mark of in-place operations."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    name = target if isinstance(target, str) else str(target.__name__)
    return name.rstrip("_")


def _numbers(value: Any) -> Any:
    """Return a tensor as a NumPy array of float64, other values unchanged."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().to(torch.float64).numpy()
    return value


# ---- Modules


def _read_module(part: nn.Module, chain: Chain) -> bool:
    """Add a module of torch to the chain; return whether it changes its input."""
    for kinds, read in _MODULES:
        if isinstance(part, kinds):
            read(part, chain)
            return read is not _same
    raise NotAChain(f"a module of type {type(part).__name__}")


def _same(part: Any, chain: Chain) -> None:
    """Add nothing."""


def _gelu(part: Any, chain: Chain) -> None:
    if part.approximate != "none":
        raise NotAChain("an approximate GELU")
    chain.activated("gelu")


def _elu(part: Any, chain: Chain) -> None:
    if part.alpha != 1:
        raise NotAChain(f"an ELU with α={part.alpha}")
    chain.activated("elu")


def _batch_norm(part: Any, chain: Chain) -> None:
    _standardise(part.running_mean, part.running_var, part.weight, part.bias, part.eps, chain)


def _standardise(
    mean: Any, variance: Any, weight: Any, bias: Any, eps: float, chain: Chain
) -> None:
    if mean is None or variance is None:
        raise NotAChain("a BatchNorm that uses the statistics of the batch")
    scale = 1 / np.sqrt(_numbers(variance) + eps)
    scale = scale if weight is None else scale * _numbers(weight)
    shift = 0.0 if bias is None else _numbers(bias)
    chain.scaled(scale, shift - scale * _numbers(mean))


def _layer_norm(part: Any, chain: Chain) -> None:
    eps = torch.finfo(torch.float32).eps if part.eps is None else part.eps
    centred = isinstance(part, nn.LayerNorm)
    bias = getattr(part, "bias", None)
    _normalise(part.normalized_shape, part.weight, bias, eps, chain, centred=centred)


def _normalise(
    shape: Any, weight: Any, bias: Any, eps: float, chain: Chain, *, centred: bool
) -> None:
    (size,) = shape
    chain.normalised(int(size), eps, centred=centred)
    scale = 1.0 if weight is None else _numbers(weight)
    chain.scaled(scale, 0.0 if bias is None else _numbers(bias))


def _soft(part: Any, chain: Chain) -> None:
    if part.dim not in (1, -1, None):
        raise NotAChain(f"a softmax over axis {part.dim}")
    is_log = isinstance(part, nn.LogSoftmax)
    chain.ends_with(log_soft if is_log else soft)


_Read = Callable[[Any, Chain], None]

_MODULES: Final[list[tuple[type | tuple[type, ...], _Read]]] = [
    (nn.Linear, lambda part, chain: chain.affine(_numbers(part.weight), _numbers(part.bias))),
    (nn.ReLU, lambda part, chain: chain.activated("relu")),
    (nn.Tanh, lambda part, chain: chain.activated("tanh")),
    (nn.Sigmoid, lambda part, chain: chain.activated("logistic")),
    (nn.SiLU, lambda part, chain: chain.activated("silu")),
    (nn.GELU, _gelu),
    ((nn.ELU, nn.CELU), _elu),
    (nn.LeakyReLU, lambda part, chain: chain.leaky(part.negative_slope)),
    (nn.PReLU, lambda part, chain: chain.leaky(_numbers(part.weight))),
    (nn.Hardtanh, lambda part, chain: chain.clipped(part.min_val, part.max_val)),  # and ReLU6
    (nn.BatchNorm1d, _batch_norm),
    ((nn.LayerNorm, nn.RMSNorm), _layer_norm),
    ((nn.Softmax, nn.LogSoftmax), _soft),
    ((nn.Identity, nn.Flatten, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout), _same),
]


# ---- Functions and methods

_SIZES: Final = {"size", "shape", "len", "dim", "ndim", "getattr"}

_UNCHANGED: Final = {
    *("flatten", "view", "reshape", "contiguous", "squeeze", "clone", "detach"),
    *("to", "float", "double", "type", "dropout", "feature_dropout", "alpha_dropout", "_to_copy"),
    "alias",
}
"""These keep every number of a batch (n, m) in eval mode, or the comparison fails."""

_ACTIVATIONS: Final = {
    **{name: name for name in ("relu", "tanh", "gelu", "silu", "elu", "celu")},
    "sigmoid": "logistic",
    "expit": "logistic",
    "special_expit": "logistic",
    "celu": "elu",
}


def _read_function(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], chain: Chain, *, aten: bool
) -> bool:
    """Add a function or method to the chain; return whether it changes its input."""
    if name in _BINARY:
        _read_binary(name, args, kwargs, chain)
        return True
    if name == "addmm":
        bias, _, weight = args
        chain.affine(_numbers(weight).T, _numbers(bias))
        return True
    named = dict(zip(_parameters(name, aten), args[1:], strict=False)) | kwargs
    if isinstance(named.get("weight"), _Value) or not isinstance(args[0], _Value):
        raise NotAChain(f"{name} of another operand")
    numbers = {key: _numbers(value) for key, value in named.items()}
    if name in _ACTIVATIONS:
        if numbers.get("approximate", "none") != "none" or numbers.get("alpha", 1) != 1:
            raise NotAChain(f"{name} with other parameters")
        chain.activated(_ACTIVATIONS[name])
    elif name == "linear":
        chain.affine(numbers["weight"], numbers.get("bias"))
    elif name in ("leaky_relu", "prelu"):
        chain.leaky(numbers.get("weight", numbers.get("negative_slope", 0.01)))
    elif name == "relu6":
        chain.clipped(0.0, 6.0)
    elif name in ("hardtanh", "clamp", "clip"):
        limits = {"min": -1.0, "max": 1.0} if name == "hardtanh" else {}
        limits |= numbers
        chain.clipped(float(limits["min"]), float(limits["max"]))
    elif name == "layer_norm":
        eps = numbers.get("eps", 1e-5)
        weight, bias = numbers.get("weight"), numbers.get("bias")
        _normalise(numbers["shape"], weight, bias, eps, chain, centred=True)
    elif name == "batch_norm":
        mean, variance = numbers.get("mean"), numbers.get("variance")
        weight, bias = numbers.get("weight"), numbers.get("bias")
        _standardise(mean, variance, weight, bias, numbers.get("eps", 1e-5), chain)
    elif name in ("softmax", "_softmax", "log_softmax", "_log_softmax"):
        if numbers.get("dim") not in (1, -1, None):
            raise NotAChain("a softmax over the batch")
        chain.ends_with(log_soft if "log" in name else soft)
    else:
        raise NotAChain(f"the function {name}")
    return True


def _parameters(name: str, aten: bool) -> tuple[str, ...]:
    """Return the names of the parameters after the input, as this file reads them."""
    if name == "batch_norm":
        first = ("mean", "variance", "weight", "bias")
        ordered = ("weight", "bias", "mean", "variance") if aten else first
        return (*ordered, "training", "momentum", "eps")
    return {
        "gelu": ("approximate",),
        "elu": ("alpha",),
        "celu": ("alpha",),
        "linear": ("weight", "bias"),
        "leaky_relu": ("negative_slope",),
        "prelu": ("weight",),
        "hardtanh": ("min", "max"),
        "clamp": ("min", "max"),
        "clip": ("min", "max"),
        "layer_norm": ("shape", "weight", "bias", "eps"),
        "softmax": ("dim",),
        "_softmax": ("dim",),
        "log_softmax": ("dim",),
        "_log_softmax": ("dim",),
    }.get(name, ())


_BINARY: Final = {
    *("add", "sub", "mul", "truediv", "div", "neg", "negative", "matmul", "mm"),
    *("radd", "rsub", "rmul", "subtract", "multiply", "divide", "true_divide"),
}


def _read_binary(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], chain: Chain) -> None:
    """Add arithmetic with one constant operand."""
    if kwargs:
        raise NotAChain(f"{name} with {', '.join(kwargs)}")
    if name in ("neg", "negative"):
        chain.scaled(-1.0)
        return
    first, second = args
    if isinstance(first, _Value) == isinstance(second, _Value):
        raise NotAChain(f"{name} of two values")
    other, is_left = (_numbers(second), True) if isinstance(first, _Value) else (first, False)
    other = _numbers(other)
    if name in ("matmul", "mm") and is_left:
        chain.affine(np.atleast_2d(other.T))
    elif name == "add":
        chain.scaled(1.0, other)
    elif name in ("sub", "subtract"):
        chain.scaled(1.0, -other) if is_left else chain.scaled(-1.0, other)
    elif name in ("mul", "multiply"):
        chain.scaled(other)
    elif name in ("truediv", "div", "divide", "true_divide") and is_left:
        chain.scaled(1.0 / other)
    else:
        raise NotAChain(f"{name} of a constant and a value")
