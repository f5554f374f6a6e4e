"""Adapter for JAX functions as public tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from offaxis.errors import InvalidInput
from offaxis.geometry.models import LONGEST_NAME, ModelIdentity, gram_of
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
    >>> str(offaxis.fit(task, public, epsilon=2).guarantee)
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
            return _array(self._jit_outputs(_jax(Z)))
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


def _jax(Z: Vectors) -> jax.Array:
    return jnp.asarray(Z, dtype=jnp.result_type(float))


def _array(values: ArrayLike) -> Vectors:
    result: Vectors = np.asarray(values, dtype=np.float64)
    return result
