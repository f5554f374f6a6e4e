"""docs/tutorial.md is followed word for word in an empty folder, with a real collector."""

from __future__ import annotations

import re

from tests.checks import ALPHA
from tests.collector.walking import ROOT, walk
from tests.docs.blocks import as_script, blocks, missing
from tools.ports import free_port

PAGE = (ROOT / "docs/tutorial.md").read_text()


def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path):
    script = as_script(PAGE).replace("8470", str(free_port()))
    # By chance an audit may accuse a sound release; here that would be too often.
    assert script.count("offaxis audit") == 1
    said = walk(script.replace("offaxis audit", f"offaxis audit --false-alarm {ALPHA}"), tmp_path)
    printed = [block for block in blocks(PAGE) if block.kind == "text"]
    assert missing("".join(block.text for block in printed if not block.fragment), said) == []
    [one_run] = [block.text for block in printed if block.fragment]
    # Another run has other estimates of the same digits, beside the same true shares.
    assert missing(re.sub(r"(?m)^( *\d) .* (\d+)$", r"\1 … \2", one_run), said) == []
    assert len(list((tmp_path / "phones").glob("*.device"))) == 100
    for secret in ("publisher.key", "phones.token", "collector.db"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0


def test_a_page_that_shows_something_else_is_caught():
    said = "right on 90.3% without privacy\nreports 60\nround one is open\n"
    assert missing("right on 90.1% without privacy\nround … is open\n", said) == []
    assert missing("right on 60.3% without privacy\n", said)
    assert missing("round one is closed\n", said)
    assert missing("round one is open\nreports 60\n", said)
