"""Hugging Face models as public encoders: from a text or an image to a vector, then to a report.

The library transformers is not imported: any processor (a tokenizer or an image processor) and any
model with the same interface work. Objects with ``encode``, such as those of sentence-transformers,
need no wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from offaxis.encoding.pairs import NOT_PASSED
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.release import Release

try:
    import torch
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.transformers needs torch: {installing('transformers')}"
    ) from error

from offaxis.geometry.torch_model import evaluating

__all__ = ["FeatureExtractor", "PrivateFeatures"]

Pooling = Literal["mean", "cls", "pooler"]

_TEXT_OPTIONS: Final[Mapping[str, Any]] = {"padding": True, "truncation": True}


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """A public encoder: texts or images in, vectors (n, m) out, in float32.

    The model runs in eval mode and without gradients, on its device; its mode is restored
    afterwards. Processor and model are public: they come before the release and give no privacy.

    Parameters
    ----------
    processor : callable
        A tokenizer or image processor: called with a list of inputs and ``return_tensors="pt"``.
    model : torch.nn.Module
        Called with the output of the processor.
    pooling : {"mean", "cls", "pooler"}
        The mean of the last hidden states without padding, according to the attention mask; the
        first of them; or the model's ``pooler_output``.
    batch_size : int
        Number of inputs per call of the model.
    options : mapping
        Options of the processor. A tokenizer pads and truncates by default.

    Examples
    --------
    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    >>> from offaxis.integrations.transformers import FeatureExtractor
    >>> words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "tea": 2, "time": 3}, "[UNK]"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    >>> tiny = BertConfig(vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    >>> extractor = FeatureExtractor(tokenizer, BertModel(tiny), pooling="mean")
    >>> extractor(["tea time", "tea"]).shape
    (2, 8)
    """

    processor: Any
    model: Any
    pooling: Pooling = "mean"
    batch_size: int = 32
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the pooling and the batch size."""
        if self.pooling not in get_args(Pooling):
            raise InvalidInput(
                f"pooling must be 'mean', 'cls' or 'pooler', got pooling={self.pooling!r}"
            )
        if self.batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, got {self.batch_size}")

    def __call__(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        """Return the vectors (n, m) of a list of inputs."""
        batch = list(inputs) if not isinstance(inputs, str) else [inputs]
        if not batch:
            raise InvalidInput("there are no inputs to encode")
        starts = range(0, len(batch), self.batch_size)
        with evaluating(self.model):
            parts = [self._vectors(batch[i : i + self.batch_size]) for i in starts]
        return np.concatenate(parts)

    def _vectors(self, inputs: list[Any]) -> NDArray[np.float32]:
        is_text = hasattr(self.processor, "convert_tokens_to_ids")
        options = {**(_TEXT_OPTIONS if is_text else {}), **self.options}
        prepared = self.processor(inputs, return_tensors="pt", **options)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        tensors = {name: value.to(device) for name, value in prepared.items()}
        pooled = _pooled(self.model(**tensors), tensors.get("attention_mask"), self.pooling)
        vectors: NDArray[np.float32] = pooled.flatten(1).float().cpu().numpy()
        return vectors


@dataclass(frozen=True, eq=False)
class PrivateFeatures:
    """A public encoder and a release: only the report of a text or an image leaves the device.

    **Every call of** :meth:`privatize` **spends the budget again.** The vector is protected, and
    with it the input: any change of a text, even of all of it, can only give another vector, and
    the guarantee bounds how well any two vectors can be distinguished. That a report was sent is
    not hidden, nor how long encoding took.

    Every input is encoded alone: in a batch, the length of other inputs changes the last digits,
    and a report must depend on one person only. Entries of a vector that are not finite count as
    zero, so that every input gets a report.

    Parameters
    ----------
    extractor : callable, or object with ``encode``
        Maps a list of inputs to vectors (n, m): a :class:`FeatureExtractor`, a
        SentenceTransformer, or any function. It must be deterministic.
    release : Release
        Fitted to vectors of the same extractor.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.integrations.transformers import PrivateFeatures
    >>> def lengths(texts):                               # in practice: a FeatureExtractor
    ...     return np.array([[len(text), text.count(" ")] for text in texts], dtype=float)
    >>> public = lengths(["a few words " * n for n in range(1, 50)])
    >>> private = PrivateFeatures(lengths, fit(np.eye(2), public, epsilon=4, mechanism="laplace"))
    >>> report = private.privatize("a private text")
    >>> private.release.decode(report).shape
    (2,)
    >>> len(private.privatize(["one", "two"]))
    2
    """

    extractor: Any
    release: Release

    def __post_init__(self) -> None:
        """Check that the extractor can be called."""
        if not (hasattr(self.extractor, "encode") or callable(self.extractor)):
            raise InvalidInput(
                f"the extractor must be callable or have encode(), got "
                f"{type(self.extractor).__name__}"
            )

    def vectors(self, inputs: Sequence[Any]) -> NDArray[Any]:
        """Return the vectors of **public** inputs, without noise, for fitting and evaluation."""
        encode = getattr(self.extractor, "encode", self.extractor)
        return np.asarray(encode(list(inputs)))

    def privatize(self, inputs: Any, *, answers: Any = NOT_PASSED) -> bytes | list[bytes]:
        """Turn one private input into a report, or a list of them into a list of reports.

        Parameters
        ----------
        inputs : one input, or a list
        answers : optional
            For a release of pairs: the private answers, as in :meth:`offaxis.Release.privatize`.

        Raises
        ------
        InvalidInput
            If the extractor returns vectors of another dimension, or there are no inputs.
        """
        single = not isinstance(inputs, list)
        batch = [inputs] if single else inputs
        rows = [self.vectors([item]).reshape(1, -1) for item in batch]
        if not rows:
            raise InvalidInput("there are no inputs to release")
        vectors = np.nan_to_num(np.concatenate(rows), nan=0.0, posinf=0.0, neginf=0.0)
        return self.release.privatize(vectors[0] if single else vectors, answers=answers)


def _pooled(output: Any, mask: Any, pooling: Pooling) -> Any:
    """Return vectors (n, m) from the output of a model."""
    if pooling == "pooler":
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            raise InvalidInput("the model has no pooler_output; use pooling='mean' or 'cls'")
        return pooled
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is None or hidden.ndim not in (3, 4):
        raise InvalidInput(
            "the model returned no last_hidden_state (n, tokens, m); load it without a head, for "
            "example with AutoModel"
        )
    if hidden.ndim == 4:  # convolutional: (n, m, height, width)
        hidden, mask = hidden.flatten(2).transpose(1, 2), None
    if pooling == "cls":
        return hidden[:, 0]
    matches = mask is not None and mask.shape == hidden.shape[:2]
    if mask is None or (len(hidden) == 1 and not matches):  # a single input has no padding
        return hidden.mean(dim=1)
    if not matches:
        raise InvalidInput(
            f"the attention mask {tuple(mask.shape)} does not show which of {hidden.shape[1]} "
            f"hidden states are padding; use batch_size=1 or pooling='cls'"
        )
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
