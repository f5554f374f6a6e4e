"""Release files: safetensors with a JSON manifest, identified by the hash of their content.

Specified in docs/release-format.md. Contract: reading is strict and trusts nothing. Every size,
field and number is checked, the hash must match, and the guarantee is computed again from the
randomizer's parameters and compared with the claim.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.numpy import save as serialize

from offaxis import plugins
from offaxis.decoding import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    PosteriorCodewordDecoder,
    PosteriorDecoder,
    SecondMomentsDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
)
from offaxis.decoding.pairs import AnswersDecoder, CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.encoding import (
    AffineEncoder,
    Answers,
    AnswersEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    Encoder,
    ModelEncoder,
    NetworkEncoder,
    SecondMomentsEncoder,
    ShiftEncoder,
)
from offaxis.encoding.encoders import ANSWERS, NetworkMap, answer_encoder_of_kind
from offaxis.encoding.pairs import (
    MOST_CLASSES,
    MOST_SYMBOLS,
    Asked,
    Classes,
    Number,
    pair_encoder_of_kind,
)
from offaxis.encoding.questions import LONGEST_NAMES
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.files import replacing
from offaxis.formats.container import (
    LARGEST_FILE,
    Tensors,
    read_header,
    read_metadata,
    read_tensors,
)
from offaxis.formats.strict_json import canonical_json, parse_json, shown
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import PublicIdentity
from offaxis.privacy.guarantee import RELATION, Guarantee
from offaxis.provenance import LONGEST_STATEMENT, Provenance
from offaxis.randomizers import class_of, is_own, parameters, rebuild
from offaxis.randomizers.base import LARGEST_DIM
from offaxis.release import Release
from offaxis.vectors import Vectors

__all__ = ["Manifest"]

FORMAT: Final = "offaxis-release"

VERSION: Final = 1

METADATA_KEY: Final = "offaxis"


def write(release: Release, path: str | Path) -> None:
    """Write a release file; a crash leaves the old file or the new one, never a partial one."""
    with replacing(Path(path)) as file:
        file.write(to_bytes(release))


def read(path: str | Path, *, expect: str | None = None) -> Release:
    """Read a release from an untrusted file; errors as in :func:`from_bytes`."""
    try:
        with Path(path).open("rb") as file:
            return _load(file, expect)
    except (FileNotFoundError, IsADirectoryError):
        raise InvalidRelease(
            f"there is no release file {path}; make one with: offaxis fit"
        ) from None
    except InvalidRelease as error:
        raise InvalidRelease(f"{path}: {error}") from None
    except OSError as error:
        raise InvalidRelease(f"cannot read {path}: {error.strerror or error}") from error


def from_bytes(blob: bytes, *, expect: str | None = None, with_plugins: bool = True) -> Release:
    """Read a release from untrusted bytes.

    Raises
    ------
    InvalidRelease
        If anything differs from what a writer of this version produces, or if the guarantee that
        follows from the parameters is not the one the manifest claims. With ``with_plugins`` false,
        if the randomizer is of another package, of which nothing is imported then.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise InvalidRelease(f"a release is read from bytes, got {type(blob).__name__}")
    return _load(io.BytesIO(blob), expect, with_plugins)


def _load(stream: BinaryIO, expect: str | None, with_plugins: bool = True) -> Release:
    header = read_header(stream)
    claimed_hash, newline, text = read_metadata(header, METADATA_KEY).partition("\n")
    if not newline:
        raise InvalidRelease("this is not an offaxis release: its manifest is incomplete")
    manifest = parse(text)
    tensors = read_tensors(stream, header)
    content = _hash(text, tensors)
    if content != claimed_hash:
        raise InvalidRelease("the release was altered or damaged: its hash does not match")
    if expect is not None and content != str(expect).lower().removeprefix("sha256:"):
        raise InvalidRelease(f"this is release {content}, expected {expect}")
    kind = manifest.randomizer.kind
    if plugins.is_plugin(kind) and not with_plugins:
        raise InvalidRelease(
            f"the randomizer {shown(kind)} is not part of offaxis: devices and collectors accept "
            f"no such release"
        )
    try:
        release = _build(manifest, tensors)
    except InvalidInput as error:
        raise InvalidRelease(f"the release cannot be used: {error}") from None
    if _claim(release.guarantee) != manifest.guarantee:
        claim = manifest.guarantee
        raise InvalidRelease(
            f"the manifest promises ε={claim.epsilon}, δ={claim.delta} under "
            f"{shown(claim.relation)}, but its parameters give {release.guarantee}"
        )
    return release


