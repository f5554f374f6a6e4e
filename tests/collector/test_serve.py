"""``offaxis serve`` as a process: a round by commands, the content of its log, and stopping."""

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
from offaxis.collector.database import open_database
from offaxis.collector.store import Store
from offaxis.formats.release_file import to_bytes
from tests.checks import ALPHA
from tests.collector.running import http_request, make_round, new_id
from tools.ports import free_port

PATIENCE = 180
"""Seconds that a process may take to start on a shared machine; only a failing test waits."""


@contextmanager
def _serving(database: str, log: Path, *options: str):
    """Run the command; yield the port, the admin's token if it was printed, and the process."""
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
        printed = re.search(rb"oxt_\S+", process.stdout.read() or b"")
        yield port, printed and printed.group().decode(), process
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
def session(request, new_database, tmp_path_factory, for_means, public):
    """Run a round from the key to the means by commands; stop the server; return the results."""
    folder = tmp_path_factory.mktemp("way")
    log, url = folder / "log", new_database(request.param)
    results: dict[str, object] = {"log": log, "url": url}
    reports = for_means.privatize(np.tile(public, (2, 1)))
    ids = [new_id() for _ in reports]
    with _serving(url, log) as (port, admin, process):
        assert admin is not None
        as_admin = {"OFFAXIS_COLLECTOR": f"http://127.0.0.1:{port}", "OFFAXIS_TOKEN": admin}
        output = _run("keys", "new", str(folder / "key"))
        assert re.search(r"[0-9a-f]{64}", output)
        assert (folder / "key").stat().st_mode & 0o077 == 0
        for_means.save(folder / "release")
        np.save(folder / "public.npy", public)
        key = ("--key", str(folder / "key"))
        public_file = str(folder / "public.npy")
        output = _run(
            *("collector", "publish", str(folder / "release")),
            *(*key, "--public", public_file),
            **as_admin,
        )
        assert for_means.hash in output
        tokens = {"admin": admin}
        for role in ("device", "analyst"):
            output = _run("collector", "token", "create", f"my-{role}", "--role", role, **as_admin)
            tokens[role] = re.search(r"oxt_\S+", output).group()
        closes = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        announced = ("--release", for_means.hash, "--closes", closes, *key)
        _run(
            *("collector", "open-round", "way", *announced),
            *("--study", "s", "--number", "1", "--group", "a"),
            **as_admin,
        )
        path = "/v1/rounds/way/reports"
        for id_, report in zip(ids[:5], reports[:5], strict=True):
            got = http_request(
                port, "PUT", f"{path}/{id_.hex()}", report, tokens["device"], Offaxis_Group="a"
            )
            assert got.status == 201
        body = b"".join(i + r for i, r in zip(ids, reports, strict=True))
        got = http_request(port, "POST", path, body, tokens["device"], Offaxis_Group="a")
        assert got.json["accepted"] == len(ids) - 5
        # Failing requests that contain secrets, which must not be logged.
        http_request(
            port, "PUT", f"{path}/{ids[0].hex()}", reports[1], tokens["device"], Offaxis_Group="a"
        )
        http_request(port, "PUT", f"{path}/{ids[0].hex()}", b"secret-body", tokens["device"])
        http_request(port, "GET", "/no/secret-path?secret-query=1", None, "secret-token")
        http_request(port, "SECRET-METHOD", "/healthz")
        as_analyst = as_admin | {"OFFAXIS_TOKEN": tokens["analyst"]}
        results["means"] = json.loads(_run("collector", "means", "way", "--json", **as_analyst))
        results["drift"] = json.loads(_run("collector", "drift", "way", "--json", **as_analyst))
        _run("collector", "means", "way", **as_analyst)
        _run("collector", "export", "way", "--out", str(folder / "out.parquet"), **as_analyst)
        assert "closed" in _run("collector", "close-round", "way", **as_admin)
        assert "my-analyst" in _run("collector", "token", "list", **as_admin)
        _run("collector", "token", "revoke", "3", **as_admin)
        results["purged"] = _run("collector", "purge", "way", **as_admin)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
    return results | {
        "tokens": tokens,
        "ids": ids,
        "reports": reports,
        "exported": pq.read_table(folder / "out.parquet"),
    }


def test_a_round_can_be_run_by_commands(session, for_means):
    expected = for_means.aggregate(session["reports"])
    everybody = session["means"]["means"][0]
    np.testing.assert_allclose(everybody["mean"], expected.estimate, rtol=1e-9)
    np.testing.assert_allclose(everybody["standard_error"], expected.standard_error, rtol=1e-9)
    # The warning may occur by chance and has separate tests; a p-value below ALPHA may not.
    assert ALPHA < session["drift"]["p_value"] <= 1
    exported = session["exported"]
    assert set(exported["report"].to_pylist()) == set(session["reports"])
    assert session["purged"].strip() == f"deleted {len(session['ids']):,} reports"


def test_the_log_is_json_lines_without_secrets(session):
    text = session["log"].read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert {line["route"] for line in requests} >= {"/v1/rounds/{name}/reports/{id}", "other"}
    assert {line["token"] for line in requests} >= {"my-device", "my-analyst", "first admin", None}
    secrets = [token.encode() for token in session["tokens"].values()]
    secrets += [b"secret-body", b"secret-path", b"secret-query", b"secret-token", b"SECRET-METHOD"]
    for content in (*session["ids"], *session["reports"]):
        for part in (content, content[12:44]):
            secrets += [part.hex().encode(), base64.b64encode(part)[:24], part]
    log = text.encode()
    assert not [secret for secret in secrets if secret in log]
    assert "way" not in re.findall(r"\w+", text.replace("always", ""))
    assert lines[-1]["event"].startswith("Finished server process")


def test_a_killed_server_keeps_acknowledged_reports(
    new_database, tmp_path, for_means, some_reports
):
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
        for id_, report in zip(ids, some_reports, strict=False):
            assert http_request(port, "PUT", path + id_.hex(), report, "known").status == 201
        process.kill()
        process.wait(PATIENCE)
    with _serving(url, tmp_path / "log after") as (port, _, process):
        for id_, report in zip(ids, some_reports, strict=False):
            assert http_request(port, "PUT", path + id_.hex(), report, "known").status == 200


def test_the_collector_serves_tls(new_database, tmp_path):
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
        output = _run(
            *("collector", "token", "list", "--ca-file", str(tmp_path / "cert")),
            OFFAXIS_COLLECTOR=f"https://localhost:{port}",
            OFFAXIS_TOKEN=admin,
        )
        assert "first admin" in output
    without_key = CliRunner().invoke(app, ["serve", "--tls-cert", str(tmp_path / "cert")])
    assert without_key.exit_code == 3
    assert "TLS needs both" in without_key.output


def test_an_unusable_database_is_an_error(tmp_path):
    url = f"sqlite:///{tmp_path}/no/such/folder.db"
    result = CliRunner().invoke(app, ["serve", "--database", url])
    assert result.exit_code == 3
    assert "cannot open the database" in result.output
