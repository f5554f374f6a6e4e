"""The service does what its OpenAPI document says, whatever is sent."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

from offaxis.collector.access import Role
from tests.collector.described import application


def test_answers_are_as_described(new_database, for_means, tmp_path):
    for_means.save(tmp_path / "a.release")
    command = [sys.executable, "-m", "tests.collector.described"]
    done = subprocess.run(
        [*command, str(tmp_path / "a.release"), new_database("sqlite")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    asked = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(asked) == 25
    assert set(asked) == set(get_args(Role))


def test_the_document_names_a_token_wherever_one_is_needed(new_database, for_means):
    app, _ = application(for_means, new_database("sqlite"))
    document = app.openapi()
    app.state.collector.close()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    bare = {
        path
        for path, methods in document["paths"].items()
        for method in methods.values()
        if "security" not in method
    }
    assert bare == {"/healthz", "/readyz"}
