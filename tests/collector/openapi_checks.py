"""Send what the OpenAPI document allows, and more, and check every response against it.

    python -m tests.collector.openapi_checks RELEASE DATABASE

This runs in a separate process: the syntax trees that schemathesis and Hypothesis create are not
thread-safe in Python 3.11, and the tests' process has other threads.
"""

from __future__ import annotations

import sys
from typing import get_args

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.transport.serialization import Binary

import offaxis
from offaxis.collector.access import Role, new_token
from offaxis.collector.app import create_app
from offaxis.collector.service import Settings
from offaxis.formats.release_file import to_bytes
from tests.collector.running import START, Clock, make_round


@schemathesis.serializer("application/vnd.offaxis.reports")
def _unchanged(context, value):
    return value.data if isinstance(value, Binary) else str(value).encode()


def application(release, database):
    """Return an application with a release and a round, and a token for each role."""
    app = create_app(Settings(database, clock=Clock(), reader_rate=1e9))
    collector = app.state.collector
    tokens = {role: new_token() for role in get_args(Role)}
    collector.store.publish(release.hash, to_bytes(release), bytes(64), START)
    collector.store.add_round(make_round(release, "a"), bytes(64))
    for role, token in tokens.items():
        collector.store.add_token(token, f"the {role}", role, START)
    return app, tokens


def _check(operation, token):
    @given(operation.as_strategy())
    @settings(
        max_examples=12,
        deadline=None,  # a busy machine is no error
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        # No schema can describe a signed release, so data that fits the schema may be rejected.
        case.call_and_validate(
            headers={"Authorization": f"Bearer {token}"},
            excluded_checks=[positive_data_acceptance],
        )

    check()


def main(release: str, database: str) -> None:
    """Check every operation with a token that has its role; print the roles that were used."""
    app, tokens = application(offaxis.load(release), database)
    for result in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        # No maintenance runs here.
        app.state.collector.catalogue.refresh()
        operation = result.ok()
        description = app.openapi()["paths"][operation.path][operation.method]["description"]
        roles = [role for role in tokens if f"Role: {role}" in description] or ["device"]
        _check(operation, tokens[roles[0]])
        print(operation.method, operation.path, roles[0])  # noqa: T201
    app.state.collector.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
