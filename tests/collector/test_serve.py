"""offaxis serve as a process: the whole way by commands, what its log holds, how it stops."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from offaxis.cli.app import app
from tests.checks import ALPHA
from tests.collector.running import ask, new_id
from tools.ports import free_port

PATIENCE = 180
"""Seconds that a process may take to start: machines are shared, and only what fails waits."""


@contextmanager
def _serving(database: str, log: Path, *options: str):
    """Run the command; give the port, the admin's token if it was shown, and the process."""
    port = free_port()
    command = [sys.executable, "-m", "offaxis.cli", "serve", "--database", database]
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    try:
        end = time.monotonic() + PATIENCE
        while "Uvicorn running" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, "the collector has not started"
            time.sleep(0.02)
        os.set_blocking(process.stdout.fileno(), False)
        shown = re.search(rb"oxt_\S+", process.stdout.read() or b"")
        yield port, shown and shown.group().decode(), process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)
        process.stdout.close()


def _run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env=environment)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def the_way(request, new_database, tmp_path_factory, for_means, public):
    """Walk from a key to means by commands; stop the server; give everything there was."""
    folder = tmp_path_factory.mktemp("way")
    log, url = folder / "log", new_database(request.param)
    made: dict[str, object] = {"log": log, "url": url}
    reports = for_means.privatize(np.tile(public, (2, 1)))
    ids = [new_id() for _ in reports]
    with _serving(url, log) as (port, admin, process):
        assert admin is not None
        where = {"OFFAXIS_COLLECTOR": f"http://127.0.0.1:{port}", "OFFAXIS_TOKEN": admin}
        said = _run("keys", "new", str(folder / "key"))
        assert re.search(r"[0-9a-f]{64}", said)
        assert (folder / "key").stat().st_mode & 0o077 == 0
        for_means.save(folder / "release")
        np.save(folder / "public.npy", public)
        key = ("--key", str(folder / "key"))
        public_file = str(folder / "public.npy")
        said = _run(
            "collector", "publish", str(folder / "release"), *key, "--public", public_file, **where
        )
        assert for_means.hash in said
        tokens = {"admin": admin}
        for role in ("device", "analyst"):
            said = _run("collector", "token", "create", f"my-{role}", "--role", role, **where)
            tokens[role] = re.search(r"oxt_\S+", said).group()
        closes = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        announced = ("--release", for_means.hash, "--closes", closes, *key)
        _run(
            *("collector", "open-round", "way", *announced),
            *("--study", "s", "--number", "1", "--group", "a"),
            **where,
        )
        path = "/v1/rounds/way/reports"
        for at in range(5):
            one = ask(
                port,
                "PUT",
                f"{path}/{ids[at].hex()}",
                reports[at],
                tokens["device"],
                Offaxis_Group="a",
            )
            assert one.status == 201
        body = b"".join(i + r for i, r in zip(ids, reports, strict=True))
        got = ask(port, "POST", path, body, tokens["device"], Offaxis_Group="a")
        assert got.json["accepted"] == len(ids) - 5
        # Things that go wrong, with what must not be logged in them.
        ask(port, "PUT", f"{path}/{ids[0].hex()}", reports[1], tokens["device"], Offaxis_Group="a")
        ask(port, "PUT", f"{path}/{ids[0].hex()}", b"secret-body", tokens["device"])
        ask(port, "GET", "/no/secret-path?secret-query=1", None, "secret-token")
        ask(port, "SECRET-METHOD", "/healthz")
        analyst = where | {"OFFAXIS_TOKEN": tokens["analyst"]}
        made["means"] = json.loads(_run("collector", "means", "way", "--json", **analyst))
        made["drift"] = json.loads(_run("collector", "drift", "way", "--json", **analyst))
        _run("collector", "means", "way", **analyst)
        _run("collector", "export", "way", "--out", str(folder / "out.parquet"), **analyst)
        assert "closed" in _run("collector", "close-round", "way", **where)
        assert "my-analyst" in _run("collector", "token", "list", **where)
        _run("collector", "token", "revoke", "3", **where)
        made["purged"] = _run("collector", "purge", "way", **where)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
    return made | {
        "tokens": tokens,
        "ids": ids,
        "reports": reports,
        "exported": pq.read_table(folder / "out.parquet"),
    }


