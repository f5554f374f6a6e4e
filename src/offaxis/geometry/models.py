"""The interface of public models: outputs, answers, Jacobians, identity, and adapters."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offaxis import plugins
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.vectors import Vectors, as_array, to_numpy

if TYPE_CHECKING:
    from offaxis.geometry.layers import Layers

LONGEST_NAME = 200


@dataclass(frozen=True)
class ModelIdentity:
    """Which public model a release was fitted to."""

    kind: str
    name: str
    sha256: str

    def __post_init__(self) -> None:
        """Check that the name fits its field in a release file."""
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= LONGEST_NAME:
            raise InvalidInput(
                f"the model's name must have 1 to {LONGEST_NAME} characters, "
                f"got {str(self.name)[:60]!r}"
            )


@runtime_checkable
class TaskModel(Protocol):
    """A public task model T: R^m → R^k, applied row by row.

    A model with k >= 2 outputs is a classifier: its answer is the largest output, the first one of
    a tie. Every model has outputs. One without a useful derivative (a forest) raises
    :class:`~offaxis.errors.UnsupportedModel` from ``jacobians``, ``gram`` and ``vjp``.

    Two members are optional: ``answers``, the names of the answers (:func:`answer_names`), and
    ``as_layers()``, the network that a release can hold (:func:`layers_for_answers`).

    Examples
    --------
    >>> from offaxis.geometry import Layers, TaskModel
    >>> isinstance(Layers.linear(np.eye(2)), TaskModel)
    True
    """

    @property
    def input_dim(self) -> int | None:
        """m, or None if the model does not know it before it is first called."""
        ...

    def identity(self) -> ModelIdentity:
        """Return the kind, the name and a hash of the model."""
        ...

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the logits or predictions, (n, k)."""
        ...

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        ...

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ_i J_iᵀ J_i over the batch, (m, m), float64."""
        ...

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector and its row of ``G`` (n, k), as (n, m)."""
        ...

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return how many numbers :meth:`gram` holds per vector; it sets the batch size."""
        ...


def gram_of(jacobians: NDArray[Any]) -> Vectors:
    """Return Σ_i J_iᵀ J_i for stacked Jacobians (n, k, m), in float64."""
    rows = jacobians.reshape(-1, jacobians.shape[-1]).astype(np.float64, copy=False)
    return rows.T @ rows


def failure(error: Exception) -> str:
    """Return the type and the first line of an error's message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def check_finite_outputs(outputs: Vectors, name: str) -> Vectors:
    """Return the outputs of a model, one row per vector, if they are finite."""
    rows = len(outputs)
    finite = np.isfinite(outputs.reshape(rows, -1)).all(axis=1)
    if not finite.all():
        raise InvalidInput(
            f"the model {name} returned a value that is not finite for vector "
            f"{int(np.argmin(finite))} and {int((~finite).sum()) - 1} others of {rows}; "
            f"return finite scores for every finite vector"
        )
    return outputs