def _build(manifest: Manifest, tensors: Tensors) -> Release:
    """Build the release; each tensor is freed as soon as a map holds its copy."""
    encoder: Encoder = _map(_ENCODERS, manifest.encoder, tensors, "encoder")
    decoder: Decoder = _map(_DECODERS, manifest.decoder, tensors, "decoder")
    mean = manifest.mean_decoder
    mean_decoder: Decoder | None = _map(_DECODERS, mean, tensors, "mean_decoder") if mean else None
    pairs = ((manifest.encoder, encoder), (manifest.decoder, decoder), (mean, mean_decoder))
    for part, built in pairs:
        if part is not None and built is not None and _map_part(built) != part:
            raise InvalidRelease(f"a {part.kind} map has other sizes than the manifest states")
    if tensors:
        raise InvalidRelease(f"the file holds unknown tensors: {shown(sorted(tensors))}")
    randomizer_parameters: dict[str, Any] = dict(manifest.randomizer.parameters)
    provenance = manifest.provenance
    model = provenance.model
    return Release(
        encoder=encoder,
        randomizer=rebuild(manifest.randomizer.kind, randomizer_parameters),
        decoder=decoder,
        mean_decoder=mean_decoder,
        unit=manifest.guarantee.unit,
        answers=manifest.answers.build() if manifest.answers else None,
        asked=tuple(part.build() for part in manifest.asked or ()),
        provenance=Provenance(
            model=ModelIdentity(**model.model_dump()) if model else None,
            public=PublicIdentity(**provenance.public.model_dump()),
            settings=dict(provenance.settings),
            statement=provenance.statement,
        ),
    )


_ENCODERS: dict[str, Any] = {
    cls.kind: cls
    for cls in (
        AffineEncoder,
        ShiftEncoder,
        BoxEncoder,
        ArgmaxEncoder,
        NetworkEncoder,
        ModelEncoder,
        AnswersEncoder,
        SecondMomentsEncoder,
    )
} | {cls.kind: cls for cls in ANSWERS.values()}

_DECODERS: dict[str, Any] = {
    cls.kind: cls
    for cls in (
        LinearDecoder,
        ShrinkageDecoder,
        ShiftDecoder,
        CodewordDecoder,
        PosteriorCodewordDecoder,
        PosteriorDecoder,
        NetworkDecoder,
        MomentsDecoder,
        CellsDecoder,
        RightDecoder,
        AnswersDecoder,
        SecondMomentsDecoder,
    )
}


def _map(classes: dict[str, Any], part: MapPart, tensors: Tensors, prefix: str) -> Any:
    """Build an encoder or a decoder from the tensors of its fields."""
    cls = classes.get(part.kind)
    if cls is None and classes is _ENCODERS:  # kinds that name activations
        cls = answer_encoder_of_kind(part.kind) or pair_encoder_of_kind(part.kind)
    if cls is None:
        raise InvalidRelease(f"unknown {prefix.replace('_', ' ')} {shown(part.kind)}")
    if issubclass(cls, NetworkMap):
        depth = sum(name.startswith(f"{prefix}.weight.") for name in tensors)
        layers = [
            _take(tensors, prefix, *(f"{kind}.{i}" for i in range(depth)))
            for kind in ("weight", "bias")
        ]
        return cls(*layers, *_take(tensors, prefix, *_beside_layers(cls)))
    return cls(*_take(tensors, prefix, *_init_fields(cls)))


