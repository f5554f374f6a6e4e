"""What a collector has of a round: means, drift, and the reports themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from offaxis.cli.collector.asking import URL, CaFile, RoundName, Secret, Url, ask, facts, quoted
from offaxis.cli.examples import example
from offaxis.cli.options import AsJson, Force
from offaxis.cli.showing.terminal import counted, fields, one_line, plain, print_json, screen


@example("offaxis collector means energy-7")
def means(
    name: RoundName,
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the means of a round with their standard errors; --json has every coordinate."""
    found = _asked(name, "means", (url, secret, ca_file))
    if as_json:
        print_json(found)
        return
    rows = [("reports", f"{found['reports']:,}")]
    for one in found["means"]:
        label = "everybody" if one["group"] is None else one_line(str(one["group"]))
        error = one["standard_error"] or one["shares_error"]
        spoken = "unknown from 1 report" if error is None else f"{max(error):.4g}"
        reports = counted(one["reports"], "report")
        rows.append((label, f"{reports}, largest standard error {spoken}"))
    with screen() as console:
        console.print(fields(rows))


@example("offaxis collector drift energy-7")
def drift(
    name: RoundName,
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a round's reports fit the public vectors of the release's profile."""
    found = _asked(name, "drift", (url, secret, ca_file))
    if as_json:
        print_json(found)
        return
    warned = "warning: " if found["warning"] else ""
    typer.echo(plain(f"{warned}{found['sentence']}"))


@example("offaxis collector export energy-7 --out energy-7.parquet")
def export(
    name: RoundName,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .parquet file to write.")],
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
    force: Force = False,
) -> None:
    """Write a round's reports to a Parquet file: id, group, report."""
    from offaxis.cli.files import check_new, check_output
    from offaxis.files import replacing

    check_output(out)
    check_new(out, "a round that was purged cannot be exported again", force=force)
    answer = ask((url, secret, ca_file), "GET", f"/v1/rounds/{quoted(name)}/export")
    with replacing(out) as file:
        file.write(answer.body)
    typer.echo(f"wrote {out}")


@example("offaxis collector purge energy-7")
def purge(name: RoundName, secret: Secret, url: Url = URL, ca_file: CaFile = None) -> None:
    """Delete all reports of a closed round; its means stay."""
    found = facts(ask((url, secret, ca_file), "DELETE", f"/v1/rounds/{quoted(name)}/reports"))
    typer.echo(f"deleted {counted(int(found['deleted']), 'report')}")


def _asked(name: str, what: str, where: tuple[str, str, Path | None]) -> dict[str, Any]:
    return facts(ask(where, "GET", f"/v1/rounds/{quoted(name)}/{what}"))
