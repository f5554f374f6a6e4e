"""Pages are exactly the wheel's files, sent with headers that exclude foreign content."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collector.running import http_request, running

BROWSER = files("offaxis.collector") / "pages"


@pytest.fixture(scope="module")
def port(new_database):
    with running(new_database("sqlite")) as server:
        yield server.port


def test_a_module_is_served_as_in_the_wheel(port):
    got = http_request(port, "GET", "/browser/client/index.js")
    assert got.status == 200
    assert got.body == (BROWSER / "client" / "index.js").read_bytes()
    assert got.headers["content-type"] == "text/javascript; charset=utf-8"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy


def test_an_unchanged_file_is_not_sent_again(port):
    first = http_request(port, "GET", "/browser/client/index.js")
    for etags in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = http_request(port, "GET", "/browser/client/index.js", If_None_Match=etags)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert (
        http_request(port, "GET", "/browser/client/index.js", If_None_Match='"other"').status == 200
    )
    head = http_request(port, "HEAD", "/browser/client/index.js")
    assert (head.status, head.body) == (200, b"")


PARTS = ["..", "%2e%2e", "%2e.", "client", "index.js", "collector", "app.py", "", ".", "%00"]
PARTS += ["%2fetc", "%5c..", "etc", "passwd", "dashboard"]


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8))
def test_no_path_escapes_the_list_of_files(port, parts):
    got = http_request(port, "GET", "/browser/" + "/".join(parts))
    if parts != ["client", "index.js"]:
        assert (got.status, got.kind) == (404, "not-found")


@pytest.mark.parametrize("path", ["/", "/browser", "/browser/", "/browser/client/README.md"])
def test_other_paths_are_not_found(port, path):
    assert http_request(port, "GET", path).kind == "not-found"
