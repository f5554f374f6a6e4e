"""Access: every role at every endpoint, and signatures of the publisher."""

from __future__ import annotations

import base64
import json

import pytest

from offaxis.formats.documents import Round, new_key, sign_release, sign_round, verify_round
from offaxis.formats.release_file import to_bytes
from tests.collector.running import KEY, encoded, make_round, new_id, running

ANY = {"device", "analyst", "admin"}
MATRIX = [
    ("GET", "/healthz", ANY | {"nobody"}),
    ("GET", "/readyz", ANY | {"nobody"}),
    ("GET", "/metrics", {"analyst", "admin"}),
    ("PUT", "/v1/releases/HASH", {"admin"}),
    ("GET", "/v1/releases", ANY),
    ("GET", "/v1/releases/HASH", ANY),
    ("PUT", "/v1/releases/HASH/profile", {"admin"}),
    ("GET", "/v1/releases/HASH/card", ANY),
    ("PUT", "/v1/releases/HASH/facts/curve", {"admin"}),
    ("GET", "/v1/releases/HASH/facts/curve", ANY),
    ("PUT", "/v1/releases/HASH/support", {"admin"}),
    ("PUT", "/v1/releases/HASH/questions/colour", {"admin"}),
    ("DELETE", "/v1/releases/HASH/questions/colour", {"admin"}),
    ("GET", "/v1/releases/HASH/questions", ANY),
    ("PUT", "/v1/rounds/roles", {"admin"}),
    ("GET", "/v1/rounds", ANY),
    ("GET", "/v1/rounds/roles", ANY),
    ("POST", "/v1/rounds/other/close", {"admin"}),
    ("PUT", "/v1/rounds/roles/reports/ID", {"device"}),
    ("POST", "/v1/rounds/roles/reports", {"device"}),
    ("DELETE", "/v1/rounds/roles/reports/ID", {"device"}),
    ("DELETE", "/v1/rounds/other/reports", {"admin"}),
    ("GET", "/v1/rounds/roles/means", {"analyst"}),
    ("GET", "/v1/rounds/roles/drift", {"analyst"}),
    ("GET", "/v1/rounds/roles/population", {"analyst"}),
    ("GET", "/v1/rounds/roles/learning", {"analyst"}),
    ("GET", "/v1/rounds/roles/model", {"analyst"}),
    ("GET", "/v1/rounds/roles/export", {"analyst"}),
    ("POST", "/v1/tokens", {"admin"}),
    ("GET", "/v1/token", ANY),
    ("GET", "/v1/tokens", {"admin"}),
    ("DELETE", "/v1/tokens/999", {"admin"}),
]


@pytest.fixture(scope="module")
def with_rounds(server, for_means):
    for name in ("roles", "other"):
        server.open(for_means, name)
    return server


def test_the_matrix_lists_every_endpoint(with_rounds):
    endpoints = {
        (method.upper(), path)
        for path, methods in with_rounds.app.openapi()["paths"].items()
        for method in methods
    }
    listed = {
        (method, path.replace("roles", "{name}").replace("other", "{name}")
         .replace("HASH", "{hash}").replace("ID", "{id}").replace("999", "{number}")
         .replace("curve", "{kind}").replace("colour", "{question}"))
        for method, path, _ in MATRIX
    }  # fmt: skip
    assert listed == endpoints


@pytest.mark.parametrize(("method", "path", "allowed"), MATRIX)
def test_every_endpoint_admits_exactly_its_roles(with_rounds, for_means, method, path, allowed):
    path = path.replace("HASH", for_means.hash).replace("ID", new_id().hex())
    for role in (*ANY, "nobody", "made-up"):
        with_rounds.tokens["made-up"] = "oxt_" + "A" * 43
        got = with_rounds.request(role, method, path, b"")
        if role in allowed or (role == "made-up" and "nobody" in allowed):
            assert got.status not in (401, 403), (role, got)
        elif role in ANY:
            assert (got.status, got.kind) == (403, "forbidden"), (role, got)
        else:
            assert (got.status, got.kind) == (401, "unknown-token"), (role, got)
            assert got.headers["www-authenticate"] == "Bearer"


