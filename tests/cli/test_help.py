"""Help texts stay correct: every command has examples, and the examples run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer

from offaxis.cli.app import COMMANDS as ENTRIES
from offaxis.cli.app import app
from offaxis.geometry import Layers
from tests.checks import ALPHA
from tests.cli.conftest import CLASSES, DIM, Run

WORKFLOW = ["fit", "inspect", "learn plan", "privatize", "decode", "evaluate", "audit", "recommend"]
"""Commands that use files written by the commands before them."""

STANDALONE = ("ledger create", "ledger show", "keys new", "keys show")
"""Commands that need no existing file or server."""

PAGE = Path(__file__).parents[2] / "docs/cli.md"


def commands(group: object = None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield every command with its full name, including the commands of groups."""
    command = typer.main.get_command(app) if group is None else group
    if not hasattr(command, "list_commands"):
        yield " ".join(names), command
        return
    for name in command.list_commands(None):
        yield from commands(command.get_command(None, name), (*names, name))


COMMANDS = dict(commands())


def examples(name: str) -> list[list[str]]:
    """Return the examples at the end of a command's help, split into words."""
    heading, *lines = str(COMMANDS[name].epilog).split("\n\n")
    assert heading in ("Example:", "Examples:")
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_examples_that_parse(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OFFAXIS_TOKEN", "TOKEN")
    for file in ("curve.json", "audit.json"):
        Path(file).touch()
    for words in examples(name):
        path = ["offaxis", *name.split()]
        assert words[: len(path)] == path
        COMMANDS[name].make_context(name, words[len(path) :])


@pytest.mark.parametrize("name", ENTRIES)
def test_the_list_of_commands_matches_the_commands(name: str) -> None:
    """The list is printed without importing any command, so its lines are stated twice."""
    command = typer.main.get_command(app).get_command(None, name)
    assert ENTRIES[name].help == command.help.split("\n\n")[0]


def test_listing_the_commands_imports_no_command() -> None:
    code = "import sys; from offaxis.cli.app import app; app(['--help'], standalone_mode=False); "
    code += "print([m for m in ('numpy', 'scipy', 'offaxis.fitting') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str) -> None:
    undocumented = [p.name for p in COMMANDS[name].params if not getattr(p, "help", None)]
    assert undocumented == []


@pytest.mark.parametrize("name", COMMANDS)
def test_paragraphs_are_reflowed_and_flags_have_no_type(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*name.split(), "--help").stdout
    assert "<bool>" not in text
    prose = text[text.index("Usage:") : text.index("╭")].split("\n")[1:]
    for line, after in pairwise(line.strip() for line in prose):
        # A line ends only where the next word would not fit.
        assert not (line and after) or len(f"{line} {after.split()[0]}") > 78, (line, after)


@pytest.mark.parametrize("name", ["", "device", "ledger", "learn", "collector", "keys"])
def test_flags_of_groups_have_no_type(name: str, run: Run) -> None:
    assert "<bool>" not in run(*name.split(), "--help").stdout


@pytest.mark.parametrize("name", ["fit", "evaluate", "inspect", "recommend"])
def test_the_help_names_every_kind_of_model(name: str) -> None:
    (option,) = [p for p in COMMANDS[name].params if p.name == "model"]
    for suffix in (".pt2", ".onnx", ".safetensors", "package.module:attribute"):
        assert suffix in option.help
        assert suffix in PAGE.read_text()


def test_the_page_lists_every_command_of_a_collector() -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| `collector` |")]
    named = {name.split()[1] for name in COMMANDS if name.startswith("collector ")}
    assert named == {*re.findall("`([a-z-]+)`", row)} - {"collector"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_head: Layers) -> Path:
    rng = np.random.default_rng(8)
    small_head.save(tmp_path / "head.safetensors")
    np.save(tmp_path / "public.npy", rng.standard_normal((200, DIM)))
    np.save(tmp_path / "mine.npy", rng.standard_normal((3, DIM)))
    (tmp_path / "mine.csv").write_text("yes\nno\nyes\n")
    np.save(tmp_path / "test.npy", rng.standard_normal((20, DIM)))
    np.save(tmp_path / "labels.npy", rng.integers(0, CLASSES, 20))
    (tmp_path / "mechanisms.py").write_text("def noisy(x):\n    return 0\n")  # private, of no use
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_of_the_workflow_run(folder: Path, run: Run) -> None:
    for name in WORKFLOW:
        for words in examples(name):
            # The usual false-alarm rate of an audit is too high for a test.
            options = ["--false-alarm", str(ALPHA)] if name == "audit" else []
            result = run(*words[1:], *options)
            assert result.exit_code == 0, (words, result.output)
    written = {"my.release", "mine.reports", "decoded.npy", "shares.csv", "audit.html"}
    written |= {"best.release", "advice.html"}
    assert written <= {file.name for file in folder.iterdir()}


def test_the_examples_of_standalone_commands_run(folder: Path, run: Run) -> None:
    for name in STANDALONE:
        for words in examples(name):
            result = run(*words[1:])
            assert result.exit_code == 0, (words, result.output)
