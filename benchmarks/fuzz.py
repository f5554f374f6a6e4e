"""A million hostile inputs to all readers of untrusted bytes, guided by coverage.

    python -m benchmarks.fuzz [--executions 1000000] [--seed 1] [--findings FOLDER]
    python -m benchmarks.fuzz --replay TARGET FILE

Needs the extra ``fuzz``. Seed inputs are generated at start. An input fails if it raises anything
but a declared error, violates a condition of tests/fuzz/oracle.py, takes more than two seconds of
CPU time, or allocates more than 256 MiB. The first input of every kind of failure is written to the
folder of findings for replay, and the run ends with exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NoReturn

FRESH = 0.5
"""Share of inputs that are mutated directly from a valid one, not from the kept corpus."""

SHARES = {
    "release": 0.4,
    "release file": 0.05,
    "number": 0.15,
    "report": 0.15,
    "payload": 0.15,
    "report file": 0.1,
}
"""Target → share of the executions; releases take the longest."""

SECONDS = 2.0
MEMORY = 256 << 20
"""Address space that an input may add to that of the process when fuzzing begins."""


class TooSlow(BaseException):
    """An input took too long; no ``except Exception`` in the tested code can catch this."""


def _too_slow(signum: int, frame: Any) -> NoReturn:
    raise TooSlow(f"more than {SECONDS} seconds")


class Watch:
    """Runs a target on one input after the other and counts the outcomes."""

    def __init__(
        self, name: str, target: Callable[[bytes], str], executions: int, findings: Path
    ) -> None:
        self._name, self._target, self._findings = name, target, findings
        self._remaining = executions
        self._outcomes: Counter[str] = Counter()
        self._undeclared: Counter[str] = Counter()
        self._slowest = 0.0
        signal.signal(signal.SIGVTALRM, _too_slow)

    def __call__(self, blob: bytes) -> None:
        """Run one input; end the process after the last one."""
        start = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            self._outcomes[self._target(blob)] += 1
        except (Exception, TooSlow) as error:
            self._save(blob, error)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._slowest = max(self._slowest, time.process_time() - start)
        self._remaining -= 1
        if not self._remaining:
            print("SUMMARY " + json.dumps(self._summary()), flush=True)
            # The fuzzing engine has no other way to stop that keeps the summary.
            os._exit(0)

    def _save(self, blob: bytes, error: BaseException) -> None:
        """Write the first input of every kind of failure, by type and place of the exception."""
        frames = traceback.extract_tb(error.__traceback__)[::-1]
        where = next((f for f in frames if "offaxis" in Path(f.filename).parts), frames[0])
        kind = f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
        self._undeclared[kind] += 1
        if self._undeclared[kind] == 1:
            path = self._findings / f"{self._name}-{hashlib.sha256(blob).hexdigest()[:12]}"
            path.write_bytes(blob)
            path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))

    def _summary(self) -> dict[str, Any]:
        return {
            "outcomes": self._outcomes,
            "undeclared": self._undeclared,
            "slowest": self._slowest,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def fuzz(name: str, executions: int, seed: int, findings: Path) -> NoReturn:
    """Fuzz one target in this process."""
    import atheris

    with atheris.instrument_imports(include=["offaxis"], exclude=["offaxis.sampling"]):
        import offaxis.formats.release_file  # noqa: F401
    from benchmarks.fuzz_targets import targets
    from tests.fuzz import mutation

    def mutate(blob: bytes, most: int, choice: int) -> bytes:
        rng = Random(choice)
        if rng.random() < FRESH:
            return fresh(rng)[:most]
        if name.startswith("release") and rng.random() < 0.8:
            return mutation.mutant(blob, rng)[:most]
        return bytes(atheris.Mutate(blob, most))

    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        target, fresh, first = targets(Path(folder))[name]
        for index, blob in enumerate(first):
            target(blob)  # fill caches, which are not memory of an input
            (corpus / f"{index:04d}").write_bytes(blob)
        size = int(re.search(r"VmSize:\s*(\d+)", Path("/proc/self/status").read_text())[1]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        # The engine's limits are far larger: they would end the run without a summary.
        limits = ["-max_len=2000000", "-timeout=120", "-rss_limit_mb=0"]
        options = [f"-seed={seed}", f"-artifact_prefix={findings}/{name}-", *limits]
        options += ["-len_control=0", "-reduce_inputs=0"]
        watch = Watch(name, target, executions, findings)
        atheris.Setup([sys.argv[0], *options, str(corpus)], watch, custom_mutator=mutate)
        atheris.Fuzz()
    raise AssertionError("the engine stopped before the last execution")


def run(name: str, executions: int, seed: int, findings: Path) -> dict[str, Any]:
    """Fuzz one target in a new process and return its summary."""
    command = [sys.executable, "-m", "benchmarks.fuzz", "--findings", str(findings)]
    command += ["--target", name, "--executions", str(executions), "--seed", str(seed)]
    # The process exits without cleaning up its temporary files.
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"TMPDIR": scratch}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace"
        )
    summary = re.search(r"^SUMMARY (.*)$", done.stdout, re.MULTILINE)
    if not summary:
        raise SystemExit(f"{name}: the process died\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    edges = re.findall(r"cov: (\d+)", done.stderr)
    return {"target": name, "edges": int(edges[-1]) if edges else 0, **json.loads(summary[1])}


def print_table(summaries: list[dict[str, Any]]) -> bool:
    """Print the summaries; return whether any input failed."""
    line = "{:<13} {:>10} {:>7} {:>9} {:>15} {:>14} {:>11} {:>10} {:>9}"
    names = ("target", "executions", "edges", "accepted", "InvalidRelease", "InvalidReport")
    print(line.format(*names, "undeclared", "slowest", "peak"))
    total: Counter[str] = Counter()
    for summary in summaries:
        target, edges, outcomes = (summary[name] for name in ("target", "edges", "outcomes"))
        failed = sum(summary["undeclared"].values())
        count = sum(outcomes.values()) + failed
        total.update(outcomes | {"count": count, "failed": failed})
        shown = [f"{outcomes.get(n, 0):,}" for n in ("accepted", *names[4:])]
        costs = (f"{summary['slowest'] * 1e3:,.0f} ms", f"{summary['peak']:,.0f} MiB")
        print(line.format(target, f"{count:,}", edges, *shown, f"{failed:,}", *costs))
        for kind, times in summary["undeclared"].items():
            print(f"    {times:,} × {kind}")
    shown = [f"{total[n]:,}" for n in ("accepted", *names[4:], "failed")]
    print(line.format("all", f"{total['count']:,}", "", *shown, "", ""))
    return total["failed"] > 0


def main() -> None:
    """Fuzz everything, or one target, or replay one input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--target", choices=SHARES, help="fuzz only this target, in this process")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    arguments = parser.parse_args()
    if arguments.replay:
        from benchmarks.fuzz_targets import targets

        with tempfile.TemporaryDirectory() as folder:
            target, *_ = targets(Path(folder))[arguments.replay[0]]
            print(target(Path(arguments.replay[1]).read_bytes()))
        return
    executions, seed, findings = arguments.executions, arguments.seed, arguments.findings
    findings.mkdir(exist_ok=True)
    if arguments.target:
        fuzz(arguments.target, executions, seed, findings)
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(run, name, round(share * executions), seed, findings)
            for name, share in SHARES.items()
        ]
        failed = print_table([job.result() for job in jobs])
    print(f"{time.perf_counter() - start:,.0f} s on {os.cpu_count()} cores")
    sys.exit(failed)


if __name__ == "__main__":
    main()
