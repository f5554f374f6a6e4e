"""Squared errors of the estimators of two libraries; a part of ``benchmarks.frequencies``.

It runs in an environment of its own, with ``pure-ldp==1.2.0 multi-freq-ldpy==0.2.5 "xxhash<4"
"numpy<2.1" scikit-learn statsmodels``, and imports nothing of offaxis:

    python -m benchmarks.frequencies_rivals < settings.json

The settings are a list of cells {"size", "epsilon", "rounds": lists of symbols}. The output is one
line of JSON per cell and estimator: the mean over rounds of n‖f̂ − f‖², f the shares of the people
present, of the unbiased estimate and of what the library makes of it. Where MI of multi-freq-ldpy
sets negative shares to zero, the unbiased estimate is (count/n − q)/(p − q), before that.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")

Estimates = tuple[Any, Any]
"""The unbiased shares and the shares that the library returns; None if it has only one of them."""

MOST_HASHED = 3_000_000
"""Hashes that a server in plain Python computes for one cell; further rounds are left out."""

SECONDS = 1.0
"""Of one estimator in one cell; further rounds are left out."""

MOST_ITERATED = 100
"""Symbols up to which iterative Bayesian updates are tried: a step takes k² operations."""


def same(symbol: Any) -> Any:
    """Return the symbol: the libraries number symbols from one by default."""
    return symbol


def pure(
    make: Callable[[int, float], tuple[Any, Any]], symbols: Any, k: int, e: float
) -> Estimates:
    """Run a client and a server of pure-ldp."""
    client, server = make(k, e)
    for symbol in symbols:
        server.aggregate(client.privatise(symbol))
    found = np.array([server.estimate(j, suppress_warnings=True) for j in range(k)]) / len(symbols)
    if type(server).__name__ == "PCSServer":  # it leaves the factor of randomized response out
        return found / math.tanh(e / 2), found
    if type(server).__name__ == "RAPPORServer":  # a regression that shrinks
        return None, found
    return found, None


def pure_estimators() -> Iterator[tuple[str, Any, bool]]:
    """Yield the name, a constructor of client and server, and whether all symbols are hashed."""
    from pure_ldp.frequency_oracles.apple_cms import CMSClient, CMSServer
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
    from pure_ldp.frequency_oracles.hadamard_mechanism import HadamardMechClient, HadamardMechServer
    from pure_ldp.frequency_oracles.hadamard_response import (
        HadamardResponseClient,
        HadamardResponseServer,
    )
    from pure_ldp.frequency_oracles.histogram_encoding import HEClient, HEServer
    from pure_ldp.frequency_oracles.local_hashing import (
        FastLHClient,
        FastLHServer,
        LHClient,
        LHServer,
    )
    from pure_ldp.frequency_oracles.priv_count_sketch import PCSClient, PCSServer
    from pure_ldp.frequency_oracles.rappor import RAPPORClient, RAPPORServer
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    def hashed(k: int, e: float, *, optimal: bool) -> tuple[Any, Any]:
        settings = {"use_olh": optimal, "index_mapper": same}
        server = LHServer(e, k, **settings)
        server.update_params(epsilon=e, use_olh=optimal)
        return LHClient(e, k, **settings), server

    def fast(k: int, e: float) -> tuple[Any, Any]:
        server = FastLHServer(e, k, 500, use_olh=True, index_mapper=same)
        server.update_params(epsilon=e, use_olh=True)
        server.hash_counts = np.zeros((500, server.g))
        return FastLHClient(e, k, 500, use_olh=True, index_mapper=same), server

    def response(k: int, e: float) -> tuple[Any, Any]:
        server = HadamardResponseServer(e, k, index_mapper=same)
        funcs = server.get_hash_funcs()
        return HadamardResponseClient(e, k, funcs, index_mapper=same), server

    def hadamard(k: int, e: float, *, optimal: bool) -> tuple[Any, Any]:
        whole = 1 << (k - 1).bit_length()  # it needs a power of two
        both = [
            form(e, whole, 1, use_optimal_t=optimal, index_mapper=same)
            for form in (HadamardMechClient, HadamardMechServer)
        ]
        return both[0], both[1]

    def sketch(k: int, e: float, *, transformed: bool) -> tuple[Any, Any]:
        server = CMSServer(e, 64, 1024, is_hadamard=transformed, index_mapper=same)
        client = CMSClient(e, server.get_hash_funcs(), 1024, is_hadamard=transformed)
        return client, server

    def counts(k: int, e: float) -> tuple[Any, Any]:
        server = PCSServer(e, 64, 1024, use_median=False, index_mapper=same)
        return PCSClient(e, 64, 1024, server.get_hash_funcs()), server

    def bloom(k: int, e: float) -> tuple[Any, Any]:
        if k > MOST_ITERATED:
            raise ValueError("its regression has too many columns")
        f = 2 / (1 + math.exp(e / 2))
        server = RAPPORServer(f, 128, 1, k, index_mapper=same)
        return RAPPORClient(f, 128, server.get_hash_funcs(), index_mapper=same), server

    def both(client: Any, server: Any, **of_server: Any) -> Callable[[int, float], tuple[Any, Any]]:
        own = {key: value for key, value in of_server.items() if key == "use_oue"}
        return lambda k, e: (
            client(e, k, index_mapper=same, **own),
            server(e, k, index_mapper=same, **of_server),
        )

    yield "direct encoding", both(DEClient, DEServer), False
    yield "unary encoding", both(UEClient, UEServer), False
    yield "optimised unary", both(UEClient, UEServer, use_oue=True), False
    yield "summed histogram", both(HEClient, HEServer), False
    yield "thresholded histogram", both(HEClient, HEServer, use_the=True), False
    yield "binary hashing", partial(hashed, optimal=False), True
    yield "optimal hashing", partial(hashed, optimal=True), True
    yield "fast hashing (500)", fast, True
    yield "Hadamard response", response, False
    yield "Hadamard mechanism", partial(hadamard, optimal=False), False
    yield "Hadamard mechanism, best t", partial(hadamard, optimal=True), False
    yield "count-mean sketch (64 × 1,024)", partial(sketch, transformed=False), False
    yield "… with Hadamard", partial(sketch, transformed=True), False
    yield "private count sketch (64 × 1,024)", counts, False
    # Its client sets bits and clears none: the person's own bit is always sent as 1.
    yield "RAPPOR (128 bits), not private", bloom, False


def multi_estimators() -> Iterator[tuple[str, Any, bool]]:
    """Yield the name, a function from symbols to estimates, and whether all symbols are hashed."""
    from multi_freq_ldpy.pure_frequency_oracles import ADP, GRR, HE, LH, SS, UE

    def inverted(module: Any, aggregate: Any, reports: Any) -> Estimates:
        """Return the shares before and after MI sets negative ones to zero."""
        kept = {}

        def own(counts: Any, n: int, p: float, q: float) -> Any:
            kept["raw"] = (np.asarray(counts) / n - q) / (p - q)
            return original(counts, n, p, q)

        original = module.MI
        module.MI = own
        try:
            final = aggregate(reports)
        finally:
            module.MI = original
        return kept.get("raw"), final

    def with_mi(module: Any, name: str, *more: Any, sized: bool = True) -> Any:
        def run(symbols: Any, k: int, e: float) -> Estimates:
            reports = [getattr(module, f"{name}_Client")(x, k, e, *more) for x in symbols]
            form = getattr(module, f"{name}_Aggregator_MI")
            if sized:
                return inverted(module, lambda made: form(made, k, e, *more), reports)
            return inverted(module, lambda made: form(made, e, *more), reports)

        return run

    def with_he(*, thresholded: bool) -> Any:
        def run(symbols: Any, k: int, e: float) -> Estimates:
            reports = [HE.HE_Client(x, k, e) for x in symbols]
            raw, final = inverted(
                HE, lambda made: HE.HE_Aggregator_MI(made, k, e, thresholded), reports
            )
            if raw is None:  # sums of noisy one-hot vectors need no inversion
                raw = np.mean(reports, axis=0)
            return raw, final

        return run

    def adaptive(symbols: Any, k: int, e: float) -> Estimates:
        reports = [ADP.ADP_Client(x, k, e) for x in symbols]
        return None, ADP.ADP_Aggregator_MI(reports, k, e)

    def iterated(module: Any, name: str) -> Any:
        def run(symbols: Any, k: int, e: float) -> Estimates:
            if k > MOST_ITERATED:
                return None, None
            reports = [getattr(module, f"{name}_Client")(x, k, e) for x in symbols]
            form = getattr(module, f"{name}_Aggregator_IBU")
            return None, form(reports, k, e, nb_iter=1000)

        return run

    yield "GRR", with_mi(GRR, "GRR"), False
    yield "UE", with_mi(UE, "UE", False, sized=False), False
    yield "OUE", with_mi(UE, "UE", True, sized=False), False
    yield "SS", with_mi(SS, "SS"), False
    yield "BLH", with_mi(LH, "LH", False), True
    yield "OLH", with_mi(LH, "LH", True), True
    yield "SHE", with_he(thresholded=False), False
    yield "THE", with_he(thresholded=True), False
    yield "ADP", adaptive, False
    for name, module in (("GRR", GRR), ("SS", SS), ("UE", UE), ("LH", LH)):
        yield f"{name}, Bayesian update", iterated(module, name), True


def main() -> None:
    """Print one line per cell and estimator."""
    cells = json.load(sys.stdin)
    listed = [
        ("pure-ldp", name, partial(pure, make), hashes) for name, make, hashes in pure_estimators()
    ] + [("multi-freq-ldpy", name, run, hashes) for name, run, hashes in multi_estimators()]
    for cell in cells:
        k, e = cell["size"], cell["epsilon"]
        for library, name, run, hashes in listed:
            print(
                json.dumps(
                    {"library": library, "name": name, "size": k, "epsilon": e}
                    | measured(run, cell["rounds"], k, e, hashes)
                ),
                flush=True,
            )


def measured(run: Any, rounds: list[list[int]], k: int, e: float, hashes: bool) -> dict[str, Any]:
    """Return the errors of an estimator over rounds, or why there are none."""
    errors: dict[str, list[float]] = {"unbiased": [], "final": []}
    with suppress(Exception):
        run(rounds[0][:3], k, e)  # numba compiles
    start, done = time.perf_counter(), 0
    most = max(1, MOST_HASHED // (k * len(rounds[0]))) if hashes else len(rounds)
    for symbols in rounds[:most]:
        truth = np.bincount(symbols, minlength=k) / len(symbols)
        try:
            found = run(symbols, k, e)
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"[:200]}
        for key, shares in zip(errors, found, strict=True):
            if shares is not None:
                value = len(symbols) * float(((np.asarray(shares) - truth) ** 2).sum())
                errors[key].append(value)
        done += 1
        if time.perf_counter() - start > SECONDS:
            break
    out: dict[str, Any] = {"rounds": done, "seconds": round(time.perf_counter() - start, 2)}
    for key, values in errors.items():
        if values and all(map(math.isfinite, values)):
            out[key] = float(np.mean(values))
            spread = float(np.std(values)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            # With few rounds of many symbols, the law of a sum of k squares.
            out[f"{key}_error"] = max(spread, out[key] * math.sqrt(2 / (k * len(values))) / 2)
    return out


if __name__ == "__main__":
    main()
