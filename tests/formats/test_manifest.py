"""The manifest's schema: refused in little time, whatever it holds."""

from __future__ import annotations

import json

import pytest

from offaxis.errors import InvalidRelease
from offaxis.formats.release_file import manifest_of, parse
from offaxis.formats.strict_json import canonical_json
from tests.limits import bounded

SIZE = 1 << 19


@pytest.fixture
def known(release):
    return json.loads(manifest_of(release).canonical())


def test_a_manifest_reads_back(release):
    manifest = manifest_of(release)
    assert parse(manifest.canonical()) == manifest


@pytest.mark.parametrize(
    "large",
    [
        *("x" * SIZE, "\N{GRINNING FACE}" * (SIZE // 12), [0] * (SIZE // 2), [[]] * (SIZE // 3)),
        {str(i): [] for i in range(SIZE // 10)},
        {"x" * SIZE: 1},
    ],
    ids=["text", "astral text", "list", "lists", "keys", "one long key"],
)
def test_a_large_part_in_any_place_costs_little(known, large):
    """Half a mebibyte of settings once took seconds and a hundred times its size to refuse."""
    origin = known["provenance"]
    for node, key in (
        *((known, "version"), (known, "encoder"), (known, "extra"), (known["encoder"], "kind")),
        *((origin, "settings"), (origin, "statement"), (known["randomizer"], "parameters")),
    ):
        before = dict(node)
        node[key] = large
        text = canonical_json(known)
        with bounded(mebibytes=12, seconds=1), pytest.raises(InvalidRelease) as raised:
            parse(text)
        assert len(str(raised.value)) < 500
        node.clear()
        node.update(before)


def test_settings_of_many_wrong_kinds_cost_little(known):
    known["provenance"]["settings"] = {str(i): True for i in range(900)}
    text = canonical_json(known)
    with bounded(mebibytes=12, seconds=1), pytest.raises(InvalidRelease, match="settings"):
        parse(text)


@pytest.mark.parametrize(
    "claim", ["", "-1", "1.0", "1/", "1/3/5", "1e3", "\N{SUPERSCRIPT TWO}", "1\n"]
)
def test_a_claim_is_a_fraction(known, claim):
    known["guarantee"]["epsilon"] = claim
    with pytest.raises(InvalidRelease, match=r"guarantee\.epsilon"):
        parse(canonical_json(known))
