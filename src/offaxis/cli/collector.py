"""``offaxis collector``: manage a collector.

The address and the token come from options, or from OFFAXIS_COLLECTOR and OFFAXIS_TOKEN. Other
users of the machine can read a token on a command line.
"""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote

import typer

from offaxis.cli.inputs import check_input, check_new, check_output, read_array
from offaxis.cli.options import (
    ARRAY,
    AsJson,
    Force,
    Group,
    ReleaseFile,
    UsageError,
    add,
    example,
)
from offaxis.cli.terminal import (
    buffered_console,
    field_table,
    one_line,
    pluralize,
    print_json,
    printable,
)
from offaxis.client.transport import Response, Transport
from offaxis.errors import InvalidInput, Unreachable
from offaxis.files import replacing
from offaxis.formats.documents import (
    Round,
    load_key,
    sign_release,
    sign_round,
)
from offaxis.formats.release_file import to_bytes
from offaxis.formats.strict_json import canonical_json, shown
from offaxis.release import Release

# ---- Requests to a collector

_MAX_RESPONSE: Final = 1 << 34
_PATIENCE: Final = 60.0
"""Multiple of the usual time limit, since responses may be large."""
_LONGEST: Final = 400
"""The most characters of a collector's message, which ends with what to do."""

DEFAULT_URL: Final = "http://127.0.0.1:8470"
Url = Annotated[
    str,
    typer.Option(
        "--collector", metavar="URL", envvar="OFFAXIS_COLLECTOR", help="Address of the collector."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="OFFAXIS_TOKEN",
        help="A token of the collector: an admin's, or an analyst's for reading.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificates to trust instead of the system's."),
]
RoundName = Annotated[str, typer.Argument(metavar="ROUND", help="The name of the round.")]


class Connection(NamedTuple):
    """The address of a collector and how to authenticate."""

    url: str
    token: str
    ca_file: Path | None


