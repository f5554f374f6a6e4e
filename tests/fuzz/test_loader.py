"""The release loader against mutants: it raises nothing but the declared error.

benchmarks/fuzz.py runs millions of the same mutants, guided by coverage.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offaxis.errors import InvalidRelease
from offaxis.formats.release_file import from_bytes
from tests.fuzz import forgery, mutation, oracle, seeds
from tests.limits import bounded

indices = st.integers(0, seeds.COUNT - 1)


def test_every_seed_is_accepted_and_can_be_forged_from_the_specification_alone():
    for blob in seeds.files():
        assert oracle.load(blob) == oracle.ACCEPTED
        draft = forgery.take_apart(blob)
        assert from_bytes(forgery.put_together(draft)) == from_bytes(blob)


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_a_release_raise_only_the_declared_error(seed):
    rng = Random(seed)
    outcomes = Counter()
    for _ in range(1500):
        blob = rng.choice(seeds.files())
        for _ in range(rng.choice((1, 1, 2))):
            blob = mutation.mutant(blob, rng)
        outcomes[oracle.load(blob)] += 1
    assert outcomes.keys() == {oracle.ACCEPTED, "InvalidRelease"}


def test_mutants_reach_every_check_of_the_loader():
    """Otherwise the test above would prove little."""
    rng = Random(0)
    messages = set()
    for _ in range(8000):
        try:
            from_bytes(mutation.mutant(rng.choice(seeds.files()), rng))
        except InvalidRelease as error:
            messages.add(str(error))
    for words in (
        *("not JSON", "not valid JSON", "wrong at", "canonical form"),
        *("no release has", "does not fit its place", "does not follow", "continues", "too early"),
        *("altered or damaged", "unknown encoder", "lacks the tensor", "unknown tensors"),
        *("other sizes", "parts do not fit", "entries up to", "has parameters", "wrong type"),
        *("epsilon must", "delta must", "radius must", "not in canonical", "manifest promises"),
    ):
        assert any(words in message for message in messages), words


@settings(max_examples=300)
@given(indices, st.randoms(use_true_random=False), st.integers(1, 3))
def test_repeated_mutations_raise_only_the_declared_error(index, rng, generations):
    blob = seeds.files()[index]
    for _ in range(generations):
        blob = mutation.mutant(blob, rng)
    oracle.load(blob)


@settings(max_examples=300)
@given(
    indices,
    st.sampled_from(["epsilon", "delta"]),
    st.text(max_size=12)
    | st.sampled_from(mutation.TEXTS)
    | st.from_regex(r"\A[0-9]{1,99}/[0-9]{1,99}\Z")
    | st.from_regex(r"\A[+-]?[0-9]{0,5}\.?[0-9]{0,5}([eE][+-]?[0-9]{1,4})?\Z"),
)
def test_any_text_in_place_of_a_number_raises_only_the_declared_error(index, name, text):
    draft = forgery.take_apart(seeds.files()[index])
    draft.manifest["randomizer"]["parameters"][name] = text
    oracle.load(forgery.put_together(draft))
    draft.manifest["guarantee"][name] = text
    oracle.load(forgery.put_together(draft))


LONG = "9" * 90 + "/1" + "0" * 87
NEARLY_ONE = "9" * 43 + "/1" + "0" * 43
HOSTILE = {
    "laplace": [
        {"log2_scale": 10**18},
        {"log2_scale": -(10**18)},
        {"epsilon": "1/1000000000"},
        {"epsilon": "9" * 94 + "/" + "1" * 91},
        {"dim": 1 << 20},
    ],
    "gaussian": [
        {"bound": 1},
        {"bound": 10**30},
        {"log2_scale": 10**18},
        {"log2_scale": 0, "bound": 1},
        {"epsilon": "1000", "bound": 1},
        {"epsilon": "10000"},
        {"delta": "1/1" + "0" * 90},
        {"dim": 1 << 20},
        *({"epsilon": LONG, "bound": 1 << b} for b in (0, 16, 20, 21, 22)),
        *(
            {"epsilon": e, "delta": NEARLY_ONE, "bound": 1 << b}
            for e in ("1", LONG)
            for b in (20, 22)
        ),
        {"epsilon": "100", "delta": NEARLY_ONE, "bound": -1},
    ],
    "privunit2": [
        {"directions": 1 << 62},
        {"directions": 10**30, "near": 10**29},
        {"directions": -1, "near": -1},
        {"target": "length"},
        {"directions": 1 << 26, "near": 1 << 25},
        {"epsilon": "100", "near": 1},
        {"dim": 1 << 20, "directions": 1 << 27},
    ],
}


@pytest.mark.parametrize(
    ("kind", "parameters"), [(kind, p) for kind, some in HOSTILE.items() for p in some]
)
def test_parameters_chosen_to_be_expensive_cost_little(kind, parameters):
    index = next(i for i, r in enumerate(seeds.releases()) if r.randomizer.kind == kind)
    draft = forgery.take_apart(seeds.files()[index])
    draft.manifest["randomizer"]["parameters"] |= parameters
    blob = forgery.put_together(draft)
    with bounded(mebibytes=8, seconds=1), suppress(InvalidRelease):
        from_bytes(blob)