def as_task_model(model: Any) -> TaskModel:
    """Return the adapter for a model.

    Accepts a torch module; a fitted scikit-learn estimator or pipeline, or another object with
    ``predict_proba`` or ``predict``; an ONNX model or the path of its file; a weight matrix (k, m);
    :class:`~offaxis.geometry.Layers`; a function of a batch, (n, m) → (n, k); or any other
    :class:`TaskModel`.

    Examples
    --------
    >>> from offaxis.geometry import as_task_model
    >>> as_task_model(np.array([[1.0, 2.0]]))  # a weight matrix (k, m)
    Layers(2→1, relu)
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> forest = RandomForestClassifier(5, random_state=0).fit(np.eye(3), ["a", "b", "c"])
    >>> as_task_model(forest).answers
    ('a', 'b', 'c')
    >>> as_task_model(lambda Z: Z[:, :2] ** 2).outputs(np.array([[1.0, 2.0, 3.0]]))
    array([[1., 4.]])
    """
    from offaxis.geometry.layers import Layers

    if isinstance(model, type):
        raise UnsupportedModel(
            f"got the class {model.__name__}, not a model: pass an instance of it, fitted on "
            f"public data"
        )
    if isinstance(model, TaskModel):
        return model
    if isinstance(model, np.ndarray | list | tuple) or _is_tensor(model):
        return Layers.linear(as_array(model, "model"))
    if "torch" in sys.modules:
        import torch

        if isinstance(model, torch.nn.Module):
            from offaxis.geometry.torch_model import TorchModel

            return TorchModel(model)
    if _is_onnx(model):
        from offaxis.geometry.onnx_model import OnnxModel

        return OnnxModel(model)
    if hasattr(model, "predict_proba") or (hasattr(model, "predict") and not callable(model)):
        from offaxis.geometry.sklearn_model import model_of

        return model_of(model)
    for adapt in plugins.every("models"):
        if (adapted := adapt(model)) is not None:
            return _checked(adapted, adapt)
    if callable(model):
        return FiniteDifferences(model, name=_name_of(model))
    raise UnsupportedModel(
        f"no adapter for a model of type {type(model).__name__}: pass a torch module, a fitted "
        f"scikit-learn estimator, an ONNX model or the path of an .onnx file, a weight matrix "
        f"(k, m), or a function of a batch, (n, m) → (n, k); wrap a JAX function as "
        f"offaxis.geometry.jax_model.JaxModel(function, params, dim=m)"
    )


def _checked(adapted: Any, adapt: Any) -> TaskModel:
    if not isinstance(adapted, TaskModel):
        raise UnsupportedModel(
            f"the adapter {_name_of(adapt)} of another package must return a TaskModel or None, "
            f"got {type(adapted).__name__}"
        )
    return adapted


def _is_tensor(model: Any) -> bool:
    return hasattr(model, "__array__") and hasattr(model, "ndim") and not hasattr(model, "columns")


def _is_onnx(model: Any) -> bool:
    if isinstance(model, str | Path):
        return Path(model).suffix.lower() == ".onnx"
    return type(model).__name__ == "ModelProto" and hasattr(model, "SerializeToString")


