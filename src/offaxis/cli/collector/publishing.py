"""Releases and rounds at a collector: publish, attach, open and close."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offaxis.cli.collector.asking import URL, CaFile, RoundName, Secret, Url, ask, facts, quoted
from offaxis.cli.examples import example
from offaxis.cli.options import ARRAY, ReleaseFile
from offaxis.cli.showing.terminal import plain
from offaxis.cli.usage import Misused

if TYPE_CHECKING:
    from offaxis.release import Release

KeyFile = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The publisher's key, of offaxis keys new.")
]


def _signed(signature: bytes, media: str) -> dict[str, str]:
    return {"Offaxis-Signature": base64.b64encode(signature).decode(), "Content-Type": media}


@example("offaxis collector publish my.release --key publisher.key --public public.npy")
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
    from offaxis.formats.artifact import to_bytes
    from offaxis.formats.signing import load_key, sign_release
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


@example("offaxis collector attach my.release --curve curve.json --audit audit.json")
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
            help="What offaxis recommend --json printed over a range.",
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What offaxis audit --json printed of this release.",
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Attach facts to a published release for people who look at the dashboard."""
    from offaxis.cli.files import check_input

    found = {kind: path for kind, path in (("curve", curve), ("audit", audit)) if path is not None}
    if not found:
        raise Misused("Missing option '--curve' or '--audit', or both")
    for path in found.values():
        check_input(path)
    bodies = {kind: path.read_bytes() for kind, path in found.items()}
    for kind, body in bodies.items():
        where = f"/v1/releases/{quoted(_hash_of(release))}/facts/{kind}"
        ask((url, secret, ca_file), "PUT", where, body, {"Content-Type": "application/json"})
    typer.echo(f"attached {' and '.join(bodies)}")


def _profile(release: Release, public: str) -> bytes:
    from offaxis.cli.reading.arrays import read_array
    from offaxis.collector.drift import profile_of

    return profile_of(release, read_array(public)).to_json().encode()


@example(
    "offaxis collector open-round energy-7 --release my.release --study energy --number "
    "7 --closes 2030-12-01T00:00:00Z --key publisher.key",
)
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

    from offaxis.formats.documents import Round
    from offaxis.formats.signing import load_key, sign_round
    from offaxis.formats.strict_json import canonical_json

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


@example("offaxis collector close-round energy-7")
def close_round(name: RoundName, secret: Secret, url: Url = URL, ca_file: CaFile = None) -> None:
    """Close a round now, for good."""
    answer = ask((url, secret, ca_file), "POST", f"/v1/rounds/{quoted(name)}/close")
    typer.echo(f"round {name} is {plain(str(facts(answer)['state']))}")
