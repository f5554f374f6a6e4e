"""A device killed a thousand times at random pays for every report that it sends.

python -m benchmarks.kills [--kills 1000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.privacy.test_ledger import kill_at_random


def main() -> None:
    """Kill a device repeatedly; compare the reports sent with those paid for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as folder:
        paid, sent = kill_at_random(Path(folder), kills, seed=0)
    lost = paid - sent
    print(f"{kills:,} kills: {sent:,} reports sent, {paid:,} paid for, {lost:,} lost to crashes")
    if not sent <= paid <= sent + kills:
        sys.exit("a report was sent that was not paid for")


if __name__ == "__main__":
    main()
