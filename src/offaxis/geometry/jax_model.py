"""Adapter for JAX functions as public tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from offaxis.errors import InvalidInput
from offaxis.geometry.chains import Chain, NotAChain, log_soft, segments, soft
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import (
    LONGEST_NAME,
    ModelIdentity,
    check_finite_outputs,
    gram_of,
)
from offaxis.vectors import Vectors

__all__ = ["JaxModel"]

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""The memory address of a function in the text of a program: it differs from run to run."""


class JaxModel:
    """A public task given as a JAX function of a batch, (n, m) → (n, k), row by row.

    Parameters
    ----------
    function : callable
        ``function(params, Z)``, or ``function(Z)`` without parameters. Apply ``jax.vmap`` first
        to a function of a single vector.
    params : pytree of arrays, optional
        The weights.
    dim : int
        Dimension m of the vectors.
    name : str, optional
        Name of the model in the release file; by default the name of the function.

    Examples
    --------
    >>> import offaxis
    >>> import jax.numpy as jnp
    >>> from offaxis.geometry.jax_model import JaxModel
    >>> task = JaxModel(lambda w, Z: jnp.tanh(Z @ w), jnp.ones((3, 2)), dim=3, name="head")
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> str(offaxis.fit(task, public, epsilon=2, mechanism="laplace").guarantee)
    'ε = 2, pure'
    """

    def __init__(
        self, function: Callable[..., Any], params: Any = None, *, dim: int, name: str | None = None
    ) -> None:
        self._function, self._params = function, params
        self._dim = dim
        self._name = name or str(getattr(function, "__name__", "function"))[:LONGEST_NAME]
        self._compile()

    def _compile(self) -> None:
        self._jit_outputs = jax.jit(self._call)
        self._jit_vjp = jax.jit(lambda z, g: jax.vjp(self._call, z)[1](g)[0])
        self._jit_jacobians = jax.jit(self._differentiate)

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments, without the compiled functions."""
        names = ("_function", "_params", "_dim", "_name")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Compile again in the receiving process."""
        self.__dict__.update(state)
        self._compile()

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors."""
        return self._dim

    def identity(self) -> ModelIdentity:
        """Hash the traced program, its constants and the parameters."""
        program = jax.make_jaxpr(self._call)(jnp.zeros((2, self._dim)))
        digest = hashlib.sha256(_ADDRESS.sub("", str(program.jaxpr)).encode())
        for leaf in (*program.consts, *jax.tree.leaves(self._params)):
            array = np.asarray(leaf)
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(str(jax.tree.structure(self._params)).encode())
        return ModelIdentity("jax", self._name, digest.hexdigest())

    def _call(self, z: jax.Array) -> jax.Array:
        out = self._function(z) if self._params is None else self._function(self._params, z)
        shape = getattr(out, "shape", None)
        if shape is None or len(shape) not in (1, 2) or shape[0] != z.shape[0]:
            raise InvalidInput(
                f"the model must return one row per vector, (n, k) for an input (n, m); for "
                f"{z.shape[0]} vectors it returned {type(out).__name__ if shape is None else shape}"
            )
        result: jax.Array = out if len(shape) == 2 else out[:, None]
        return result

    def _differentiate(self, z: jax.Array) -> jax.Array:
        """Return all Jacobians, (n, k, m), in reverse mode if k <= m and in forward mode if not."""
        n, m = z.shape
        out, pullback = jax.vjp(self._call, z)
        k = out.shape[1]
        if k <= m:
            seeds = jnp.broadcast_to(jnp.eye(k, dtype=out.dtype)[:, None], (k, n, k))
            rows: jax.Array = jax.vmap(lambda seed: pullback(seed)[0], out_axes=1)(seeds)
            return rows
        seeds = jnp.broadcast_to(jnp.eye(m, dtype=z.dtype)[:, None], (m, n, m))

        def push(seed: jax.Array) -> jax.Array:
            pushed: jax.Array = jax.jvp(self._call, (z,), (seed,))[1]
            return pushed

        return jax.vmap(push, out_axes=2)(seeds)

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the function's outputs, (n, k)."""
        try:
            outputs = _array(self._jit_outputs(_jax(Z)))
            return check_finite_outputs(outputs, self.identity().name)
        except InvalidInput:
            raise
        except (TypeError, ValueError) as error:
            # A wrong dimension surfaces as whatever the first product raises.
            reason = str(error).strip().splitlines()[0]
            raise InvalidInput(
                f"the model failed on vectors of dimension {Z.shape[1]}: {reason}; "
                f"check that it takes vectors of this dimension"
            ) from error

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        return _array(self._jit_jacobians(_jax(Z)))

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return gram_of(self.jacobians(Z))

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector: one backward pass for the batch."""
        z = _jax(Z)
        return _array(self._jit_vjp(z, jnp.asarray(G, dtype=jax.eval_shape(self._call, z).dtype)))

    def centred(self) -> JaxModel:
        """Return the same model with the mean subtracted from its outputs."""

        def less_mean(z: jax.Array) -> jax.Array:
            out = self._call(z)
            return out - out.mean(axis=1, keepdims=True)

        return JaxModel(less_mean, dim=self._dim, name=self._name)

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim

    def as_layers(self) -> Layers | None:
        """Return the function as layers with the same answers, or None.

        Works for functions that are a chain of products with weights, common activations and
        normalisations, with at most 8 layers. A final softmax is left out.
        """
        try:
            chain = _chain_of(jax.make_jaxpr(self._call)(jnp.zeros((2, self._dim))))
            layers = chain.layers(self._name)
            if layers is None or not self._agrees(chain, layers):
                return None
        except Exception:  # whatever an unusual program raises, it is then not known as layers
            return None
        return chain.with_answers(layers)

    def _agrees(self, chain: Chain, layers: Layers) -> bool:
        """Compare the layers with the function on random vectors of several sizes."""
        tolerance = 1e-9 if jnp.result_type(float) == jnp.float64 else 2e-5
        rng = np.random.default_rng(0)
        for size in (0.1, 1.0, 10.0):
            Z = size * rng.standard_normal((32, self._dim))
            expected, actual = self.outputs(Z), layers.outputs(Z)
            actual = actual if chain.squash is None else chain.squash(actual)
            if expected.shape != actual.shape:
                return False
            if not np.abs(expected - actual).max() <= tolerance * np.abs(expected).max():
                return False
        return True


def _jax(Z: Vectors) -> jax.Array:
    return jnp.asarray(Z, dtype=jnp.result_type(float))


def _array(values: ArrayLike) -> Vectors:
    result: Vectors = np.asarray(values, dtype=np.float64)
    return result


# ---- Programs as chains of layers


class _Value:
    """A value of a program that depends on its input."""


@dataclass(frozen=True)
class _Step:
    """An operation of a program. ``operands`` are values and constants in their order."""

    name: str
    operands: list[Any]
    params: dict[str, Any]
    output: tuple[_Value]

    @property
    def input(self) -> list[_Value]:
        return [operand for operand in self.operands if isinstance(operand, _Value)]

    @property
    def constants(self) -> list[Any]:
        return [_row(part) for part in self.operands if not isinstance(part, _Value)]


def _row(constant: Any) -> Any:
    """Return a constant, without the batch axis if it was repeated along it."""
    array = np.asarray(constant, dtype=np.float64)
    return array[0] if array.ndim == 2 and (array == array[:1]).all() else array


def _chain_of(program: Any) -> Chain:
    """Return the operations of a traced program, or raise."""
    start, steps = _Value(), list[_Step]()
    (end,) = _flatten(program.jaxpr, program.consts, [start], steps)
    chain, groups = Chain(), list(segments(steps, start, end))
    ends = _without_softmax(groups)
    for value, group in groups[:ends]:
        if len(group) == 1:
            _read_step(group[0], value, chain)
        else:
            _read_group(group, chain)
    if ends < len(groups):
        chain.ends_with(soft)
    return chain


def _without_softmax(groups: list[tuple[Any, list[_Step]]]) -> int:
    """Return the number of groups before a final softmax: e^{x − max x}, divided by its sum."""
    names = [{step.name for step in group} for _, group in groups]
    if names[-2:] != [{"exp"}, {"reduce_sum", "broadcast_in_dim", "div"}]:
        return len(groups)
    shifted = len(names) > 2 and "reduce_max" in names[-3]
    return len(groups) - (3 if shifted else 2)


def _flatten(jaxpr: Any, consts: Any, inputs: list[Any], steps: list[_Step]) -> list[Any]:
    """Append the steps of a program, with those of the functions it calls; return its results."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def value_of(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else known[variable]

    for equation in jaxpr.eqns:
        operands = [value_of(variable) for variable in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        name = str(equation.params.get("name", equation.primitive.name))
        if name == "leaky_relu" and len(operands) == 1:  # its slope is inside
            (product,) = [part for part in inner.eqns if part.primitive.name == "mul"]
            operands += [part.val for part in product.invars if hasattr(part, "val")]
        if inner is not None and name not in _NAMED:
            results = _flatten(inner.jaxpr, inner.consts, operands, steps)
        elif any(isinstance(operand, _Value) for operand in operands):
            if name in _UNCHANGED:
                results = operands[:1]
            else:
                results = [_Value()]
                steps.append(_Step(name, operands, equation.params, (results[0],)))
        else:
            bound = equation.primitive.bind(*operands, **equation.params)
            results = list(bound) if equation.primitive.multiple_results else [bound]
        known.update(zip(equation.outvars, results, strict=True))
    return [value_of(variable) for variable in jaxpr.outvars]


_UNCHANGED: Final = {
    "copy",
    "copy_p",
    "stop_gradient",
    "convert_element_type",
    "optimization_barrier",
}

_NAMED: Final = {
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "elu": "elu",
    "gelu": "gelu",
    "sigmoid": "logistic",
    "softmax": "softmax",
    "log_softmax": "log_softmax",
    "leaky_relu": "leaky_relu",
    "relu6": "relu6",
    "_softmax": "softmax",
}
"""Functions of jax.nn that are read as a whole, by the name in a traced program."""


def _read_step(step: _Step, value: _Value, chain: Chain) -> None:
    """Add an operation on one value to the chain."""
    name, constants = _NAMED.get(step.name, step.name), step.constants
    is_first = step.operands[0] is value
    if step.input != [value]:
        raise NotAChain(f"{name} of two values")
    if name in ("relu", "silu", "elu", "gelu", "tanh", "logistic"):
        chain.activated(name)
    elif name == "dot_general":
        axes, batch = step.params["dimension_numbers"]
        (axis,) = axes[1 if is_first else 0]
        weight = np.asarray(step.operands[1 if is_first else 0], dtype=np.float64)
        if any(map(len, batch)) or weight.ndim > 2:
            raise NotAChain("a product over other axes")
        chain.affine(np.atleast_2d(weight.T if axis == 0 else weight))
    elif name in ("add", "add_any"):
        chain.scaled(1.0, constants[0])
    elif name == "sub":
        chain.scaled(1.0, -constants[0]) if is_first else chain.scaled(-1.0, constants[0])
    elif name == "mul":
        chain.scaled(constants[0])
    elif name == "div" and is_first:
        chain.scaled(1.0 / constants[0])
    elif name == "neg":
        chain.scaled(-1.0)
    elif name == "max" and not constants[0].any():
        chain.activated("relu")
    elif name == "leaky_relu":
        chain.leaky(constants[0])
    elif name == "relu6":
        chain.clipped(0.0, 6.0)
    elif name in ("softmax", "log_softmax"):
        chain.ends_with(soft if name == "softmax" else log_soft)
    elif name not in ("reshape", "squeeze", "transpose", "broadcast_in_dim"):
        raise NotAChain(f"the operation {name}")


def _read_group(group: list[_Step], chain: Chain) -> None:
    """Add what is written as several operations; the later comparison checks the guess."""
    names = {step.name for step in group}
    if "erf" in names or "erfc" in names:
        # x (1 + erf(x/√2)), with the factor 1/2 here or in an operation of its own.
        chain.activated("gelu")
        if not any((part == 0.5).all() for step in group for part in step.constants):
            chain.scaled(2.0)
    elif names == {"logistic", "mul"}:
        chain.activated("silu")
    elif "sqrt" in names or "rsqrt" in names:
        (epsilon,) = {float(c) for step in group if step.name == "add" for c in step.constants}
        (size,) = {int(c) for step in group if step.name == "div" for c in step.constants}
        chain.normalised(size, epsilon, centred="sub" in names)
    else:
        raise NotAChain(f"the operations {', '.join(sorted(names))}")
