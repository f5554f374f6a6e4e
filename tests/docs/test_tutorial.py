"""docs/tutorial.md works as written, in an empty folder and with a real collector."""

from __future__ import annotations

import re

from tests.checks import ALPHA
from tests.collector.scripts import ROOT, run_script
from tests.docs.blocks import as_script, blocks, missing
from tools.ports import free_port

PAGE = (ROOT / "docs/tutorial.md").read_text()


def test_the_tutorial_runs_and_prints_the_shown_output(tmp_path):
    script = as_script(PAGE).replace("8470", str(free_port()))
    # The usual false-alarm rate of an audit is too high for a test.
    assert script.count("offaxis audit") == 1
    printed = run_script(
        script.replace("offaxis audit", f"offaxis audit --false-alarm {ALPHA}"), tmp_path
    )
    shown = [block for block in blocks(PAGE) if block.kind == "text"]
    output = "".join(block.text for block in shown if not block.fragment)
    assert missing(output, printed) == []
    [fragment] = [block.text for block in shown if block.fragment]
    # Another run has other estimates of the same digits, next to the same true shares.
    assert missing(re.sub(r"(?m)^( *\d) .* (\d+)$", r"\1 … \2", fragment), printed) == []
    assert len(list((tmp_path / "phones").glob("*.device"))) == 100
    for secret in ("publisher.key", "phones.token", "collector.db"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0


def test_a_page_that_shows_other_output_is_detected():
    printed = "right on 90.3% without privacy\nreports 60\nround one is open\n"
    assert missing("right on 90.1% without privacy\nround … is open\n", printed) == []
    assert missing("right on 60.3% without privacy\n", printed)
    assert missing("round one is closed\n", printed)
    assert missing("round one is open\nreports 60\n", printed)
