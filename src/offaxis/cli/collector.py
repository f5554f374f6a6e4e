"""What the commands of a collector share: its address, a token, and asking."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from offaxis.cli.inputs import check_input, check_new, check_output, read_array
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Force,
    Group,
    Misused,
    ReleaseFile,
    add,
    example,
    reading_options,
)
from offaxis.cli.terminal import counted, fields, one_line, plain, print_json, screen
from offaxis.client.transport import Answer, Transport
from offaxis.errors import InvalidInput, MissingExtra, Unreachable, installing
from offaxis.files import replacing
from offaxis.formats.documents import (
    Round,
    load_key,
    new_key,
    public_key,
    save_key,
    sign_release,
    sign_round,
)
from offaxis.formats.release_file import to_bytes
from offaxis.formats.strict_json import canonical_json
from offaxis.release import Release

_LARGEST: Final = 1 << 34
_SLOW: Final = 60.0
"""Times the usual patience, for what may be large."""

Url = Annotated[
    str,
    typer.Option(
        "--collector", metavar="URL", envvar="OFFAXIS_COLLECTOR", help="Address of the collector."
    ),
]
Secret = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="OFFAXIS_TOKEN",
        help="A token of the collector: an admin's, or an analyst's to read.",
    ),
]
CaFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificates to trust, not the system's.")
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The round's name.")]
URL: Final = "http://127.0.0.1:8470"


def ask(
    where: tuple[str, str, Path | None],
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask the collector; anything but success is an error that says what it said."""
    url, secret, ca_file = where
    transport = Transport(url, token=secret, ca_file=ca_file)
    try:
        answer = transport.ask(
            method, path, body=body, headers=headers, largest=_LARGEST, patience=_SLOW
        )
    except Unreachable as error:
        raise Unreachable(f"{error}; is it at {url}? Set --collector or start it") from None
    if not 200 <= answer.status < 300:
        raise InvalidInput(f"the collector refused: {answer.words}")
    return answer


def facts(answer: Answer) -> dict[str, Any]:
    """Return the JSON of an answer."""
    found: dict[str, Any] = json.loads(answer.body)
    return found


