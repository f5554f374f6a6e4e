"""The auditor on reports made by the browser's client, beside Python's own and broken twins.

    python -m benchmarks.browser_audit [--reports 400000] [--epsilon 1] [--no-twins]

Releases in two dimensions (and response on four symbols), whose worst pair is the worst there is.
*shown* is the largest ε that any test on whole reports could show; a false alarm has probability
1e-3 an audit. Twins add half the noise, or answer by odds of e^{3ε/2}. Needs Node 20 or newer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from offaxis.audit import audit
from offaxis.release import Release
from tests.browser.maker import CLIENT, audited, broken_client, in_javascript, shown


@contextmanager
def _made(release: Release, by: str, node: str) -> Iterator[Release]:
    """Give the release with its reports made by Python, by the client or by its broken twin."""
    if by == "Python":
        yield release
        return
    with TemporaryDirectory() as folder:
        twin = by == "broken twin"
        client = broken_client(Path(folder), release.randomizer.kind) if twin else CLIENT
        with in_javascript(release, node, client) as made:
            yield made


def main() -> None:
    """Print one line a release and maker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=400_000)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--no-twins", action="store_true")
    options = parser.parse_args()
    node = shutil.which("node")
    if node is None:
        sys.exit("this needs Node 20 or newer on the PATH")
    makers = ["Python", "JavaScript", *(() if options.no_twins else ("broken twin",))]
    print(f"{'release':<12}{'made by':<14}{'reports':>10}{'shown':>8}{'could':>8}  verdict")
    for kind, release in audited(options.epsilon).items():
        for by in makers:
            with _made(release, by, node) as made:
                result = audit(made, reports=options.reports)
            names = ", ".join(finding.test for finding in result.by_verdict("violation"))
            print(
                f"{kind:<12}{by:<14}{result.reports:>10,}{shown(result):>8.3f}"
                f"{result.resolution:>8.2f}  {'violation: ' + names if names else 'nothing found'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
