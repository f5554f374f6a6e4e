"""Real transformers models from tiny configurations, with random weights and without downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import offaxis
from offaxis.errors import InvalidInput
from offaxis.integrations.transformers import FeatureExtractor, PrivateFeatures
from tests.checks import ALPHA, mean_p_value

transformers = pytest.importorskip("transformers")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "dogs", "sang", "of", "tea", "and"]
TEXTS = [" ".join(WORDS[i % 9 : i % 9 + 1 + i % 4]) for i in range(40)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models are slower on several threads, and other tests run at the same time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )


@pytest.fixture(scope="module")
def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=2 + len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return transformers.BertModel(config)


@pytest.fixture(scope="module")
def extractor(tokenizer: Any, bert: Any) -> FeatureExtractor:
    return FeatureExtractor(tokenizer, bert, batch_size=7)


@pytest.fixture(scope="module")
def release(extractor: FeatureExtractor) -> offaxis.Release:
    return offaxis.fit(np.eye(8)[:2], extractor(TEXTS), epsilon=6, mechanism="laplace")


def test_the_mean_excludes_padding(extractor: FeatureExtractor, bert: Any) -> None:
    """The broken control includes it."""
    together = extractor(["tea", "the cat sat on a mat"])
    alone = extractor("tea")
    assert together.shape == (2, 8)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together[:1], alone, atol=1e-5)
    padded = extractor.processor(["tea", "the cat sat on a mat"], return_tensors="pt", padding=True)
    with torch.no_grad():
        broken = bert.eval()(**padded).last_hidden_state.mean(dim=1)
    assert np.abs(broken[0].numpy() - alone[0]).max() > 1e-2


def test_every_pooling_matches_the_model(tokenizer: Any, bert: Any) -> None:
    with torch.no_grad():
        output = bert.eval()(**tokenizer(TEXTS[:3], return_tensors="pt", padding=True))
    first = FeatureExtractor(tokenizer, bert, pooling="cls")(TEXTS[:3])
    np.testing.assert_allclose(first, output.last_hidden_state[:, 0].numpy(), atol=1e-6)
    pooler = FeatureExtractor(tokenizer, bert, pooling="pooler")(TEXTS[:3])
    np.testing.assert_allclose(pooler, output.pooler_output.numpy(), atol=1e-6)


def test_the_batch_size_changes_nothing_and_the_mode_of_the_model_is_restored(
    tokenizer: Any, bert: Any
) -> None:
    bert.train()
    bert.pooler.eval()
    try:
        single = FeatureExtractor(tokenizer, bert, batch_size=1)(TEXTS)
        batched = FeatureExtractor(tokenizer, bert, batch_size=64)(TEXTS)
        np.testing.assert_allclose(single, batched, atol=1e-5)  # dropout would change them
        assert bert.training
        assert not bert.pooler.training
    finally:
        bert.eval()


def test_long_and_empty_texts_have_vectors(extractor: FeatureExtractor) -> None:
    vectors = extractor(["tea " * 500, "", "unknown words only"])
    assert vectors.shape == (3, 8)
    assert np.isfinite(vectors).all()


def test_images_are_encoded_by_a_vision_transformer() -> None:
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
    )
    model = transformers.ViTModel(config)
    processor = ViTImageProcessorPil(size={"height": 8, "width": 8})
    images = list(np.random.default_rng(0).integers(0, 255, (12, 10, 9, 3), dtype=np.uint8))
    for pooling in ("mean", "cls", "pooler"):
        extractor = FeatureExtractor(processor, model, pooling=pooling, batch_size=5)
        vectors = extractor(images)
        assert vectors.shape == (12, 8)
        np.testing.assert_allclose(extractor(images[3:4])[0], vectors[3], atol=1e-5)
    private = PrivateFeatures(
        extractor, offaxis.fit(np.eye(8)[:1], vectors, epsilon=4, mechanism="laplace")
    )
    assert private.release.decode(private.privatize(images[0])).shape == (8,)


def test_decoded_reports_match_the_texts(
    extractor: FeatureExtractor, release: offaxis.Release
) -> None:
    """Means of 400 decoded reports of one text against its vector; false alarm ALPHA.

    The broken control reports another text. The encoding of the text is well inside the ball, so
    that clipping does not matter.
    """
    encoded = dict(zip(TEXTS, extractor(TEXTS), strict=True))  # once: encoding is slow
    private = PrivateFeatures(lambda texts: np.array([encoded[text] for text in texts]), release)
    text, other = _inner_pair(private)
    # Laplace noise through a linear decoder is unbiased.
    decoded = release.decode(private.privatize([text] * 400))
    assert mean_p_value(decoded[:, :2], private.vectors([text])[0, :2]) > ALPHA
    broken = release.decode(private.privatize([other] * 400))
    assert mean_p_value(broken[:, :2], private.vectors([text])[0, :2]) < ALPHA


def _inner_pair(private: PrivateFeatures) -> tuple[str, str]:
    """Return two texts inside the ball whose vectors differ most along the task."""
    vectors = private.vectors(TEXTS)
    norms = np.abs(private.release.encoder.encode(vectors.astype(float))).sum(axis=1)
    inside = np.flatnonzero(norms < 0.9 * private.release.randomizer.radius)
    order = inside[np.argsort(vectors[inside, 0])]
    return TEXTS[order[0]], TEXTS[order[-1]]


def test_every_input_is_encoded_alone(release: offaxis.Release) -> None:
    seen: list[int] = []

    def vectors(texts: list[str]) -> np.ndarray:
        seen.append(len(texts))
        return np.ones((len(texts), 8))

    reports = PrivateFeatures(vectors, release).privatize(["a", "b", "c"])
    assert seen == [1, 1, 1]
    assert len(set(reports)) == 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_input_gets_a_report(value: float, release: offaxis.Release) -> None:
    private = PrivateFeatures(lambda texts: np.full((len(texts), 8), value), release)
    assert release.decode(private.privatize("text")).shape == (8,)


def test_a_sentence_transformer_needs_no_wrapper(
    tokenizer: Any, bert: Any, release: offaxis.Release, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    parts = [modules.Transformer(str(tmp_path)), modules.Pooling(8, pooling_mode="mean")]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
    private = PrivateFeatures(model, release)
    np.testing.assert_allclose(
        private.vectors(TEXTS), FeatureExtractor(tokenizer, bert)(TEXTS), atol=1e-5
    )
    assert isinstance(private.privatize("the cat"), bytes)


class MeanOfTokens(torch.nn.Module):
    """The computation of FeatureExtractor after the tokenizer, as a network to export."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].float()
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def test_a_text_encoder_is_exported_for_texts_of_any_length(
    tokenizer: Any, bert: Any, extractor: FeatureExtractor, release: offaxis.Release
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from offaxis.integrations.onnx import to_onnx

    tokens = tokenizer(TEXTS, return_tensors="pt", padding=True)
    model = to_onnx(
        release,
        MeanOfTokens(bert),
        example=(tokens["input_ids"][:2], tokens["attention_mask"][:2]),
        names=["input_ids", "attention_mask"],
        free_axes=(0, 1),
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for texts in (TEXTS[:3], ["tea", "the cat sat on a mat while dogs sang"]):
        tokens = tokenizer(texts, return_tensors="np", padding=True)
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        (encoded,) = session.run(None, inputs)
        expected = release.encoder.encode(extractor(texts).astype(np.float64))
        np.testing.assert_allclose(encoded, expected, atol=1e-5 * np.abs(expected).max())


def test_invalid_arguments_raise_with_the_reason(
    extractor: FeatureExtractor, tokenizer: Any, bert: Any, release: offaxis.Release
) -> None:
    with pytest.raises(InvalidInput, match="pooling='max'"):
        FeatureExtractor(tokenizer, bert, pooling="max")
    with pytest.raises(InvalidInput, match="batch_size"):
        FeatureExtractor(tokenizer, bert, batch_size=0)
    with pytest.raises(InvalidInput, match="no inputs"):
        extractor([])
    with pytest.raises(InvalidInput, match="no inputs"):
        PrivateFeatures(extractor, release).privatize([])
    with pytest.raises(InvalidInput, match=r"callable or have encode\(\), got int"):
        PrivateFeatures(7, release)
    with pytest.raises(InvalidInput, match="dimension 8, got 2"):
        PrivateFeatures(lambda texts: np.zeros((len(texts), 2)), release).privatize("text")


class FixedOutput(torch.nn.Module):
    """Returns a fixed output."""

    def __init__(self, **output: Any) -> None:
        super().__init__()
        self.output = SimpleNamespace(**output)

    def forward(self, **tensors: Any) -> Any:
        return self.output


def test_unsupported_model_outputs_raise_with_the_reason(tokenizer: Any) -> None:
    texts = ["tea", "the cat"]
    with pytest.raises(InvalidInput, match="no pooler_output"):
        FeatureExtractor(tokenizer, FixedOutput(), pooling="pooler")(texts)
    with pytest.raises(InvalidInput, match="AutoModel"):
        FeatureExtractor(tokenizer, FixedOutput(logits=torch.zeros(2, 3)))(texts)
    with pytest.raises(InvalidInput, match="does not show which of 9"):
        FeatureExtractor(tokenizer, FixedOutput(last_hidden_state=torch.zeros(2, 9, 4)))(texts)
    convolved = torch.arange(2.0 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    vectors = FeatureExtractor(tokenizer, FixedOutput(last_hidden_state=convolved))(texts)
    np.testing.assert_allclose(vectors, convolved.mean(dim=(2, 3)))
