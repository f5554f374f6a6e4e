"""Hugging Face models as public encoders: from a text or an image to a vector, then to a report.

Nothing of transformers is imported: a processor (a tokenizer, an image processor) and a model are
taken for what they do. Objects with ``encode``, as sentence-transformers has, need no wrapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.release import Release

__all__ = ["FeatureExtractor", "PrivateFeatures"]

try:
    import torch

    from offaxis.geometry.torch_model import evaluating
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.transformers needs torch: {installing('transformers')}"
    ) from error


Pooling = Literal["mean", "cls", "pooler"]

_TEXT_OPTIONS: Final[Mapping[str, Any]] = {"padding": True, "truncation": True}


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """A public encoder: texts or images in, vectors (n, m) out, in float32.

    The model runs in eval mode and without gradients, on its own device, and is given back as it
    was. The pair is public: it stands before the release and carries no privacy.

    Parameters
    ----------
    processor : callable
        A tokenizer or image processor: called with a list of inputs and ``return_tensors="pt"``.
    model : torch.nn.Module
        Called with what the processor returns.
    pooling : {"mean", "cls", "pooler"}
        The mean of the last hidden states where the attention mask says there is something; the
        first of them; or the model's own ``pooler_output``.
    batch_size : int
        Inputs a call of the model.
    options : mapping
        For the processor. A tokenizer pads and truncates unless told otherwise.

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
        given = list(inputs) if not isinstance(inputs, str) else [inputs]
        if not given:
            raise InvalidInput("there are no inputs to encode")
        starts = range(0, len(given), self.batch_size)
        with evaluating(self.model):
            parts = [self._vectors(given[i : i + self.batch_size]) for i in starts]
        return np.concatenate(parts)

    def _vectors(self, inputs: list[Any]) -> NDArray[np.float32]:
        is_text = hasattr(self.processor, "convert_tokens_to_ids")
        options = {**(_TEXT_OPTIONS if is_text else {}), **self.options}
        prepared = self.processor(inputs, return_tensors="pt", **options)
        where = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        tensors = {name: value.to(where) for name, value in prepared.items()}
        pooled = _pooled(self.model(**tensors), tensors.get("attention_mask"), self.pooling)
        vectors: NDArray[np.float32] = pooled.flatten(1).float().cpu().numpy()
        return vectors


@dataclass(frozen=True, eq=False)
class PrivateFeatures:
    """A public encoder and a release: what leaves the device of a text or an image is a report.

    **Every call of** :meth:`privatize` **spends the budget again.** What is protected is the
    vector, and with it the input: whatever is changed in a text, were it the whole of it, gives
    another vector at most, and no two vectors are told apart by more than the guarantee says. That
    a report was sent is not hidden, nor how long encoding took.

    Every input is encoded alone: in a batch, how long others are changes the last digits, and
    a report must tell of one person only. Entries of a vector that are not finite count as zero,
    so that every input is answered.

    Parameters
    ----------
    extractor : callable, or object with ``encode``
        From a list of inputs to vectors (n, m): a :class:`FeatureExtractor`, a
        SentenceTransformer, or any function. It must not draw anything at random.
    release : Release
        Fitted on vectors of the same extractor.

    Examples
    --------
    >>> from offaxis import fit
    >>> from offaxis.integrations.transformers import PrivateFeatures
    >>> def lengths(texts):                               # yours: a model, see FeatureExtractor
    ...     return np.array([[len(text), text.count(" ")] for text in texts], dtype=float)
    >>> public = lengths(["a few words " * n for n in range(1, 50)])
    >>> private = PrivateFeatures(lengths, fit(np.eye(2), public, epsilon=4))
    >>> report = private.privatize("nobody else reads this")
    >>> private.release.decode(report).shape, len(private.privatize(["one", "two"]))
    ((2,), 2)
    >>> private.vectors(["as it is, for public texts"])
    array([[26.,  5.]])
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
        """Return the vectors of **public** inputs, to fit and to evaluate on; nothing is noisy."""
        encode = getattr(self.extractor, "encode", self.extractor)
        return np.asarray(encode(list(inputs)))

    def privatize(self, inputs: Any) -> bytes | list[bytes]:
        """Turn one private input into a report, or a list of them into a list of reports.

        Raises
        ------
        InvalidInput
            If the extractor gives vectors of another dimension, or there are no inputs.
        """
        single = not isinstance(inputs, list)
        each = [self.vectors([one]).reshape(1, -1) for one in ([inputs] if single else inputs)]
        if not each:
            raise InvalidInput("there are no inputs to release")
        total = np.nan_to_num(np.concatenate(each), nan=0.0, posinf=0.0, neginf=0.0)
        return self.release.privatize(total[0] if single else total)


def _pooled(output: Any, mask: Any, pooling: Pooling) -> Any:
    """Return (n, m) from what a model gave."""
    if pooling == "pooler":
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            raise InvalidInput("the model has no pooler_output; use pooling='mean' or 'cls'")
        return pooled
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is None or hidden.ndim not in (3, 4):
        raise InvalidInput(
            "the model gave no last_hidden_state (n, tokens, m); load it without a head on top, "
            "as AutoModel does"
        )
    if hidden.ndim == 4:  # convolutional: (n, m, height, width)
        hidden, mask = hidden.flatten(2).transpose(1, 2), None
    if pooling == "cls":
        return hidden[:, 0]
    fits = mask is not None and mask.shape == hidden.shape[:2]
    if mask is None or (len(hidden) == 1 and not fits):  # one alone has no padding
        return hidden.mean(dim=1)
    if not fits:
        raise InvalidInput(
            f"the attention mask {tuple(mask.shape)} does not tell which of {hidden.shape[1]} "
            f"hidden states are padding; use batch_size=1 or pooling='cls'"
        )
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