def _name_of(function: Any) -> str:
    """Return the name of a function, or of the type of a callable object."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)[:LONGEST_NAME]


# ---- Answers


def answer_names(model: TaskModel) -> tuple[str, ...] | None:
    """Return the names of a classifier's answers, one per output; None if it has none.

    Examples
    --------
    >>> from offaxis.geometry import Classifier, answer_names
    >>> answer_names(Classifier(np.eye(2), answers=("no", "yes")))
    ('no', 'yes')
    """
    names: tuple[str, ...] | None = getattr(model, "answers", None)
    return names


def layers_for_answers(model: TaskModel) -> Layers | None:
    """Return a network that a release can hold and that gives the model's answers, or None.

    Its largest output is the model's answer. Its outputs need not be the model's: a softmax at the
    end is left out, and a model that ends with a sigmoid of one logit has two outputs.

    Examples
    --------
    >>> from offaxis.geometry import as_task_model, layers_for_answers
    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(dim=1))
    >>> layers_for_answers(as_task_model(module))
    Layers(3→2, relu)
    """
    convert: Callable[[], Layers | None] | None = getattr(model, "as_layers", None)
    return None if convert is None else convert()


def check_answers(answers: Any, outputs: int) -> tuple[str, ...]:
    """Return the names of the answers of a model as a tuple, one per output.

    Raises
    ------
    InvalidInput
        If a name is not a text of 1 to 200 characters, two names are equal, or their number is not
        that of the outputs.
    """
    names = () if isinstance(answers, str) else tuple(answers)
    for name in names:
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
            raise InvalidInput(
                f"the name of an answer must be a text of 1 to {LONGEST_NAME} characters, got "
                f"{name!r:.60}"
            )
    if len(names) < 2 or len(set(names)) < len(names):
        raise InvalidInput(f"answers must be two or more different names, got {answers!r:.200}")
    if outputs == 1:
        raise InvalidInput(
            f"a model with one output has no answers to name, got {', '.join(names):.200}; if the "
            f"output is a logit of two answers, pass offaxis.geometry.Classifier(model, answers)"
        )
    if len(names) != outputs:
        raise InvalidInput(
            f"a model with {outputs} outputs needs {outputs} names of answers, got {len(names)}: "
            f"{', '.join(names):.200}"
        )
    return tuple(str(name) for name in names)


@dataclass(frozen=True, eq=False)
class Classifier:
    """A model with names for its answers.

    A model with one output t and two answers is read as a logit: it gets the two outputs
    (−t/2, t/2), so that its answer is the second one where t > 0. A network that is known to end
    with a sigmoid is read before it.

    Parameters
    ----------
    model : anything :func:`~offaxis.geometry.as_task_model` accepts
    answers : sequence of str
        One name per output, or two for a model with one output.

    Examples
    --------
    >>> from offaxis.geometry import Classifier
    >>> logit = np.array([[1.0, -1.0]])
    >>> task = Classifier(logit, answers=("dry", "wet"))
    >>> [task.answers[i] for i in task.outputs(np.array([[3.0, 1.0], [1.0, 3.0]])).argmax(axis=1)]
    ['wet', 'dry']
    """

    model: Any
    answers: Sequence[str]

    def __post_init__(self) -> None:
        """Replace the model by its adapter, and check the names as far as possible."""
        names = check_answers(self.answers, len(tuple(self.answers)))
        object.__setattr__(self, "answers", names)
        model = as_task_model(self.model)
        object.__setattr__(self, "model", model)
        layers = layers_for_answers(model)
        if layers is not None:
            self._check_number(len(layers.biases[-1]))
        object.__setattr__(self, "_before_sigmoid", self._read_before_sigmoid(layers))

    def _read_before_sigmoid(self, layers: Layers | None) -> Layers | None:
        if layers is None or layers is self.model or len(layers.biases[-1]) != 2:
            return None
        return layers if self._outputs_of(np.zeros((1, layers.input_dim))) == 1 else None

    def _outputs_of(self, Z: Vectors) -> int:
        return int(self.model.outputs(Z[:1]).shape[1])

    def _check_number(self, outputs: int) -> None:
        if outputs == 1 and len(self.answers) != 2:
            raise InvalidInput(
                f"a model with one output is a logit of two answers, got {len(self.answers)}: "
                f"{', '.join(self.answers):.200}"
            )
        if outputs != 1:
            check_answers(self.answers, outputs)

    @property
    def _task(self) -> TaskModel:
        task: TaskModel = getattr(self, "_before_sigmoid", None) or self.model
        return task

    @property
    def input_dim(self) -> int | None:
        """Dimension m of the vectors, if the model knows it."""
        return self._task.input_dim

    def identity(self) -> ModelIdentity:
        """Return the identity of the model, marked as a classifier."""
        model: ModelIdentity = self.model.identity()
        return replace(model, kind=f"classifier-{model.kind}")

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the model's outputs, or both outputs of its logit, (n, k)."""
        outputs = self._task.outputs(Z)
        self._check_number(outputs.shape[1])
        return outputs * _HALVES if outputs.shape[1] == 1 else outputs

    def _is_logit(self, Z: Vectors) -> bool:
        return len(self.answers) == 2 and self._task.outputs(Z[:1]).shape[1] == 1

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return the Jacobian of the outputs at every vector, (n, k, m)."""
        jacobians = self._task.jacobians(Z)
        return jacobians * _HALVES[:, None] if jacobians.shape[1] == 1 else jacobians

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch; that of a logit, halved."""
        return self._task.gram(Z) / 2 if self._is_logit(Z) else self._task.gram(Z)

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector."""
        return self._task.vjp(Z, G @ _HALVES[:, None] if self._is_logit(Z) else G)

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return what the model holds per vector."""
        return self._task.numbers_per_vector(dim, outputs)

    def as_layers(self) -> Layers | None:
        """Return the network of the model with these answers, if a release can hold it."""
        layers = layers_for_answers(self.model)
        if layers is None:
            return None
        if len(layers.biases[-1]) == 1:
            return layers.with_two_outputs(self.answers)
        return replace(layers, answers=tuple(self.answers))

    def centred(self) -> TaskModel | None:
        """Return the same classifier with the mean subtracted from its outputs, if it can."""
        task, outputs = self._task, getattr(self._task, "biases", [()])[-1]
        if len(outputs) == 1:  # the two outputs of a logit have the mean zero
            return self
        centre: Callable[[], TaskModel | None] | None = getattr(task, "centred", None)
        if centre is None or (len(self.answers) == 2 and len(outputs) != 2):
            return None
        centred = centre()
        return None if centred is None else Classifier(centred, self.answers)

    @property
    def accelerated(self) -> bool:
        """Whether the model is on an accelerator and can sum there."""
        return bool(getattr(self._task, "accelerated", False))

    def sums(self, rule: Any) -> Any:
        """Return an accumulator on the model's device, or on the host for a single logit."""
        from offaxis.geometry.jacobian import AcceleratedModel, HostSums

        task = self._task
        if len(self.answers) == 2 or not isinstance(task, AcceleratedModel):
            return HostSums(rule)
        return task.sums(replace(rule, model=task))


