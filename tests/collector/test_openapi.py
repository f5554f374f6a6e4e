"""The service does what its OpenAPI document says, whatever is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.transport.serialization import Binary

from offaxis.collector.app import create_app
from offaxis.collector.auth import ROLES, new_token
from offaxis.collector.settings import Settings
from tests.collector.running import START, Clock, make_round


@schemathesis.serializer("application/vnd.offaxis.reports")
def _as_it_is(context, value):
    return value.data if isinstance(value, Binary) else str(value).encode()


@pytest.fixture(scope="module")
def application(new_database, for_means):
    from offaxis.artifact import to_bytes

    clock = Clock()
    app = create_app(Settings(new_database("sqlite"), clock=clock, reader_rate=1e9))
    collector = app.state.collector
    tokens = {role: new_token() for role in ROLES}
    collector.store.publish(for_means.hash, to_bytes(for_means), bytes(64), START)
    collector.store.add_round(make_round(for_means, "a"), bytes(64))
    for role, token in tokens.items():
        collector.store.add_token(token, f"the {role}", role, START)
    collector.catalogue.refresh()
    yield app, tokens
    collector.close()


def _check(operation, token):
    @given(operation.as_strategy())
    @settings(
        max_examples=12,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        # No schema can say what a signed release is, so valid data may well be refused.
        case.call_and_validate(
            headers={"Authorization": f"Bearer {token}"},
            excluded_checks=[positive_data_acceptance],
        )

    check()


def test_answers_are_as_described(application):
    app, tokens = application
    described = schemathesis.openapi.from_asgi("/openapi.json", app)
    asked = []
    for found in described.get_all_operations():
        # Nothing keeps house here.
        app.state.collector.catalogue.refresh()
        operation = found.ok()
        said = app.openapi()["paths"][operation.path][operation.method]["description"]
        roles = [role for role in tokens if f"Role: {role}" in said] or ["device"]
        _check(operation, tokens[roles[0]])
        asked += roles
    assert len(asked) == 21
    assert set(asked) == set(tokens)


def test_the_document_names_a_token_wherever_one_is_needed(application):
    document = application[0].openapi()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    bare = {
        path
        for path, methods in document["paths"].items()
        for method in methods.values()
        if "security" not in method
    }
    assert bare == {"/healthz", "/readyz"}
