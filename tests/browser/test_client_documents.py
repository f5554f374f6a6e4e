"""JavaScript and Python agree on numbers, JSON, rounds and signatures."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random

from offaxis.errors import InvalidDocument, InvalidInput
from offaxis.formats.documents import Round, new_key, sign_release, sign_round
from offaxis.formats.strict_json import canonical_json, parse_json
from offaxis.privacy.guarantee import exact
from tests.fuzz import mutation, seeds


def test_numbers_are_read_the_same(client):
    rng = Random(5)
    floats = [repr(rng.gauss(0, 1) * 10.0 ** rng.randrange(-30, 30)) for _ in range(200)]
    texts = [*mutation.TEXTS, *mutation.FRACTIONS, *floats]
    for text, outcome in zip(texts, client.run("exact", texts=texts), strict=True):
        try:
            assert outcome == {"ok": str(exact(text, "it"))}
        except InvalidInput:
            assert outcome.get("error") == "InvalidInput", text


def test_json_is_read_and_written_the_same(client):
    rng = Random(6)
    manifests = [b[8:].decode(errors="ignore") for b in seeds.files()[:1]]
    texts = [mutation.scribble_text(rng.choice(manifests), rng) for _ in range(50)]
    floats = [rng.gauss(0, 1) * 10.0 ** rng.randrange(-320, 300) for _ in range(300)]
    floats += [1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 0.0, -0.0, 5e-324, 1.5e300, 123456.0]
    strings = [*mutation.TEXTS, "\x7f\x80\u2028\uffff\U0001f600", '"\\/\b\f\n\r\t']
    trees = [
        {"b": strings[i % len(strings)], "\U0001f600": x, "\uffff": [x, None, True, {}]}
        for i, x in enumerate(floats)
    ]
    texts += [json.dumps(tree, ensure_ascii=rng.random() < 0.5) for tree in trees]
    texts += ["", " ", "1", "-0", "01", "1.", ".5", "1e5", "+1", "NaN", "[1,]", '{"a":1,"a":2}']
    texts += ['"\\x"', '"\\u12"', '"\n"', "[1] x", "\ufeff1", "9" * 40, "9" * 41, "[" * 101]
    texts += ["[" * 100 + "]" * 100, "[" + ",".join(["1"] * 1999) + "]", "tru", "nulll"]
    for text, outcome in zip(texts, client.run("json", texts=texts), strict=True):
        try:
            expected = canonical_json(parse_json(text))
        except (ValueError, RecursionError):
            expected = None
        assert outcome == expected, text[:200]


def test_rounds_are_read_and_their_signatures_verified(client):
    rng, key, other = Random(7), new_key(), new_key()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rounds = [
        Round(
            name=f"r{i}", study="s-1", number=rng.choice((0, i, 2**53)), release="0af1" * 16,
            opens=start + timedelta(seconds=rng.randrange(10**9)),
            closes=start + timedelta(seconds=2 * 10**9),
            groups=tuple(f"g {j}~\"\\" for j in range(i % 4)), keep_days=i,
        )
        for i in range(40)
    ]  # fmt: skip
    documents = [r.to_bytes() for r in rounds]
    for round_, outcome in zip(rounds, client.run("rounds", documents=documents), strict=True):
        facts = outcome["ok"]
        assert facts["document"].encode() == round_.to_bytes()
        assert (facts["number"], facts["keepDays"]) == (round_.number, round_.keep_days)
        assert datetime.fromisoformat(facts["opens"]) == round_.opens
        assert tuple(facts["groups"]) == round_.groups
    mutants = [mutation.scribble(rng.choice(documents), rng) for _ in range(600)]
    for mutant, outcome in zip(mutants, client.run("rounds", documents=mutants), strict=True):
        try:
            Round.from_bytes(mutant)
        except InvalidDocument:
            assert outcome.get("error") == "InvalidDocument", (mutant, outcome)
        else:
            assert "ok" in outcome, (mutant, outcome)

    def verdict(signer, signature: bytes, round_: Round = rounds[0]) -> str:
        public = signer.public_key().public_bytes_raw().hex()
        (outcome,) = client.run(
            "signedRound", publisher=public, document=round_.to_bytes(), signature=signature.hex()
        )
        return outcome.get("error", "ok")

    signature = sign_round(key, rounds[0])
    assert verdict(key, signature) == "ok"
    assert verdict(other, signature) == "InvalidDocument"
    assert verdict(key, signature, rounds[1]) == "InvalidDocument"
    assert verdict(key, signature[:-1]) == "InvalidDocument"
    assert verdict(key, sign_release(key, rounds[0].digest.hex())) == "InvalidDocument"
    public = key.public_key().public_bytes_raw().hex()
    release_hash = "0af1" * 16
    for made, expected in (
        (sign_release(key, release_hash), None),
        (sign_release(other, release_hash), "InvalidDocument"),
    ):
        (outcome,) = client.run(
            "signedRelease", publisher=public, hash=release_hash, signature=made.hex()
        )
        assert outcome.get("error") == expected
