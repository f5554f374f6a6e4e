"""The ``offaxis`` command as a program: exit codes, messages, progress bars and signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import offaxis
from offaxis.cli import app as application
from offaxis.errors import MissingExtra
from tests.cli.conftest import DIM, Run, assert_fails

OFFAXIS = [sys.executable, "-m", "offaxis.cli"]
PRIVATIZE = ["privatize", "laplace.release", "--out", "my.reports"]


def test_the_version_is_printed(run: Run) -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"offaxis {offaxis.__version__}\n"


@pytest.mark.parametrize(
    "command",
    ["fit", "privatize", "decode", "evaluate", "inspect", "audit", "ledger", "serve"],
)
def test_every_command_has_help(run: Run, command: str) -> None:
    assert command in run("--help").stdout
    assert run(command, "--help").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("inspect",),
        ("fit", "--epsilon", "1", "--out", "x"),
        ("fit", "--public", "public.npy", "--epsilon", "1", "--out", "x"),
        ("fit", "--public", "public.npy", "--epsilon", "1", "--out", "x", "--mechanism", "cauchy"),
        ("evaluate", "laplace.release", "--vectors", "private.npy"),
        ("fit", "--public", "public.npy", "--epsilon", "1", "--out", "x", "--rank", "2"),
    ],
)
def test_wrong_usage_exits_with_2(workspace: Path, run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert not (workspace / "x").exists()


def test_a_missing_extra_exits_with_4(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingExtra("pip install 'offaxis[thing]'")

    monkeypatch.setattr("offaxis.cli.inspect.Release.load", missing)
    assert_fails(run("inspect", "laplace.release"), 4, "offaxis[thing]")


def test_a_message_cannot_control_the_terminal(workspace: Path, run: Run) -> None:
    result = run("inspect", "no\x1b[31m\nsuch\u202efile")
    assert_fails(result, 3, "no release file")
    assert "\x1b[31m" not in result.stderr
    assert "\u202e" not in result.stderr


def test_system_errors_are_one_line(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("offaxis.cli.inspect.Release.load", full)
    assert_fails(run("inspect", "laplace.release"), 3, "somewhere: No space left on device")


def test_a_broken_pipe_is_not_an_input_error(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("offaxis.cli.inspect.Release.load", closed)
    result = run("inspect", "laplace.release")
    assert result.exit_code == 1
    assert "error" not in result.stderr


def test_bugs_are_not_reported_as_input_errors(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("offaxis.cli.inspect.Release.load", bug)
    assert isinstance(run("inspect", "laplace.release").exception, ZeroDivisionError)
    # Decorated tracebacks may show local variables, which may hold private vectors.
    assert application.app.pretty_exceptions_enable is False


def test_optional_libraries_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, offaxis.cli.app; "
        "print(sorted({'torch', 'sklearn', 'pyarrow', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_installed_command_runs_from_fit_to_decode(workspace: Path) -> None:
    script = Path(sys.executable).with_name("offaxis")

    def offaxis_command(*arguments: str) -> str:
        done = subprocess.run(
            [script, *arguments], capture_output=True, text=True, check=True, cwd=workspace
        )
        assert done.stderr == ""  # no progress bars without a terminal
        return done.stdout

    offaxis_command(
        *("fit", "--model", "head.safetensors", "--public", "public.npy"),
        *("--epsilon", "4", "--out", "my.release"),
    )
    offaxis_command("privatize", "my.release", "--vectors", "private.npy", "--out", "my.reports")
    offaxis_command("decode", "my.release", "--reports", "my.reports", "--out", "decoded.npy")
    assert np.load(workspace / "decoded.npy").shape == (7, DIM)


def test_progress_bars_go_to_standard_error_on_a_terminal(workspace: Path) -> None:
    reader, terminal = pty.openpty()
    done = subprocess.run(
        [*OFFAXIS, *PRIVATIZE, "--vectors", "private.npy", "--json"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=True,
        cwd=workspace,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(terminal)
    shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert "making reports" in shown
    assert json.loads(done.stdout)["reports"] == 7


def test_a_terminal_without_greek_letters_shows_question_marks(workspace: Path) -> None:
    done = subprocess.run(
        [*OFFAXIS, "inspect", "laplace.release"],
        capture_output=True,
        check=True,
        cwd=workspace,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )
    assert b"? = 5, pure" in done.stdout


def test_a_terminated_run_leaves_no_file(workspace: Path, releases: Path) -> None:
    before = sorted(path.name for path in workspace.iterdir())
    rows = np.lib.format.open_memmap(
        workspace / "many.npy", mode="w+", dtype=np.float32, shape=(2_000_000, DIM)
    )
    del rows
    process = subprocess.Popen([*OFFAXIS, *PRIVATIZE, "--vectors", "many.npy"], cwd=workspace)
    try:
        deadline = time.monotonic() + 180
        while not list(workspace.glob(".my.reports.*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(180)
    assert code == 128 + signal.SIGTERM
    assert sorted(path.name for path in workspace.iterdir()) == sorted([*before, "many.npy"])
