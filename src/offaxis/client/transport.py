"""HTTP to one collector, by a device that trusts nothing it answers.

Contract: every exchange ends within its time, however slowly the other side talks, and reads no
more than it was allowed to. TLS is verified; without TLS only the device itself is talked to. No
redirect is followed, so that bytes go to the collector that was named or nowhere.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from offaxis.errors import InvalidInput, Unreachable
from offaxis.formats.strict_json import shown

PATIENCE: Final = 60.0
"""Seconds for one exchange, from the first packet to the last byte."""
SMALL: Final = 1 << 20
"""Bytes of an answer that is no release."""

_PIECE: Final = 1 << 16
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_TOKEN: Final = re.compile(r"[!-~]{1,500}")


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers (small letters) and body, all untrusted."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait, if the answer says so in either form of RFC 9110."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def problem_type(self) -> str:
        """The last part of a problem's type (RFC 9457), or nothing."""
        return re.split("[/:#]", self._problem("type"))[-1]

    @property
    def words(self) -> str:
        """What may be shown of an answer that was not hoped for: one short harmless line."""
        said = self._problem("detail") or self._problem("title")
        return f"{self.status}, {shown(said)}" if said else str(self.status)

    def _problem(self, key: str) -> str:
        if "problem+json" not in self.headers.get("content-type", ""):
            return ""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        value = found.get(key) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""


class Transport:
    """Asks one collector.

    Parameters
    ----------
    url : str
        ``https://host[:port][/path]``; ``http`` for the device itself only.
    token : str, optional
        Sent with every request.
    ca_file : str or Path, optional
        Certificates to trust instead of the system's.
    patience : float
        Seconds for one exchange.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise InvalidInput(f"{shown(url)} is no address of a collector: {error}") from None
        plain = parts.scheme == "http" and self._host in _LOCAL
        bare = not (parts.username or parts.password or parts.query or parts.fragment)
        if not (plain or parts.scheme == "https") or not self._host or not bare:
            raise InvalidInput(
                f"a collector's address is https://host[:port][/path], or http for this machine "
                f"itself, got {shown(url)}"
            )
        if not re.fullmatch(r"[!-~]*", url):
            raise InvalidInput(f"{shown(url)} is no address: it has blanks or letters to escape")
        if token is not None and not _TOKEN.fullmatch(token):
            raise InvalidInput("a token is up to 500 printable ASCII characters without blanks")
        self._path = parts.path.rstrip("/")
        self._token = token
        self._patience = patience
        self._context: ssl.SSLContext | None = None
        if not plain:
            try:
                self._context = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise InvalidInput(f"cannot read certificates from {ca_file}: {error}") from None

    @property
    def lease(self) -> float:
        """Seconds after which an exchange has ended for sure."""
        return 2 * self._patience

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        largest: int = SMALL,
        patience: float = 1.0,
    ) -> Answer:
        """Send one request and read the answer, whatever its status, except redirects.

        Parameters
        ----------
        method, path : str
        body, headers : optional
        largest : int
            Bytes that the answer may have.
        patience : float
            Times the usual one.

        Raises
        ------
        Unreachable
            If there is no whole answer in time, or one too large, or a redirect.
        """
        # No version: what a device runs is nobody's business.
        sent = {"User-Agent": "offaxis", "Connection": "close"}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            with self._connected(self._patience * patience) as connection:
                connection.request(method, self._path + path, body, sent | dict(headers or {}))
                answer = _read(connection.getresponse(), largest)
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, Unreachable):
                raise
            raise Unreachable(f"the collector could not be asked: {shown(str(error))}") from None
        if 300 <= answer.status < 400:
            raise Unreachable(f"the collector sends elsewhere ({answer.status}); not followed")
        return answer

    @contextmanager
    def _connected(self, patience: float) -> Iterator[HTTPConnection]:
        """Open a connection that is cut off when patience ends, whatever is going on then."""
        secure = self._context is not None
        connection = HTTPConnection(self._host, self._port or (443 if secure else 80))
        began = time.monotonic()
        plain = socket.create_connection((connection.host, connection.port), timeout=patience)
        left = patience - (time.monotonic() - began)
        ended = threading.Event()
        try:
            # The handshake comes later, when the clock runs.
            link = plain
            if self._context is not None:
                link = self._context.wrap_socket(
                    plain, server_hostname=self._host, do_handshake_on_connect=False
                )
        except BaseException:
            plain.close()
            raise

        def cut() -> None:
            ended.set()
            # Not SSLSocket's own, which would change it under the reader's feet.
            with suppress(OSError):
                socket.socket.shutdown(link, socket.SHUT_RDWR)

        clock = threading.Timer(max(left, 0.0), cut)
        clock.daemon = True
        clock.start()
        try:
            if isinstance(link, ssl.SSLSocket):
                link.do_handshake()
            connection.sock = link
            yield connection
        except (OSError, HTTPException, ValueError) as error:
            if ended.is_set() or isinstance(error, TimeoutError):
                raise Unreachable(f"the collector took over {patience:g} s to answer") from None
            raise
        finally:
            clock.cancel()
            connection.close()
            link.close()
        if ended.is_set():
            raise Unreachable(f"the collector took over {patience:g} s to answer")


def _read(response: HTTPResponse, largest: int) -> Answer:
    """Read an answer piece by piece, up to the size allowed."""
    with response:
        body = bytearray()
        while piece := response.read(min(_PIECE, largest + 1 - len(body))):
            body += piece
            if len(body) > largest:
                raise Unreachable(f"the collector's answer is larger than {largest} bytes")
        headers = {name.lower(): value for name, value in response.getheaders()}
        promised = headers.get("content-length")
        if promised is not None and promised != str(len(body)):
            raise Unreachable("the collector's answer broke off")
        return Answer(response.status, headers, bytes(body))