def quoted(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")


# ----------------------------------------------------------------------------
# Releases and rounds at a collector: publish, attach, open and close.

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
    from offaxis.evaluation.profiles import profile_of

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
    return Release.load(release).hash if Path(release).is_file() else release


@example("offaxis collector close-round energy-7")
def close_round(name: RoundName, secret: Secret, url: Url = URL, ca_file: CaFile = None) -> None:
    """Close a round now, for good."""
    answer = ask((url, secret, ca_file), "POST", f"/v1/rounds/{quoted(name)}/close")
    typer.echo(f"round {name} is {plain(str(facts(answer)['state']))}")


# ----------------------------------------------------------------------------
# What a collector has of a round: means, drift, and the reports themselves.


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
    typer.echo(plain(f"{warned}{found['summary']}"))


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


# ----------------------------------------------------------------------------
# ``offaxis collector token``: make, list and revoke tokens.

token: Final = typer.Typer(cls=Group, no_args_is_help=True, help="Make, list and revoke tokens.")


@example("offaxis collector token create anna --role analyst --out anna.token")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; logs name it.")],
    role: Annotated[
        Literal["device", "analyst", "admin"],
        typer.Option(help="Sends reports; reads means; or publishes, too."),
    ],
    secret: Secret,
    url: Url = URL,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it to a file of your own instead of showing it."),
    ] = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once, or written to a file that only you can read."""
    if out is not None:
        check_output(out)
    body = json.dumps({"name": name, "role": role}).encode()
    headers = {"Content-Type": "application/json"}
    made = facts(ask((url, secret, ca_file), "POST", "/v1/tokens", body, headers))
    if out is not None:
        with replacing(out) as file:
            Path(file.name).chmod(0o600)
            file.write(made.pop("token").encode() + b"\n")
    if as_json:
        print_json(made)
    elif out is not None:
        typer.echo(f"token {made['id']} is in {out}")
    else:
        typer.echo(plain(f"token {made['id']} (shown once): {made['token']}"))


@example("offaxis collector token list")
def list_tokens(
    secret: Secret, url: Url = URL, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """List tokens by number, name and role."""
    found = facts(ask((url, secret, ca_file), "GET", "/v1/tokens"))
    if as_json:
        print_json(found)
        return
    for one in found["tokens"]:
        state = "revoked" if one["revoked_at"] else "valid"
        typer.echo(plain(f"{one['id']}  {one['role']}  {state}  {one_line(str(one['name']))}"))


@example("offaxis collector token revoke 2")
def revoke_token(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As listed.")],
    secret: Secret,
    url: Url = URL,
    ca_file: CaFile = None,
) -> None:
    """Make a token invalid, for good."""
    ask((url, secret, ca_file), "DELETE", f"/v1/tokens/{number}")
    typer.echo(f"token {number} is revoked")


add(token, create_token, "create")
add(token, list_tokens, "list")
add(token, revoke_token, "revoke")


# ----------------------------------------------------------------------------
# ``offaxis collector``: publish, open rounds, look at means; over HTTP, with a token.
#
# The address and the token come from options or from OFFAXIS_COLLECTOR and OFFAXIS_TOKEN; a token
# on a command line can be read by others on the machine.

collector: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Publish releases and rounds at a collector, and read its means.",
)
for _command in (publish, attach, open_round, close_round, means, drift, export, purge):
    add(collector, _command)
collector.add_typer(token, name="token")


# ----------------------------------------------------------------------------
# ``offaxis keys``: the publisher's key. It stays with the publisher, never at the collector.

keys: Final = typer.Typer(
    cls=Group, no_args_is_help=True, help="Make a publisher's key, show its public half."
)


@example("offaxis keys new publisher.key")
def new(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A file for the private key.")],
    as_json: AsJson = False,
) -> None:
    """Make a key and print its public half, which devices pin. One that is there stays."""
    check_output(out)
    if out.exists():
        raise InvalidInput(f"{out} is there already; a key that is lost cannot be made again")
    key = new_key()
    save_key(key, out)
    _tell(key, out, as_json=as_json)


@example("offaxis keys show publisher.key")
def show(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key.")],
    as_json: AsJson = False,
) -> None:
    """Print the public half of a key."""
    _tell(load_key(path), path, as_json=as_json)


def _tell(key: Ed25519PrivateKey, path: Path, *, as_json: bool) -> None:
    public = key.public_key().public_bytes_raw().hex()
    if as_json:
        print_json({"key": str(path), "public_key": public})
    else:
        typer.echo(f"public key: {public}")


add(keys, new)
add(keys, show)


# ----------------------------------------------------------------------------
# ``offaxis serve``: run a collector.


@example("offaxis serve --database sqlite:///collector.db")
def serve(
    database: Annotated[
        str,
        typer.Option(
            metavar="URL", help="sqlite:///FILE, or postgresql://… for several processes."
        ),
    ] = "sqlite:///collector.db",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Public key: refuse releases and rounds it has not signed."
        ),
    ] = None,
    device_rate: Annotated[
        float, typer.Option(min=1, help="Reports a second that one device's token may send.")
    ] = 100_000,
    reader_rate: Annotated[
        float, typer.Option(min=1, help="Requests a second of any other token.")
    ] = 50,
) -> None:
    """Collect reports: publish releases, open rounds, take uploads, answer with means.

    The first start prints an admin's token, once. Logs go to standard error as JSON lines.
    """
    try:
        from offaxis.collector.app import serve as run
        from offaxis.collector.service import Settings
    except ModuleNotFoundError as error:
        raise MissingExtra(f"a collector needs {error.name}: {installing('collector')}") from None

    if publisher is not None:
        with reading_options():
            public_key(publisher)
    if tls_cert is None and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(
            "warning: without TLS tokens travel in the clear; give --tls-cert and --tls-key, or "
            "put a proxy that ends TLS before it",
            err=True,
        )
    settings = Settings(
        database=database, publisher=publisher, device_rate=device_rate, reader_rate=reader_rate
    )
    run(settings, host, port, tls_cert, tls_key, _show_token)


def _show_token(token: str) -> None:
    typer.echo(f"admin token (shown once): {token}")