_HALVES: Final = np.array([-0.5, 0.5])
"""The outputs of a binary classifier per unit of its logit."""


# ---- Finite differences

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class FiniteDifferences:
    """Adapter for a black-box function: Jacobians by central differences.

    Parameters
    ----------
    function : callable
        Maps a batch of vectors (n, m) to one row of outputs per vector, (n, k).
    step : float, optional
        Difference step relative to the size of each coordinate in the batch. The default balances
        truncation and rounding for the precision of the outputs.
    name : str
        Name of the model in the release file.

    Examples
    --------
    >>> from offaxis.geometry import FiniteDifferences
    >>> task = FiniteDifferences(lambda Z: np.sin(Z).sum(axis=1), name="sum of sines")
    >>> task.jacobians(np.zeros((1, 2))).round(6)
    array([[[1., 1.]]])
    """

    function: Callable[[Vectors], Any]
    step: float | None = None
    name: str = "function"

    @property
    def input_dim(self) -> None:
        """None: unknown before the first call."""
        return

    def identity(self) -> ModelIdentity:
        """Hash the name, since a function has no weights to hash."""
        return ModelIdentity("function", self.name, hashlib.sha256(self.name.encode()).hexdigest())

    def outputs(self, Z: Vectors) -> Vectors:
        """Return the function's outputs, (n, k)."""
        return self._checked(self._called(Z), len(Z))

    def _called(self, Z: Vectors) -> NDArray[Any]:
        try:
            return to_numpy(self.function(Z), "model outputs")
        except InvalidInput:
            raise
        except Exception as error:
            # The function is the user's code and may raise anything.
            row = None if len(Z) == 1 else self._failing_row(Z)
            where = "a vector" if len(Z) == 1 else f"the batch of {len(Z)} vectors"
            raise InvalidInput(
                f"the model {self.name} failed on {where if row is None else f'vector {row}'} of "
                f"dimension {Z.shape[1]}: {failure(error)}; it must take every batch (n, m) of "
                f"finite vectors and return one row of scores per vector"
            ) from error

    def _failing_row(self, Z: Vectors) -> int | None:
        """Return the index of a vector that fails alone, by halving; None if a batch does."""
        low, high = 0, len(Z)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(Z[low:middle]):
                high = middle
            elif self._fails(Z[middle:high]):
                low = middle
            else:
                return None
        return low

    def _fails(self, Z: Vectors) -> bool:
        try:
            self.function(Z)
        except Exception:
            return True
        return False

    def _checked(self, values: NDArray[Any], rows: int) -> Vectors:
        """Return the outputs as (n, k) finite numbers, or raise."""
        if values.dtype.kind not in "fc" and values.shape in ((rows,), (rows, 1)):
            raise InvalidInput(
                f"the model {self.name} returned {values.dtype} labels of shape {values.shape}, "
                f"not scores: return one score per answer, (n, k), such as logits or "
                f"probabilities; for labels 0 to k − 1 return np.eye(k)[labels]; for a number, "
                f"convert it to float"
            )
        if values.ndim not in (1, 2) or len(values) != rows or 0 in values.shape:
            raise InvalidInput(
                f"the model must return one row per vector, (n, k) for an input (n, m); for "
                f"{rows} vectors {self.name} returned shape {values.shape}"
            )
        outputs = check_finite_outputs(as_array(values, "model outputs"), self.name)
        return outputs[:, None] if outputs.ndim == 1 else outputs

    def jacobians(self, Z: Vectors) -> Vectors:
        """Return central differences along every coordinate, (n, k, m)."""
        return np.concatenate([part for _, part in self._differences(Z)])

    def vjp(self, Z: Vectors, G: Vectors) -> Vectors:
        """Return J_iᵀ g_i for every vector, in blocks of Jacobians."""
        parts = [np.einsum("nk,nkm->nm", G[rows], part) for rows, part in self._differences(Z)]
        return np.concatenate(parts)

    def _differences(self, Z: Vectors) -> Iterator[tuple[slice, Vectors]]:
        """Yield slices of the batch with their Jacobians."""
        n, m = Z.shape
        steps = self.relative_step(Z) * _sizes(Z)
        shifts = np.concatenate([np.diag(steps), -np.diag(steps)])
        rows = max(1, _ROWS_AT_ONCE // (2 * m))
        for start in range(0, n, rows):
            block = Z[start : start + rows]
            shifted = (block[:, None, :] + shifts).reshape(-1, m)
            values = self.outputs(shifted).reshape(len(block), 2, m, -1)
            change = (values[:, 0] - values[:, 1]).transpose(0, 2, 1)
            yield slice(start, start + rows), change / (2 * steps)

    def relative_step(self, Z: Vectors) -> float:
        """Return the relative step: by default the cube root of the outputs' precision."""
        if self.step is not None:
            return self.step
        dtype = self._called(Z[:1]).dtype
        if dtype.kind != "f" or dtype.itemsize >= 8:
            return 6e-6
        return float(np.cbrt(np.finfo(dtype).eps))

    def gram(self, Z: Vectors) -> Vectors:
        """Return Σ JᵀJ over the batch."""
        return gram_of(self.jacobians(Z))

    def numbers_per_vector(self, dim: int, outputs: int) -> int:
        """Return k·m, the size of the Jacobian."""
        return outputs * dim


def _sizes(Z: Vectors) -> Vectors:
    """Return the largest absolute value of every coordinate, or of all where it is far smaller."""
    sizes = np.abs(Z).max(axis=0)
    largest = max(float(sizes.max()), 1e-8)
    result: Vectors = np.where(sizes > 0, np.maximum(sizes, 1e-4 * largest), largest)
    return result


_TRIALS: Final = 16
"""The number of vectors on which a model is checked to have a derivative."""


def check_differentiable(function: FiniteDifferences, Z: Vectors) -> None:
    """Raise UnsupportedModel if the function is constant around the vectors, or jumps.

    A jump within the step of a difference makes the quotient grow as the step shrinks.
    """
    trial = Z[:: max(1, len(Z) // _TRIALS)][:_TRIALS]
    step = function.relative_step(trial)
    coarse = replace(function, step=step).jacobians(trial)
    fine = replace(function, step=step / 8).jacobians(trial)
    if not coarse.any() or np.abs(coarse - fine).mean() > 0.25 * np.abs(coarse).mean():
        raise UnsupportedModel(
            f"the model {function.name} has no useful derivative (it is piecewise constant or "
            f"jumps), so there is no geometry of its task: use a mechanism that needs none, such "
            f"as 'class-response', which releases the model's answer, or a smooth public model"
        )
