"""Every response fits the OpenAPI document, whatever is sent."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

from offaxis.collector.access import Role
from tests.collector.openapi_checks import application


def test_responses_fit_the_document(new_database, for_means, tmp_path):
    for_means.save(tmp_path / "a.release")
    command = [sys.executable, "-m", "tests.collector.openapi_checks"]
    result = subprocess.run(
        [*command, str(tmp_path / "a.release"), new_database("sqlite")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    roles = [line.split()[-1] for line in result.stdout.splitlines()]
    assert len(roles) == 32
    assert set(roles) == set(get_args(Role))


def test_the_document_states_which_operations_need_a_token(new_database, for_means):
    app, _ = application(for_means, new_database("sqlite"))
    document = app.openapi()
    app.state.collector.close()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    open_to_all = {
        path
        for path, methods in document["paths"].items()
        for method in methods.values()
        if "security" not in method
    }
    assert open_to_all == {"/healthz", "/readyz"}
