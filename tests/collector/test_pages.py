"""Pages are the wheel's files and nothing else, sent with headers that let nothing foreign in."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collector.running import ask, running

BROWSER = files("offaxis.collector") / "pages"


@pytest.fixture(scope="module")
def port(new_database):
    with running(new_database("sqlite")) as server:
        yield server.port


def test_a_module_is_sent_as_it_lies_in_the_wheel(port):
    got = ask(port, "GET", "/browser/client/index.js")
    assert got.status == 200
    assert got.body == (BROWSER / "client" / "index.js").read_bytes()
    assert got.headers["content-type"] == "text/javascript; charset=utf-8"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy


def test_what_has_not_changed_is_not_sent_again(port):
    first = ask(port, "GET", "/browser/client/index.js")
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = ask(port, "GET", "/browser/client/index.js", If_None_Match=known)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert ask(port, "GET", "/browser/client/index.js", If_None_Match='"other"').status == 200
    head = ask(port, "HEAD", "/browser/client/index.js")
    assert (head.status, head.body) == (200, b"")


PARTS = ["..", "%2e%2e", "%2e.", "client", "index.js", "collector", "app.py", "", ".", "%00"]
PARTS += ["%2fetc", "%5c..", "etc", "passwd", "dashboard"]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_no_path_leaves_the_list(port, parts):
    got = ask(port, "GET", "/browser/" + "/".join(parts))
    if parts != ["client", "index.js"]:
        assert (got.status, got.kind) == (404, "not-found")


@pytest.mark.parametrize("path", ["/", "/browser", "/browser/", "/browser/client/README.md"])
def test_what_is_no_page_is_not_found(port, path):
    assert ask(port, "GET", path).kind == "not-found"
