"""The manifest of a release file: a strict schema, nothing optional, nothing unknown."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offaxis.errors import InvalidRelease
from offaxis.formats.fields import Sha256
from offaxis.formats.strict_json import canonical_json, parse_json, shown
from offaxis.provenance import LONGEST_STATEMENT
from offaxis.randomizers.domain import LARGEST_DIM

__all__ = ["Manifest"]

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
    >>> from offaxis.formats.artifact import manifest_of
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