def _take(tensors: Tensors, prefix: str, *names: str) -> list[Vectors]:
    try:
        return [tensors.pop(f"{prefix}.{name}") for name in names]
    except KeyError as error:
        raise InvalidRelease(f"the file lacks the tensor {error.args[0]!r}") from None


# ---- Content of a file


def to_bytes(release: Release) -> bytes:
    """Return the content of a release file."""
    kind, cls = release.randomizer.kind, type(release.randomizer)
    loaded = plugins.find("randomizers", kind) if plugins.is_plugin(kind) else class_of(kind)
    if loaded is not None and cls is not loaded:
        raise InvalidInput(
            f"{cls.__name__} is not the randomizer {kind!r} that a file would be loaded with: give "
            f"it a kind of its own"
        )
    # A single entry: safetensors does not keep the order of several.
    metadata = {METADATA_KEY: f"{release.hash}\n{manifest_of(release).canonical()}"}
    tensors = _tensors(release)
    size = sum(tensor.nbytes for tensor in tensors.values())
    if size > LARGEST_FILE:
        raise InvalidInput(
            f"this release has {size / 2**30:.2f} GiB of numbers, and a release file at most "
            f"{LARGEST_FILE / 2**30:.0f} GiB: reduce the dimension, or fit a mechanism that keeps "
            f"fewer directions"
        )
    blob: bytes = serialize(tensors, metadata=metadata)
    return blob


def content_hash(release: Release) -> str:
    """Return the identity of a release, the same for every file that contains it.

    One that no file can contain, with a changed class of a kind of offaxis, has another identity.
    """
    text, randomizer = manifest_of(release).canonical(), release.randomizer
    if not plugins.is_plugin(randomizer.kind) and not is_own(randomizer):
        text += f"\n{type(randomizer).__module__}.{type(randomizer).__qualname__}"
    return _hash(text, _tensors(release))


def _hash(manifest: str, tensors: Tensors) -> str:
    """Hash the canonical manifest and every tensor, each preceded by its length."""
    digest = hashlib.sha256(b"offaxis-release-1\n")
    text = manifest.encode()
    digest.update(b"manifest:%d\n" % len(text) + text)
    for name in sorted(tensors):
        # Hashed without a copy: a release may have a gigabyte.
        flat = tensors[name].reshape(-1)
        digest.update(f"{name}:{tensors[name].shape}:{flat.nbytes}\n".encode())
        digest.update(flat.data)
    return digest.hexdigest()


def _tensors(release: Release) -> Tensors:
    parts: dict[str, Encoder | Decoder | None] = {
        "encoder": release.encoder,
        "decoder": release.decoder,
        "mean_decoder": release.mean_decoder,
    }
    return {
        f"{name}.{key}": np.ascontiguousarray(array, dtype="<f8")
        for name, part in parts.items()
        if part is not None
        for key, array in tensors_of(part).items()
    }


def tensors_of(part: Encoder | Decoder) -> Tensors:
    """Return the arrays that define a map, by their names in a file."""
    if isinstance(part, NetworkMap):
        layers = {"weight": part.weights, "bias": part.biases}
        return {
            f"{kind}.{i}": a for kind, arrays in layers.items() for i, a in enumerate(arrays)
        } | {name: getattr(part, name) for name in _beside_layers(type(part))}
    return {name: getattr(part, name) for name in _init_fields(type(part))}


def _init_fields(cls: type[Any]) -> list[str]:
    """Return the fields a map is constructed from; a bound randomizer is never in a file."""
    return [field.name for field in fields(cls) if field.init]


def _beside_layers(cls: type[Any]) -> list[str]:
    """Return the fields of a network map besides its layers."""
    return [name for name in _init_fields(cls) if name not in ("weights", "biases")]


