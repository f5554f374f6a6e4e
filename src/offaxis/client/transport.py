"""HTTP requests to one collector whose responses are not trusted.

Contract: every exchange ends within its time limit, however slowly the other side sends, and reads
at most the allowed number of bytes. TLS is verified; plain HTTP is allowed to this machine only.
Redirects are not followed, so bytes go to the configured collector or nowhere.
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
"""Largest response other than a release or a list, in bytes."""

_CHUNK: Final = 1 << 16
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_TOKEN: Final = re.compile(r"[!-~]{1,500}")


@dataclass(frozen=True)
class Response:
    """An untrusted response: status, headers (names in lower case) and body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait, if the response states it in either form of RFC 9110."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def problem_type(self) -> str:
        """The last part of a problem's type (RFC 9457), or ""."""
        return re.split("[/:#]", self._problem("type"))[-1]

    @property
    def message(self) -> str:
        """Status and problem as one short printable line."""
        problem = self._problem("detail") or self._problem("title")
        return f"{self.status}, {shown(problem)}" if problem else str(self.status)

    def _problem(self, key: str) -> str:
        if "problem+json" not in self.headers.get("content-type", ""):
            return ""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        value = problem.get(key) if isinstance(problem, dict) else None
        return value if isinstance(value, str) else ""


class Transport:
    """Sends requests to one collector.

    Parameters
    ----------
    url : str
        ``https://host[:port][/path]``; ``http`` for this machine only.
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
            raise InvalidInput(f"{shown(url)} is not a valid address: {error}") from None
        plain = parts.scheme == "http" and self._host in _LOCAL
        bare = not (parts.username or parts.password or parts.query or parts.fragment)
        if not (plain or parts.scheme == "https") or not self._host or not bare:
            raise InvalidInput(
                f"a collector's address is https://host[:port][/path], or http for this machine "
                f"only, got {shown(url)}"
            )
        if not re.fullmatch(r"[!-~]*", url):
            raise InvalidInput(
                f"{shown(url)} is not a valid address: it contains characters that must be escaped"
            )
        if token is not None and not _TOKEN.fullmatch(token):
            raise InvalidInput("a token is up to 500 printable ASCII characters without spaces")
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
        """Seconds after which an exchange has certainly ended."""
        return 2 * self._patience

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        largest: int = SMALL,
        patience: float = 1.0,
    ) -> Response:
        """Send one request and return the response, whatever its status, except redirects.

        Parameters
        ----------
        method, path : str
        body, headers : optional
        largest : int
            Largest allowed response, in bytes.
        patience : float
            Multiple of the usual time limit.

        Raises
        ------
        Unreachable
            If no complete response arrives in time, or it is too large, or a redirect.
        """
        # No version in User-Agent: a device does not reveal what it runs.
        common = {"User-Agent": "offaxis", "Connection": "close"}
        if self._token is not None:
            common["Authorization"] = f"Bearer {self._token}"
        try:
            with self._connected(self._patience * patience) as connection:
                connection.request(method, self._path + path, body, common | dict(headers or {}))
                response = _read(connection.getresponse(), largest)
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, Unreachable):
                raise
            raise Unreachable(f"the request to the collector failed: {shown(str(error))}") from None
        if 300 <= response.status < 400:
            raise Unreachable(f"the collector redirects ({response.status}); not followed")
        return response

    @contextmanager
    def _connected(self, patience: float) -> Iterator[HTTPConnection]:
        """Open a connection that is cut off when the time is up, at any stage."""
        secure = self._context is not None
        connection = HTTPConnection(self._host, self._port or (443 if secure else 80))
        began = time.monotonic()
        plain = socket.create_connection((connection.host, connection.port), timeout=patience)
        left = patience - (time.monotonic() - began)
        expired = threading.Event()
        try:
            # The handshake comes later, when the timer is running.
            link = plain
            if self._context is not None:
                link = self._context.wrap_socket(
                    plain, server_hostname=self._host, do_handshake_on_connect=False
                )
        except BaseException:
            plain.close()
            raise

        def cut() -> None:
            expired.set()
            # Not SSLSocket.shutdown, which changes the object while another thread reads from it.
            with suppress(OSError):
                socket.socket.shutdown(link, socket.SHUT_RDWR)

        timer = threading.Timer(max(left, 0.0), cut)
        timer.daemon = True
        timer.start()
        try:
            if isinstance(link, ssl.SSLSocket):
                link.do_handshake()
            connection.sock = link
            yield connection
        except (OSError, HTTPException, ValueError) as error:
            if expired.is_set() or isinstance(error, TimeoutError):
                raise Unreachable(f"the collector took over {patience:g} s to respond") from None
            raise
        finally:
            timer.cancel()
            connection.close()
            link.close()
        if expired.is_set():
            raise Unreachable(f"the collector took over {patience:g} s to respond")


def _read(response: HTTPResponse, largest: int) -> Response:
    """Read a response in chunks, up to the allowed size."""
    with response:
        body = bytearray()
        while chunk := response.read(min(_CHUNK, largest + 1 - len(body))):
            body += chunk
            if len(body) > largest:
                raise Unreachable(f"the collector's response is larger than {largest} bytes")
        headers = {name.lower(): value for name, value in response.getheaders()}
        announced = headers.get("content-length")
        if announced is not None and announced != str(len(body)):
            raise Unreachable("the collector's response is incomplete")
        return Response(response.status, headers, bytes(body))
