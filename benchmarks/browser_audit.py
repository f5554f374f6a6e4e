"""Audits of reports made by the browser client, by Python, and by broken controls.

    python -m benchmarks.browser_audit [--reports 400000] [--epsilon 1] [--no-controls]

Audits releases in two dimensions, and response on four symbols; their worst pair attains the
guarantee. *shown* is the largest ε that any test on whole reports could show; the false-alarm rate
is 1e-3 per audit. Broken controls add half the noise, or answer with odds of e^{3ε/2}. Needs Node
20 or newer.
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

from offaxis.auditing import audit
from offaxis.release import Release
from tests.browser.maker import CLIENT, audited, broken_client, in_javascript, largest_epsilon


@contextmanager
def _reported_by(maker: str, release: Release, node: str) -> Iterator[Release]:
    """Yield the release with reports made by Python, the browser client or a broken control."""
    if maker == "Python":
        yield release
        return
    with TemporaryDirectory() as folder:
        broken = maker == "broken control"
        client = broken_client(Path(folder), release.randomizer.kind) if broken else CLIENT
        with in_javascript(release, node, client) as reporting:
            yield reporting


def main() -> None:
    """Print one line per release and maker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=400_000)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--no-controls", action="store_true", help="skip the broken controls")
    arguments = parser.parse_args()
    node = shutil.which("node")
    if node is None:
        sys.exit("this needs Node 20 or newer on the PATH")
    makers = ["Python", "JavaScript", *(() if arguments.no_controls else ("broken control",))]
    print(f"{'release':<12}{'made by':<16}{'reports':>10}{'shown':>8}{'could':>8}  verdict")
    for kind, release in audited(arguments.epsilon).items():
        for maker in makers:
            with _reported_by(maker, release, node) as reporting:
                result = audit(reporting, reports=arguments.reports)
            names = ", ".join(finding.test for finding in result.by_verdict("violation"))
            print(
                f"{kind:<12}{maker:<16}{result.reports:>10,}{largest_epsilon(result):>8.3f}"
                f"{result.resolution:>8.2f}  {'violation: ' + names if names else 'nothing found'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