# ---- Manifest

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A hash in lower-case hexadecimal digits."""

Word = Annotated[str, Field(min_length=1, max_length=200)]

Rational = Annotated[str, Field(pattern=r"^[0-9]+(/[0-9]+)?$", max_length=200)]

Natural = Annotated[int, Field(ge=0)]

Dim = Annotated[int, Field(ge=1, le=LARGEST_DIM)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class MapPart(_Strict):
    """An encoder or a decoder: its kind and sizes; its arrays are tensors of the file."""

    kind: Word
    input_dim: Dim
    output_dim: Dim


class RandomizerPart(_Strict):
    """A randomizer: everything that determines its guarantee.

    No parameter is negative: a randomizer may read a negative one as "choose for me", but in a file
    the choice has been made.
    """

    kind: Word
    parameters: dict[Word, Natural | float | Word]


class GuaranteePart(_Strict):
    """The guarantee that the file claims; the loader trusts only what it recomputes."""

    epsilon: Rational
    delta: Rational
    unit: Literal["item", "user"]
    relation: Word


class ModelPart(_Strict):
    """The public model."""

    kind: Word
    name: Word
    sha256: Sha256


class PublicPart(_Strict):
    """The public vectors."""

    count: Annotated[int, Field(ge=1, le=10**15)]
    dim: Dim
    sha256: Sha256


class ProvenancePart(_Strict):
    """The public data, model and settings of the release."""

    model: ModelPart | None
    public: PublicPart
    settings: dict[Word, float | Word]
    statement: Annotated[str, Field(max_length=LONGEST_STATEMENT)]


class AnswersPart(_Strict):
    """The names of a model's answers, and the symbol that reports each."""

    names: list[Word]
    symbols: list[Natural]
    kept: list[Natural]

    def build(self) -> Answers:
        """Return the answers, checked."""
        return Answers(tuple(self.names), tuple(self.symbols), tuple(self.kept))


class ClassesPart(_Strict):
    """A private answer of people that is one of several classes."""

    kind: Literal["classes"]
    name: Word
    names: list[Word]
    optional: bool

    def build(self) -> Classes:
        """Return what is asked, checked."""
        return _canonical(self, Classes(self.names, self.name, self.optional))


class ManyClassesPart(_Strict):
    """The same with more classes than JSON may list: one text, empty for names 0, 1, …."""

    kind: Literal["many-classes"]
    name: Word
    size: Annotated[int, Field(gt=MOST_CLASSES, le=MOST_SYMBOLS)]
    names: Annotated[str, Field(max_length=LONGEST_NAMES)]
    optional: bool

    def build(self) -> Classes:
        """Return what is asked, checked."""
        names = self.names.split("\n") if self.names else self.size
        return _canonical(self, Classes(names, self.name, self.optional))


class NumberPart(_Strict):
    """A private answer of people that is a number."""

    kind: Literal["number"]
    name: Word
    low: float
    high: float
    optional: bool

    def build(self) -> Number:
        """Return what is asked, checked."""
        return Number(self.low, self.high, self.name, self.optional)


class BinsPart(_Strict):
    """A private answer of people that is a number in one of some bins."""

    kind: Literal["bins"]
    name: Word
    low: float
    high: float
    bins: Annotated[int, Field(ge=2, le=MOST_SYMBOLS)]
    optional: bool

    def build(self) -> Number:
        """Return what is asked, checked."""
        return Number(self.low, self.high, self.name, self.optional, self.bins)


AskedPart = ClassesPart | ManyClassesPart | NumberPart | BinsPart


def _canonical(part: AskedPart, asked: Classes) -> Classes:
    """Return what a part was built to, if a writer would write it so."""
    if _asked_part(asked) != part:
        raise InvalidInput("classes are not written in canonical form")
    return asked


class Manifest(_Strict):
    """Everything of a release except its arrays: a strict schema.

    ``answers`` and ``asked`` are left out of the text where a release has none.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.formats.release_file import manifest_of
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> manifest = manifest_of(offaxis.fit(
    ...     np.ones((1, 3)), public, epsilon=2, mechanism="laplace"
    ... ))  # a Manifest
    >>> manifest.randomizer.kind, manifest.guarantee.epsilon
    ('laplace', '2')
    """

    format: Literal["offaxis-release"]
    version: Literal[1]
    encoder: MapPart
    randomizer: RandomizerPart
    decoder: MapPart
    mean_decoder: MapPart | None
    guarantee: GuaranteePart
    provenance: ProvenancePart
    answers: AnswersPart | None = None
    asked: Annotated[list[AskedPart], Field(min_length=1)] | None = None

    def canonical(self) -> str:
        """Return the canonical JSON text of this manifest."""
        absent = {name for name in ("answers", "asked") if getattr(self, name) is None}
        return canonical_json(self.model_dump(exclude=absent))


