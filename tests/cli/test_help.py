"""Help texts cannot rot: every command has an example, and examples run as they stand there."""

from __future__ import annotations

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

WALK = ("fit", "inspect", "privatize", "decode", "evaluate", "audit", "recommend")
"""What one does with a release, in the order in which files come to be."""

ANYWHERE = ("ledger create", "ledger show", "keys new", "keys show")
"""What needs nothing but a folder."""


def commands(group: object = None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield every command by its words, groups opened."""
    found = typer.main.get_command(app) if group is None else group
    if not hasattr(found, "list_commands"):
        yield " ".join(names), found
        return
    for name in found.list_commands(None):
        yield from commands(found.get_command(None, name), (*names, name))


COMMANDS = dict(commands())


def examples(name: str) -> list[list[str]]:
    """Return the calls at the end of a command's help, as words."""
    heading, *lines = str(COMMANDS[name].epilog).split("\n\n")
    assert heading in ("Example:", "Examples:")
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_a_call_that_its_command_understands(
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
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    """The list is written without importing any command, so its lines are stated twice."""
    command = typer.main.get_command(app).get_command(None, name)
    assert ENTRIES[name].help == command.help.split("\n\n")[0]


def test_listing_the_commands_imports_none_of_them() -> None:
    code = "import sys; from offaxis.cli.app import app; app(['--help'], standalone_mode=False); "
    code += "print([m for m in ('numpy', 'scipy', 'offaxis.fitting') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    silent = [p.name for p in COMMANDS[name].params if not getattr(p, "help", None)]
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_paragraphs_are_whole_and_flags_have_no_type(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = run(*name.split(), "--help").stdout
    assert "<bool>" not in told
    prose = told[told.index("Usage:") : told.index("╭")].split("\n")[1:]
    for line, after in pairwise(line.strip() for line in prose):
        # A line ends only where the next word would not fit.
        assert not (line and after) or len(f"{line} {after.split()[0]}") > 78, (line, after)


@pytest.mark.parametrize("name", ["", "device", "ledger", "collector", "keys"])
def test_groups_have_no_types_of_flags_either(name: str, run: Run) -> None:
    assert "<bool>" not in run(*name.split(), "--help").stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_head: Layers) -> Path:
    rng = np.random.default_rng(8)
    small_head.save(tmp_path / "head.safetensors")
    np.save(tmp_path / "public.npy", rng.standard_normal((200, DIM)))
    np.save(tmp_path / "mine.npy", rng.standard_normal((3, DIM)))
    np.save(tmp_path / "test.npy", rng.standard_normal((20, DIM)))
    np.save(tmp_path / "labels.npy", rng.integers(0, CLASSES, 20))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_lead_from_a_model_to_what_was_asked(folder: Path, run: Run) -> None:
    for name in WALK:
        for words in examples(name):
            # By chance an audit may accuse a sound release; here that would be too often.
            rarely = ["--false-alarm", str(ALPHA)] if name == "audit" else []
            told = run(*words[1:], *rarely)
            assert told.exit_code == 0, (words, told.output)
    made = {"my.release", "mine.reports", "decoded.npy", "mean.csv", "audit.html"}
    made |= {"best.release", "advice.html"}
    assert made <= {file.name for file in folder.iterdir()}


def test_the_examples_that_need_nothing_run(folder: Path, run: Run) -> None:
    for name in ANYWHERE:
        for words in examples(name):
            told = run(*words[1:])
            assert told.exit_code == 0, (words, told.output)
