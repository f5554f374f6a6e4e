"""Fields that several kinds of documents have."""

from __future__ import annotations

import hashlib
import io
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.numpy import save as serialize

from offaxis.decoding import (
    CodewordDecoder,
    Decoder,
    LinearDecoder,
    NetworkDecoder,
    PosteriorCodewordDecoder,
    PosteriorDecoder,
    ShiftDecoder,
    ShrinkageDecoder,
)
from offaxis.encoding import (
    AffineEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    Encoder,
    NetworkEncoder,
    ShiftEncoder,
)
from offaxis.encoding.encoders import ANSWERS, NetworkMap
from offaxis.errors import InvalidInput, InvalidRelease
from offaxis.files import replacing
from offaxis.formats.container import Tensors, read_header, read_metadata, read_tensors
from offaxis.formats.strict_json import canonical_json, parse_json, shown
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import PublicIdentity
from offaxis.privacy.guarantee import RELATION, Guarantee
from offaxis.randomizers import parameters, rebuild
from offaxis.randomizers.base import LARGEST_DIM
from offaxis.release import LONGEST_STATEMENT, Provenance, Release
from offaxis.vectors import Vectors

__all__ = ["Manifest"]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A hash in small hexadecimal digits."""


# ----------------------------------------------------------------------------
# The manifest of a release file: a strict schema, nothing optional, nothing unknown.

FORMAT: Final = "offaxis-release"
VERSION: Final = 1

Word = Annotated[str, Field(min_length=1, max_length=200)]
Rational = Annotated[str, Field(pattern=r"^[0-9]+(/[0-9]+)?$", max_length=200)]
Natural = Annotated[int, Field(ge=0)]
Dim = Annotated[int, Field(ge=1, le=LARGEST_DIM)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class MapPart(_Strict):
    """An encoder or a decoder: its kind and size; its numbers are tensors of the file."""

    kind: Word
    input_dim: Dim
    output_dim: Dim


class RandomizerPart(_Strict):
    """A randomizer: everything that decides its guarantee.

    No parameter is negative: a randomizer may read that as "choose for me", which a file has done.
    """

    kind: Word
    parameters: dict[Word, Natural | float | Word]


class GuaranteePart(_Strict):
    """What the file claims; the loader believes only what it recomputes."""

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
    """Where the release came from."""

    model: ModelPart | None
    public: PublicPart
    settings: dict[Word, float | Word]
    statement: Annotated[str, Field(max_length=LONGEST_STATEMENT)]


class Manifest(_Strict):
    """Everything of a release but its arrays.

    Examples
    --------
    >>> import json
    >>> import offaxis
    >>> from offaxis.formats.release_file import manifest_of
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> manifest = manifest_of(offaxis.fit(np.ones((1, 3)), public, epsilon=2))  # a Manifest
    >>> manifest.randomizer.kind, manifest.guarantee.epsilon, manifest.version
    ('laplace', '2', 1)
    >>> sorted(json.loads(manifest.canonical()))[:3]
    ['decoder', 'encoder', 'format']
    """

    format: Literal["offaxis-release"]
    version: Literal[1]
    encoder: MapPart
    randomizer: RandomizerPart
    decoder: MapPart
    mean_decoder: MapPart | None
    guarantee: GuaranteePart
    provenance: ProvenancePart

    def canonical(self) -> str:
        """Return the one JSON text that stands for this manifest."""
        return canonical_json(self.model_dump())


def parse(text: str) -> Manifest:
    """Read a manifest from an untrusted text."""
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


# ----------------------------------------------------------------------------
# Release files: safetensors with a JSON manifest, identified by their content's hash.
#
# Specified in docs/release-format.md. Reading is strict and trusts nothing: every size, field and
# number is checked, the hash must fit, and the guarantee is computed again from the parameters and
# compared with the claim.

METADATA_KEY: Final = "offaxis"


def tensors_of(part: Encoder | Decoder) -> Tensors:
    """Return the arrays that define a map, by the names they have in a file."""
    if isinstance(part, NetworkMap):
        layers = {"weight": part.weights, "bias": part.biases}
        return {f"{kind}.{i}": a for kind, arrays in layers.items() for i, a in enumerate(arrays)}
    return {name: getattr(part, name) for name in _given(type(part))}


def _given(cls: type[Any]) -> list[str]:
    """Name the fields a map is made from; what is bound to it later is never in a file."""
    return [field.name for field in fields(cls) if field.init]


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


def _map_part(part: Encoder | Decoder) -> MapPart:
    return MapPart(kind=part.kind, input_dim=part.input_dim, output_dim=part.output_dim)


def _claim(guarantee: Guarantee) -> GuaranteePart:
    return GuaranteePart(
        epsilon=str(guarantee.epsilon),
        delta=str(guarantee.delta),
        unit=guarantee.unit,
        relation=RELATION,
    )


def manifest_of(release: Release) -> Manifest:
    """Describe a release."""
    origin = release.provenance
    model, public = origin.model, origin.public
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
            settings=origin.settings,
            statement=origin.statement,
        ),
    )


def _hash(manifest: str, tensors: Tensors) -> str:
    """Hash the canonical manifest and every tensor, each preceded by its length."""
    digest = hashlib.sha256(b"offaxis-release-1\n")
    text = manifest.encode()
    digest.update(b"manifest:%d\n" % len(text) + text)
    for name in sorted(tensors):
        # Fed as it lies in memory: a release may be a gigabyte.
        flat = tensors[name].reshape(-1)
        digest.update(f"{name}:{tensors[name].shape}:{flat.nbytes}\n".encode())
        digest.update(flat.data)
    return digest.hexdigest()


def content_hash(release: Release) -> str:
    """Return the identity of a release, the same for every file that holds it."""
    return _hash(manifest_of(release).canonical(), _tensors(release))


def to_bytes(release: Release) -> bytes:
    """Return the release as the content of a file."""
    # One entry only: safetensors does not keep the order of several.
    metadata = {METADATA_KEY: f"{release.hash}\n{manifest_of(release).canonical()}"}
    blob: bytes = serialize(_tensors(release), metadata=metadata)
    return blob


def write(release: Release, path: str | Path) -> None:
    """Write a release file; a crash leaves the old file or the new one, never a part."""
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


def from_bytes(blob: bytes, *, expect: str | None = None) -> Release:
    """Read a release from untrusted bytes.

    Raises
    ------
    InvalidRelease
        If anything at all is not as a writer of this version makes it, or if the guarantee that
        follows from the parameters is not the one the manifest claims.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise InvalidRelease(f"a release is read from bytes, got {type(blob).__name__}")
    return _load(io.BytesIO(blob), expect)


