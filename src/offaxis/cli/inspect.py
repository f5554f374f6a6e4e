"""``offaxis inspect``: the privacy card of a release, and what theory says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, MODEL, AsJson, Expect, ReleaseFile
from offaxis.cli.showing.terminal import print_json, screen
from offaxis.cli.usage import Misused

if TYPE_CHECKING:
    from offaxis.evaluation.limits import Yardstick
    from offaxis.release import Release
    from offaxis.theory.table import Row


@example(
    "offaxis inspect my.release",
    "offaxis inspect my.release --model head.safetensors --vectors test.npy",
)
def inspect(
    release: ReleaseFile,
    model: Annotated[str | None, MODEL] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"With --model: public vectors for which theory is worked out: {ARRAY}.",
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --model and --vectors: the public vectors of the release, to compare with.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=2, help="Simulated reports a vector, beside the theory.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulation.")] = 0,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Show what a release promises, to whom, on which conditions, and what it does not.

    With a model and vectors also what ε allows for the model's answers, and what theory says about
    the release. Nothing here protects the vectors: use public ones.
    """
    from offaxis.cli.evaluate import limit_facts, print_limits, written_limit
    from offaxis.cli.reading.releases import load_release
    from offaxis.cli.showing.card import print_card
    from offaxis.cli.showing.facts import describe
    from offaxis.cli.showing.theory import print_theory, theory_facts
    from offaxis.privacy import wording

    _check_options(model, vectors, public)
    loaded = load_release(release, expect)
    allowed, rows = None, None
    if model is not None and vectors is not None:
        allowed, rows = _theory(loaded, model, vectors, public, draws=seeds, seed=seed)
    if not as_json:
        with screen() as console:
            print_card(loaded, console)
            for name, limit in (allowed or {}).items():
                console.print(
                    f"\n{name} with this model, of these vectors: {written_limit(name, limit)}"
                )
            print_limits(allowed or {}, console)
            if rows is not None:
                print_theory(rows, seeds, console)
        return
    words = {
        "strength": wording.strength(loaded.guarantee)[0],
        "promise": wording.promise(loaded.guarantee),
        "protected": wording.protected(loaded.guarantee),
        "not_promised": wording.not_promised(loaded.guarantee),
    }
    facts = describe(loaded) | {"card": words}
    if allowed is not None and rows is not None:
        facts["limits"] = {name: limit_facts(limit) for name, limit in allowed.items()}
        facts["theory"] = theory_facts(rows)
    print_json(facts)


def _check_options(model: str | None, vectors: str | None, public: str | None) -> None:
    if (model is None) != (vectors is None):
        missing = "--model" if model is None else "--vectors"
        raise Misused(f"theory needs --model and --vectors together; add {missing}")
    if public is not None and model is None:
        raise Misused("--public is read with --model and --vectors only; add them")


def _theory(
    release: Release, model: str, vectors: str, public: str | None, *, draws: int, seed: int
) -> tuple[dict[str, Yardstick], list[Row]]:
    """Return what ε allows for the model's answers, and what theory says of the release."""
    from offaxis.cli.reading.arrays import read_array
    from offaxis.cli.reading.models import load_model
    from offaxis.cli.showing.theory import compute_rows
    from offaxis.evaluation.limits import limits
    from offaxis.vectors import as_batch

    task = load_model(model)
    batch, _ = as_batch(read_array(vectors), release.input_dim)
    allowed = limits(task, batch, None, release.guarantee)
    return allowed, compute_rows(release, task, batch, public, draws=draws, seed=seed)