def test_a_revoked_token_is_unknown_at_once(server):
    body = json.dumps({"name": "short-lived", "role": "analyst"}).encode()
    made = server.request("admin", "POST", "/v1/tokens", body).json
    server.tokens["short"] = made["token"]
    assert server.request("short", "GET", "/v1/rounds").status == 200
    assert server.request("admin", "DELETE", f"/v1/tokens/{made['id']}").status == 204
    assert server.request("short", "GET", "/v1/rounds").status == 401
    listed = server.request("admin", "GET", "/v1/tokens")
    assert made["token"].encode() not in listed.body
    (revoked,) = [token for token in listed.json["tokens"] if token["id"] == made["id"]]
    assert revoked["name"] == "short-lived"
    assert revoked["revoked_at"].startswith("2026-11-01T00:00:00")


def test_the_database_contains_no_token(server):
    with server.collector.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM token").all()
    for token in server.tokens.values():
        assert not any(token.encode() in repr(row).encode() for row in rows)


def test_a_release_is_returned_as_it_was_published(server, for_means):
    server.publish(for_means)
    path = f"/v1/releases/{for_means.hash}"
    got = server.request("device", "GET", path)
    assert got.body == to_bytes(for_means)
    signature = sign_release(KEY, for_means.hash)
    assert base64.b64decode(got.headers["offaxis-signature"]) == signature
    again = server.request("admin", "PUT", path, got.body, Offaxis_Signature=encoded(signature))
    assert again.status == 200
    other = encoded(sign_release(new_key(), for_means.hash))
    assert (
        server.request("admin", "PUT", path, got.body, Offaxis_Signature=other).kind == "conflict"
    )
    damaged = bytearray(got.body)
    damaged[-1] ^= 1
    for body, target in ((bytes(damaged), path), (got.body, f"/v1/releases/{'0' * 64}")):
        rejected = server.request(
            "admin", "PUT", target, body, Offaxis_Signature=encoded(signature)
        )
        assert (rejected.status, rejected.kind) == (422, "invalid-release")
    assert server.request("device", "GET", f"/v1/releases/{'0' * 64}").kind == "not-found"


def test_a_round_is_returned_with_a_valid_signature(server, for_means):
    round_ = server.open(for_means, "signed", groups=("a", "b"))
    got = server.request("device", "GET", "/v1/rounds/signed").json
    assert "reports" not in got
    document = Round.model_validate(got["document"])
    assert document == round_
    verify_round(KEY.public_key(), document, base64.b64decode(got["signature"]))
    changed = make_round(for_means, "signed", keep_days=31)
    header = {"Offaxis_Signature": encoded(sign_round(KEY, changed))}
    path = "/v1/rounds/signed"
    assert server.request("admin", "PUT", path, changed.to_bytes(), **header).kind == "conflict"
    assert (
        server.request("admin", "PUT", "/v1/rounds/x", changed.to_bytes(), **header).status == 422
    )


def test_a_collector_with_a_publisher_rejects_other_signatures(new_database, for_means):
    publisher = KEY.public_key().public_bytes_raw().hex()
    with running(new_database("sqlite"), publisher=publisher) as server:
        other = new_key()
        path, body = f"/v1/releases/{for_means.hash}", to_bytes(for_means)
        wrong = encoded(sign_release(other, for_means.hash))
        assert server.request("admin", "PUT", path, body, Offaxis_Signature=wrong).status == 422
        server.open(for_means, "good")
        round_ = make_round(for_means, "bad")
        wrong = encoded(sign_round(other, round_))
        got = server.request(
            "admin", "PUT", "/v1/rounds/bad", round_.to_bytes(), Offaxis_Signature=wrong
        )
        assert (got.status, got.kind) == (422, "invalid-round")