def _load(stream: BinaryIO, expect: str | None) -> Release:
    header = read_header(stream)
    claimed_hash, newline, text = read_metadata(header, METADATA_KEY).partition("\n")
    if not newline:
        raise InvalidRelease("this is not an offaxis release: its manifest is incomplete")
    manifest = parse(text)
    tensors = read_tensors(stream, header)
    found = _hash(text, tensors)
    if found != claimed_hash:
        raise InvalidRelease("the release was altered or damaged: its hash does not fit it")
    if expect is not None and found != str(expect).lower().removeprefix("sha256:"):
        raise InvalidRelease(f"this is release {found}, expected {expect}")
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


def _take(tensors: Tensors, prefix: str, *names: str) -> list[Vectors]:
    try:
        return [tensors.pop(f"{prefix}.{name}") for name in names]
    except KeyError as error:
        raise InvalidRelease(f"the file lacks the tensor {error.args[0]!r}") from None


_ENCODERS: dict[str, Any] = {
    cls.kind: cls
    for cls in (
        AffineEncoder,
        ShiftEncoder,
        BoxEncoder,
        ArgmaxEncoder,
        NetworkEncoder,
        *ANSWERS.values(),
    )
}
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
    )
}


def _map(known: dict[str, Any], part: MapPart, tensors: Tensors, prefix: str) -> Any:
    """Build an encoder or a decoder from the tensors of its fields."""
    if part.kind not in known:
        raise InvalidRelease(f"unknown {prefix.replace('_', ' ')} {shown(part.kind)}")
    cls = known[part.kind]
    if issubclass(cls, NetworkMap):
        depth = sum(name.startswith(f"{prefix}.weight.") for name in tensors)
        layers = [
            _take(tensors, prefix, *(f"{kind}.{i}" for i in range(depth)))
            for kind in ("weight", "bias")
        ]
        return cls(*layers)
    return cls(*_take(tensors, prefix, *_given(cls)))


def _build(manifest: Manifest, tensors: Tensors) -> Release:
    """Build the release; every tensor is let go as soon as a map holds its own copy."""
    encoder: Encoder = _map(_ENCODERS, manifest.encoder, tensors, "encoder")
    decoder: Decoder = _map(_DECODERS, manifest.decoder, tensors, "decoder")
    mean = manifest.mean_decoder
    mean_decoder: Decoder | None = _map(_DECODERS, mean, tensors, "mean_decoder") if mean else None
    pairs = ((manifest.encoder, encoder), (manifest.decoder, decoder), (mean, mean_decoder))
    for part, built in pairs:
        if part is not None and built is not None and _map_part(built) != part:
            raise InvalidRelease(f"a {part.kind} map has other sizes than the manifest says")
    if tensors:
        raise InvalidRelease(f"the file holds unknown tensors: {shown(sorted(tensors))}")
    values: dict[str, Any] = dict(manifest.randomizer.parameters)
    origin = manifest.provenance
    return Release(
        encoder=encoder,
        randomizer=rebuild(manifest.randomizer.kind, values),
        decoder=decoder,
        mean_decoder=mean_decoder,
        unit=manifest.guarantee.unit,
        provenance=Provenance(
            model=ModelIdentity(**origin.model.model_dump()) if origin.model else None,
            public=PublicIdentity(**origin.public.model_dump()),
            settings=dict(origin.settings),
            statement=origin.statement,
        ),
    )