def _request(
    connection: Connection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Send one request; a response without success is an error with the collector's message."""
    url, token, ca_file = connection
    transport = Transport(url, token=token, ca_file=ca_file)
    try:
        response = transport.request(
            method, path, body=body, headers=headers, largest=_MAX_RESPONSE, patience=_PATIENCE
        )
    except Unreachable as error:
        raise Unreachable(f"{error}; is it at {url}? Set --collector or start it") from None
    if not 200 <= response.status < 300:
        raise InvalidInput(f"the collector refused: {_refusal(response)}")
    return response


def _refusal(response: Response) -> str:
    """Return the status and the whole problem of a response, printable on one line."""
    try:
        problem = json.loads(response.body)
    except (ValueError, RecursionError):
        return response.message
    detail = problem.get("detail") if isinstance(problem, dict) else None
    if not isinstance(detail, str) or not detail:
        return response.message
    return f"{response.status}, {shown(detail, _LONGEST)}"


def _json_of(response: Response) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(response.body)
    return facts


def _round_path(name: str) -> str:
    return f"/v1/rounds/{quote(name, safe='')}"


_JSON_HEADERS: Final = {"Content-Type": "application/json"}


def _signature_headers(signature: bytes, media_type: str) -> dict[str, str]:
    encoded = base64.b64encode(signature).decode()
    return {"Offaxis-Signature": encoded, "Content-Type": media_type}


# ---- Releases and rounds: publish, attach, open and close

KeyFile = Annotated[
    Path, typer.Option("--key", metavar="FILE", help="The publisher's key (offaxis keys new).")
]


@example("offaxis collector publish my.release --key publisher.key --public public.npy")
def publish(
    release: ReleaseFile,
    key: KeyFile,
    token: Token,
    url: Url = DEFAULT_URL,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Public vectors, for drift warnings (stored as a profile): {ARRAY}.",
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Sign a release and publish it; it cannot be changed or withdrawn."""
    loaded, signer = Release.load(release), load_key(key)
    profile = None if public is None else _make_profile(loaded, public)
    connection = Connection(url, token, ca_file)
    path = f"/v1/releases/{loaded.hash}"
    signature = sign_release(signer, loaded.hash)
    headers = _signature_headers(signature, "application/octet-stream")
    response = _request(connection, "PUT", path, to_bytes(loaded), headers)
    if profile is not None:
        _request(connection, "PUT", f"{path}/profile", profile, _JSON_HEADERS)
    outcome = "published" if response.status == 201 else "already published:"
    typer.echo(f"{outcome} {loaded.hash}{'' if profile is None else ', with its profile'}")


def _make_profile(release: Release, public: str) -> bytes:
    from offaxis.evaluation.profiles import profile_of

    if release.asked:
        raise InvalidInput(
            "a profile says what reports of public vectors look like, and reports of this release "
            "depend on private answers, too: leave out --public"
        )
    return profile_of(release, read_array(public)).to_json().encode()


_SUPPORT_BYTES: Final = 60 << 20
"""Bytes of public vectors to send; the collector accepts 64 MiB."""


@example(
    "offaxis collector attach my.release --curve curve.json --audit audit.json",
    "offaxis collector attach my.release --support public.npy --question colour=head.safetensors",
)
def attach(
    release: Annotated[
        str, typer.Argument(metavar="RELEASE", help="A published release: its file, or its hash.")
    ],
    token: Token,
    url: Url = DEFAULT_URL,
    curve: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The output of offaxis recommend --json for a range of budgets.",
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The output of offaxis audit --json for this release.",
        ),
    ] = None,
    support: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Public vectors, to ask what the people of a round are like and whether they "
            f"changed: {ARRAY}. More than 5,000 are thinned out.",
        ),
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A model to ask about: a weights file of offaxis.geometry.Layers.save. May be "
            "given several times.",
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Attach facts, public vectors and questions to a published release, for the dashboard."""
    files = {kind: path for kind, path in (("curve", curve), ("audit", audit)) if path is not None}
    questions = dict(map(_named_file, question or []))
    if not files and support is None and not questions:
        raise UsageError("Missing option '--curve', '--audit', '--support' or '--question'")
    for path in (*files.values(), *questions.values()):
        check_input(path)
    # kind, path, body, headers; everything is read before anything is sent
    binary = {"Content-Type": "application/octet-stream"}
    bodies = [
        (kind, f"facts/{kind}", path.read_bytes(), _JSON_HEADERS) for kind, path in files.items()
    ]
    if support is not None:
        bodies.append(("public vectors", "support", _support_body(support), binary))
    bodies += [
        (f"question {name}", f"questions/{quote(name, safe='')}", path.read_bytes(), binary)
        for name, path in questions.items()
    ]
    connection = Connection(url, token, ca_file)
    release_path = f"/v1/releases/{quote(_hash_of(release), safe='')}"
    for _, part, body, headers in bodies:
        _request(connection, "PUT", f"{release_path}/{part}", body, headers)
    typer.echo(f"attached {' and '.join(kind for kind, *_ in bodies)}")


def _named_file(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise UsageError(f"--question must be NAME=FILE, got {text!r:.80}")
    return name, Path(file)


def _support_body(source: str) -> bytes:
    """Return public vectors as a .npy file, thinned out evenly if they are many or large."""
    import numpy as np

    from offaxis.geometry.public import evenly
    from offaxis.learning.likelihoods import MOST_VECTORS

    array = read_array(source)
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise InvalidInput(f"{source} does not hold vectors, one per row")
    wide = array.shape[1] * 8 * min(MOST_VECTORS, len(array)) > _SUPPORT_BYTES
    kind = "<f4" if wide else "<f8"
    most = _SUPPORT_BYTES // (array.shape[1] * np.dtype(kind).itemsize)
    vectors = evenly(array, min(MOST_VECTORS, most))
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(vectors, dtype=kind), allow_pickle=False)
    return buffer.getvalue()


@example("offaxis collector questions my.release")
def list_questions(
    release: Annotated[
        str, typer.Argument(metavar="RELEASE", help="A published release: its file, or its hash.")
    ],
    token: Token,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List what can be asked about the people of a release's rounds."""
    path = f"/v1/releases/{quote(_hash_of(release), safe='')}/questions"
    facts = _json_of(_request(Connection(url, token, ca_file), "GET", path))
    if as_json:
        print_json(facts)
        return
    for row in facts["questions"]:
        kind = "a number" if row["outputs"] == 1 else f"{row['outputs']} numbers"
        if row["answers"] is not None:
            kind = f"one of {len(row['answers'])} answers"
        typer.echo(printable(f"{one_line(str(row['name']))}: {kind}"))
    if facts["reason"] or (facts["support"] is None and not facts["answers_alone"]):
        reason = facts["reason"] or "no public vectors are attached (collector attach --support)"
        typer.echo(printable(f"nothing can be asked yet: {reason}"))


@example(
    "offaxis collector ask energy-7 colour",
    "offaxis collector ask energy-7 vectors --output 3",
)
def ask(
    name: RoundName,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", help="The name of a question (offaxis collector questions)."
        ),
    ],
    token: Token,
    output: Annotated[
        int | None,
        typer.Option(min=0, help="Which number of the question, such as a coordinate of vectors."),
    ] = None,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask what the people of a round would answer: shares, or the distribution of a number."""
    path = f"{_round_path(name)}/population?question={quote(question, safe='')}"
    path += "" if output is None else f"&output={output}"
    facts = _json_of(_request(Connection(url, token, ca_file), "GET", path))
    if as_json:
        print_json(facts)
        return
    rows = [(row["name"], _share_text(row)) for row in facts["shares"] or ()]
    if facts["mean"]:
        rows.append(("mean", _number_text(facts["mean"])))
    rows += [(f"quantile {row['q']:g}", _number_text(row)) for row in facts["quantiles"] or ()]
    if facts["histogram"]:
        edges = facts["histogram"]["edges"]
        names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
        rows += list(zip(names, map(_share_text, facts["histogram"]["bins"]), strict=True))
    with buffered_console() as console:
        console.print(field_table([(one_line(str(label)), text) for label, text in rows]))
    for line in (*facts["missing"], facts["summary"]):
        typer.echo(printable(line))


def _share_text(row: dict[str, Any]) -> str:
    return f"{row['estimate']:.1%} (95 % interval {row['low']:.1%} to {row['high']:.1%})"


def _number_text(row: dict[str, Any]) -> str:
    return f"{row['estimate']:.4g} (95 % interval {row['low']:.4g} to {row['high']:.4g})"


@example(
    "offaxis collector open-round energy-7 --release my.release --study energy --number "
    "7 --closes 2030-12-01T00:00:00Z --key publisher.key",
)
def open_round(
    name: RoundName,
    release: Annotated[
        str, typer.Option(metavar="RELEASE", help="A published release: its file, or its hash.")
    ],
    closes: Annotated[
        str, typer.Option(metavar="TIME", help="End of the round, such as 2026-12-01T00:00:00Z.")
    ],
    key: KeyFile,
    token: Token,
    study: Annotated[str, typer.Option(help="The study that the round belongs to.")],
    number: Annotated[
        int, typer.Option(min=0, help="Number in the study, above that of the previous round.")
    ],
    opens: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the round; by default now.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A public group label; may be given several times.")
    ] = None,
    keep_days: Annotated[int, typer.Option(help="Days until reports are deleted.")] = 30,
    url: Url = DEFAULT_URL,
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
    headers = _signature_headers(sign_round(load_key(key), round_), "application/json")
    connection = Connection(url, token, ca_file)
    path = f"/v1/rounds/{round_.name}"
    _print_state(name, _request(connection, "PUT", path, round_.to_bytes(), headers))


def _hash_of(release: str) -> str:
    return Release.load(release).hash if Path(release).is_file() else release


def _print_state(name: str, response: Response) -> None:
    typer.echo(f"round {name} is {printable(str(_json_of(response)['state']))}")


@example("offaxis collector close-round energy-7")
def close_round(
    name: RoundName, token: Token, url: Url = DEFAULT_URL, ca_file: CaFile = None
) -> None:
    """Close a round now; it cannot be opened again."""
    path = f"{_round_path(name)}/close"
    _print_state(name, _request(Connection(url, token, ca_file), "POST", path))


# ---- Results of a round: means, drift, and the reports themselves


@example("offaxis collector means energy-7")
def means(
    name: RoundName,
    token: Token,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the means of a round and their standard errors; --json lists every coordinate."""
    path = f"{_round_path(name)}/means"
    facts = _json_of(_request(Connection(url, token, ca_file), "GET", path))
    if as_json:
        print_json(facts)
        return
    rows = [("reports", f"{facts['reports']:,}")]
    for mean in facts["means"]:
        label = "everybody" if mean["group"] is None else one_line(str(mean["group"]))
        errors = mean["standard_error"] or mean["shares_error"]
        largest = "unknown from 1 report" if errors is None else f"{max(errors):.4g}"
        reports = pluralize(mean["reports"], "report")
        rows.append((label, f"{reports}, largest standard error {largest}"))
    with buffered_console() as console:
        console.print(field_table(rows))


@example("offaxis collector drift energy-7")
def drift(
    name: RoundName,
    token: Token,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Test whether a round's reports fit the public vectors, and whether the crowd has changed."""
    path = f"{_round_path(name)}/drift"
    facts = _json_of(_request(Connection(url, token, ca_file), "GET", path))
    if as_json:
        print_json(facts)
        return
    prefix = "warning: " if facts["warning"] else ""
    typer.echo(printable(f"{prefix}{facts['summary']}"))


@example("offaxis collector export energy-7 --out energy-7.parquet")
def export(
    name: RoundName,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .parquet file to write.")],
    token: Token,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
    force: Force = False,
) -> None:
    """Write a round's reports to a Parquet file with the columns id, group and report."""
    if out.suffix.lower() != ".parquet":
        raise UsageError(f"--out must be a .parquet file, got {out}")
    check_output(out)
    check_new(out, "a purged round cannot be exported again", force=force)
    response = _request(Connection(url, token, ca_file), "GET", f"{_round_path(name)}/export")
    with replacing(out) as file:
        file.write(response.body)
    typer.echo(f"wrote {out}")


@example("offaxis collector purge energy-7")
def purge(name: RoundName, token: Token, url: Url = DEFAULT_URL, ca_file: CaFile = None) -> None:
    """Delete all reports of a closed round; its means are kept."""
    path = f"{_round_path(name)}/reports"
    facts = _json_of(_request(Connection(url, token, ca_file), "DELETE", path))
    typer.echo(f"deleted {pluralize(int(facts['deleted']), 'report')}")


# ---- ``offaxis collector token``


@example("offaxis collector token create anna --role analyst --out anna.token")
def create_token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The owner of the token; it appears in logs.")
    ],
    role: Annotated[
        Literal["device", "analyst", "admin"],
        typer.Option(
            help="A device sends reports, an analyst reads means, an admin may also publish."
        ),
    ],
    token: Token,
    url: Url = DEFAULT_URL,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the token to this private file instead of showing it."
        ),
    ] = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a token; it is shown only once, or written to a file that only you can read."""
    if out is not None:
        check_output(out)
    body = json.dumps({"name": name, "role": role}).encode()
    connection = Connection(url, token, ca_file)
    created = _json_of(_request(connection, "POST", "/v1/tokens", body, _JSON_HEADERS))
    if out is not None:
        with replacing(out) as file:
            Path(file.name).chmod(0o600)
            file.write(created.pop("token").encode() + b"\n")
    if as_json:
        print_json(created)
    elif out is not None:
        typer.echo(f"token {created['id']} is in {out}")
    else:
        typer.echo(printable(f"token {created['id']} (shown once): {created['token']}"))


@example("offaxis collector token list")
def list_tokens(
    token: Token, url: Url = DEFAULT_URL, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """List tokens with their number, role, state and name."""
    facts = _json_of(_request(Connection(url, token, ca_file), "GET", "/v1/tokens"))
    if as_json:
        print_json(facts)
        return
    for row in facts["tokens"]:
        state = "revoked" if row["revoked_at"] else "valid"
        typer.echo(printable(f"{row['id']}  {row['role']}  {state}  {one_line(str(row['name']))}"))


@example("offaxis collector token revoke 2")
def revoke_token(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The number in the list.")],
    token: Token,
    url: Url = DEFAULT_URL,
    ca_file: CaFile = None,
) -> None:
    """Revoke a token permanently."""
    _request(Connection(url, token, ca_file), "DELETE", f"/v1/tokens/{number}")
    typer.echo(f"token {number} is revoked")


token_commands: Final = typer.Typer(
    cls=Group, no_args_is_help=True, help="Create, list and revoke tokens."
)
add(token_commands, create_token, "create")
add(token_commands, list_tokens, "list")
add(token_commands, revoke_token, "revoke")

collector: Final = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Manage a collector: publish releases and rounds, read means, create tokens.",
)
for _command in (publish, attach, open_round, close_round, means, drift, ask, export, purge):
    add(collector, _command)
add(collector, list_questions, "questions")
collector.add_typer(token_commands, name="token")
