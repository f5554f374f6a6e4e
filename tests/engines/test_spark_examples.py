"""The examples of the Spark engine, in the session that all tests of this folder share."""

from __future__ import annotations

import pytest

from tests.test_examples import ELSEWHERE, PUBLIC, check_all

# pyspark 3.5 asks distutils for versions, and leaves sockets to be collected.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize(
    ("where", "name"),
    [pytest.param(*key, id=key[1]) for key in PUBLIC if key[0].startswith(ELSEWHERE)],
)
def test_the_examples_run(spark, where, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_all(where, PUBLIC[where, name])