def test_the_whole_way_by_commands(the_way, for_means):
    whole = for_means.aggregate(the_way["reports"])
    found = the_way["means"]["means"][0]
    np.testing.assert_allclose(found["mean"], whole.estimate, rtol=1e-9)
    np.testing.assert_allclose(found["standard_error"], whole.standard_error, rtol=1e-9)
    # The warning comes by chance too, and has its own tests; so small a p-value does not.
    assert ALPHA < the_way["drift"]["p_value"] <= 1
    exported = the_way["exported"]
    assert set(exported["report"].to_pylist()) == set(the_way["reports"])
    assert the_way["purged"].strip() == f"deleted {len(the_way['ids']):,} reports"


def test_the_log_holds_lines_of_json_and_no_secret(the_way):
    text = the_way["log"].read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert {line["route"] for line in requests} >= {"/v1/rounds/{name}/reports/{id}", "other"}
    assert {line["token"] for line in requests} >= {"my-device", "my-analyst", "first admin", None}
    secrets = [token.encode() for token in the_way["tokens"].values()]
    secrets += [b"secret-body", b"secret-path", b"secret-query", b"secret-token", b"SECRET-METHOD"]
    for one in (*the_way["ids"], *the_way["reports"]):
        for octets in (one, one[12:44]):
            secrets += [octets.hex().encode(), base64.b64encode(octets)[:24], octets]
    held = text.encode()
    assert not [secret for secret in secrets if secret in held]
    assert "way" not in re.findall(r"\w+", text.replace("always", ""))
    assert lines[-1]["event"].startswith("Finished server process")


def test_a_killed_server_keeps_what_it_had_answered(
    new_database, tmp_path, for_means, some_reports
):
    from offaxis.collector.database import open_database
    from offaxis.collector.store import Store
    from offaxis.formats.release_file import to_bytes
    from tests.collector.running import make_round

    url = new_database("sqlite")
    engine = open_database(url)
    store = Store(engine)
    now = datetime.now(UTC).replace(microsecond=0)
    store.publish(for_means.hash, to_bytes(for_means), bytes(64), now)
    times = {"opens": now, "closes": now + timedelta(days=1)}
    store.add_round(make_round(for_means, "killed", **times), bytes(64))
    store.add_token("known", "device", "device", now)
    engine.dispose()
    ids = [new_id() for _ in range(10)]
    path = "/v1/rounds/killed/reports/"
    with _serving(url, tmp_path / "log") as (port, admin, process):
        assert admin is None
        for one, report in zip(ids, some_reports, strict=False):
            assert ask(port, "PUT", path + one.hex(), report, "known").status == 201
        process.kill()
        process.wait(PATIENCE)
    with _serving(url, tmp_path / "log after") as (port, _, process):
        for one, report in zip(ids, some_reports, strict=False):
            assert ask(port, "PUT", path + one.hex(), report, "known").status == 200


def test_tls(new_database, tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "cert").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    options = ("--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "key"))
    with _serving(new_database("sqlite"), tmp_path / "log", *options) as (port, admin, _):
        said = _run(
            *("collector", "token", "list", "--ca-file", str(tmp_path / "cert")),
            OFFAXIS_COLLECTOR=f"https://localhost:{port}",
            OFFAXIS_TOKEN=admin,
        )
        assert "first admin" in said
    wrong = CliRunner().invoke(app, ["serve", "--tls-cert", str(tmp_path / "cert")])
    assert wrong.exit_code == 3
    assert "TLS needs both" in wrong.output


def test_a_database_that_cannot_be_used_is_said_in_one_line(tmp_path):
    url = f"sqlite:///{tmp_path}/no/such/folder.db"
    result = CliRunner().invoke(app, ["serve", "--database", url])
    assert result.exit_code == 3
    assert "cannot open the database" in result.output