def parse(text: str) -> Manifest:
    """Read a manifest from untrusted text."""
    try:
        raw = parse_json(text)
    except ValueError as error:
        raise InvalidRelease(f"the manifest is not valid JSON: {error}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InvalidRelease("this is not an offaxis release")
    if raw.get("version") != VERSION:
        raise InvalidRelease(
            f"the release has format version {shown(raw.get('version'))}; this offaxis reads "
            f"version {VERSION}: upgrade offaxis, or publish the release again"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = shown(".".join(str(part) for part in first["loc"]))
        raise InvalidRelease(f"the manifest is wrong at {place}: {first['msg']}") from None
    if manifest.canonical() != text:
        raise InvalidRelease("the manifest is not in canonical form")
    return manifest


def manifest_of(release: Release) -> Manifest:
    """Return the manifest of a release."""
    provenance = release.provenance
    model, public = provenance.model, provenance.public
    return Manifest(
        format=FORMAT,
        version=VERSION,
        encoder=_map_part(release.encoder),
        randomizer=RandomizerPart(
            kind=release.randomizer.kind, parameters=parameters(release.randomizer)
        ),
        decoder=_map_part(release.decoder),
        mean_decoder=_map_part(release.mean_decoder) if release.mean_decoder else None,
        guarantee=_claim(release.guarantee),
        provenance=ProvenancePart(
            model=ModelPart(**vars(model)) if model else None,
            public=PublicPart(**vars(public)),
            settings=provenance.settings,
            statement=provenance.statement,
        ),
        answers=_answers_part(release.answers) if release.answers else None,
        asked=[_asked_part(part) for part in release.asked] or None,
    )


def _asked_part(asked: Asked) -> AskedPart:
    name, optional = asked.name, asked.optional
    if isinstance(asked, Number):
        ends = {"low": asked.low, "high": asked.high}
        if asked.bins:
            return BinsPart(kind="bins", name=name, **ends, bins=asked.bins, optional=optional)
        return NumberPart(kind="number", name=name, **ends, optional=optional)
    names, size = list(asked.names), asked.classes
    if size <= MOST_CLASSES:
        return ClassesPart(kind="classes", name=name, names=names, optional=optional)
    text = "" if names == list(map(str, range(size))) else "\n".join(names)
    if len(canonical_json(text)) > LONGEST_NAMES or text.count("\n") not in (0, size - 1):
        raise InvalidInput(
            f"the names of {size} classes may have {LONGEST_NAMES} characters together, without "
            f"line breaks: use shorter names, or numbers"
        )
    return ManyClassesPart(kind="many-classes", name=name, size=size, names=text, optional=optional)


def _answers_part(answers: Answers) -> AnswersPart:
    return AnswersPart(
        names=list(answers.names), symbols=list(answers.symbols), kept=list(answers.kept)
    )


def _map_part(part: Encoder | Decoder) -> MapPart:
    kind = part.kind
    known = {_ENCODERS.get(kind), _DECODERS.get(kind)}
    if type(part) not in known | {answer_encoder_of_kind(kind), pair_encoder_of_kind(kind)}:
        raise InvalidInput(
            f"{type(part).__name__} is not the map {kind!r} that a file would be loaded with: a "
            f"release has encoders and decoders of offaxis; only the randomizer may be your own"
        )
    return MapPart(kind=part.kind, input_dim=part.input_dim, output_dim=part.output_dim)


def _claim(guarantee: Guarantee) -> GuaranteePart:
    return GuaranteePart(
        epsilon=str(guarantee.epsilon),
        delta=str(guarantee.delta),
        unit=guarantee.unit,
        relation=RELATION,
    )
