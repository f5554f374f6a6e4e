"""``offaxis collector``: publish, open rounds, look at means; over HTTP, with a token.

The address and the token come from options or from OFFAXIS_COLLECTOR and OFFAXIS_TOKEN; a token on
a command line can be read by others on the machine.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from offaxis.cli.collector_asking import URL, CaFile, Secret, Url, ask, facts, quoted
from offaxis.cli.collector_tokens import token
from offaxis.cli.options import ARRAY, AsJson, ReleaseFile
from offaxis.cli.terminal import counted, fields, one_line, plain, print_json, screen

collector: Final = typer.Typer(
    no_args_is_help=True, help="Publish releases and rounds at a collector, and read its means."
)
collector.add_typer(token, name="token")

KeyFile = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The publisher's key, of offaxis keys new.")
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The round's name.")]


def _signed(signature: bytes, media: str) -> dict[str, str]:
    return {"Offaxis-Signature": base64.b64encode(signature).decode(), "Content-Type": media}


@collector.command()
def publish(
    release: ReleaseFile,
    key: KeyFile,
    secret: Secret,
    url: Url = URL,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help=f"Public vectors, for warnings of drift (a profile): {ARRAY}."
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Sign a release and publish it; it cannot be changed or taken back."""
    from offaxis.artifact import to_bytes
    from offaxis.documents import load_key, sign_release
    from offaxis.release import Release

    loaded, signer = Release.load(release), load_key(key)
    profile = None if public is None else _profile(loaded, public)
    where = (url, secret, ca_file)
    path = f"/v1/releases/{loaded.hash}"
    signature = sign_release(signer, loaded.hash)
    headers = _signed(signature, "application/octet-stream")
    answer = ask(where, "PUT", path, to_bytes(loaded), headers)
    if profile is not None:
        ask(where, "PUT", f"{path}/profile", profile, {"Content-Type": "application/json"})
    done = "published" if answer.status == 201 else "was already published:"
    typer.echo(f"{done} {loaded.hash}{'' if profile is None else ', with its profile'}")


@collector.command()
def attach(
    release: Annotated[
        str, typer.Argument(metavar="RELEASE", help="A published release: its file, or its hash.")
    ],
    secret: Secret,
    url: Url = URL,
    curve: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What offaxis recommend --json printed over a range.",
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What offaxis audit --json printed of this release.",
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Attach facts to a published release for people who look at the dashboard."""
    found = {kind: path for kind, path in (("curve", curve), ("audit", audit)) if path is not None}
    if not found:
        raise typer.BadParameter("is needed, or --audit, or both", param_hint="'--curve'")
    bodies = {kind: path.read_bytes() for kind, path in found.items()}
    for kind, body in bodies.items():
        where = f"/v1/releases/{quoted(_hash_of(release))}/facts/{kind}"
        ask((url, secret, ca_file), "PUT", where, body, {"Content-Type": "application/json"})
    typer.echo(f"attached {' and '.join(bodies)}")


def _profile(release: Any, public: str) -> bytes:
    from offaxis.cli.arrays import read_array
    from offaxis.collector.profiling import profile_of

    profile: bytes = profile_of(release, read_array(public)).to_json().encode()
    return profile


@collector.command("open-round")
def open_round(
    name: RoundName,
    release: Annotated[
        str, typer.Option(metavar="RELEASE", help="A published release: its file, or its hash.")
    ],
    closes: Annotated[str, typer.Option(metavar="TIME", help="As 2026-12-01T00:00:00Z.")],
    key: KeyFile,
    secret: Secret,
    study: Annotated[str, typer.Option(help="Rounds that belong together.")],
    number: Annotated[int, typer.Option(min=0, help="Larger than that of the round before.")],
    opens: Annotated[
        str | None, typer.Option(metavar="TIME", help="Now, if it is not given.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A public label; may be given many times.")
    ] = None,
    keep_days: Annotated[int, typer.Option(help="Days until reports are deleted.")] = 30,
    url: Url = URL,
    ca_file: CaFile = None,
) -> None:
    """Sign a round and announce it; it cannot be changed, only closed early."""
    from datetime import UTC, datetime

    from offaxis.documents import Round, load_key, sign_round
    from offaxis.strict_json import canonical_json

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "name": name,
        "study": study,
        "number": number,
        "release": _hash_of(release),
        "opens": opens or now,
        "closes": closes,
        "groups": group or [],
        "keep_days": keep_days,
    }
    round_ = Round.from_bytes(canonical_json(document).encode())
    headers = _signed(sign_round(load_key(key), round_), "application/json")
    answer = ask(
        (url, secret, ca_file), "PUT", f"/v1/rounds/{round_.name}", round_.to_bytes(), headers
    )
    typer.echo(f"round {name} is {plain(str(facts(answer)['state']))}")


def _hash_of(release: str) -> str:
    from offaxis.release import Release

    return Release.load(release).hash if Path(release).is_file() else release


@collector.command("close-round")
def close_round(name: RoundName, secret: Secret, url: Url = URL, ca_file: CaFile = None) -> None:
    """Close a round now, for good."""
    answer = ask((url, secret, ca_file), "POST", f"/v1/rounds/{quoted(name)}/close")
    typer.echo(f"round {name} is {plain(str(facts(answer)['state']))}")


@collector.command()
def means(
    name: RoundName,
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the means of a round with their standard errors; --json has every coordinate."""
    found = facts(ask((url, secret, ca_file), "GET", f"/v1/rounds/{quoted(name)}/means"))
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


@collector.command()
def drift(
    name: RoundName,
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a round's reports fit the public vectors of the release's profile."""
    found = facts(ask((url, secret, ca_file), "GET", f"/v1/rounds/{quoted(name)}/drift"))
    if as_json:
        print_json(found)
        return
    warned = "warning: " if found["warning"] else ""
    typer.echo(plain(f"{warned}{found['sentence']}"))


@collector.command()
def export(
    name: RoundName,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .parquet file to write.")],
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
) -> None:
    """Write a round's reports to a Parquet file: id, group, report."""
    from offaxis.cli.files import check_output
    from offaxis.files import replacing

    check_output(out)
    answer = ask((url, secret, ca_file), "GET", f"/v1/rounds/{quoted(name)}/export")
    with replacing(out) as file:
        file.write(answer.body)
    typer.echo(f"wrote {out}")


@collector.command()
def purge(name: RoundName, secret: Secret, url: Url = URL, ca_file: CaFile = None) -> None:
    """Delete all reports of a closed round; its means stay."""
    found = facts(ask((url, secret, ca_file), "DELETE", f"/v1/rounds/{quoted(name)}/reports"))
    typer.echo(f"deleted {counted(int(found['deleted']), 'report')}")
