"""Requests to a collector: TLS and addresses are verified, and nothing is sent elsewhere."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from offaxis.client.transport import Transport
from offaxis.errors import InvalidInput, Unreachable
from tests.client.collectors import Collector


def certificate(folder, host: str):
    """Write a key and a self-signed certificate for a host, and return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{host}.crt", folder / f"{host}.key"
    files[0].write_bytes(built.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@pytest.fixture
def secure(collector, tmp_path):
    """Return a function that starts TLS for a host and returns the address and certificate."""

    def start(host: str = "127.0.0.1"):
        crt, key = certificate(tmp_path, host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        collector._server.socket = context.wrap_socket(collector._server.socket, server_side=True)
        # These tests refuse handshakes on purpose; do not print the errors.
        collector._server.handle_error = lambda *_: None
        return collector.url.replace("http:", "https:"), crt

    return start


def test_a_trusted_certificate_is_accepted(collector, secure):
    url, crt = secure()
    assert Transport(url, ca_file=crt, token="t").request("GET", "/v1/rounds").status == 200
    assert collector.seen[0].headers["authorization"] == "Bearer t"


def test_an_untrusted_certificate_receives_nothing(collector, secure):
    url, _ = secure()
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        Transport(url, token="t").request("GET", "/v1/rounds")
    assert collector.seen == []


def test_a_certificate_of_another_host_receives_nothing(collector, secure):
    url, crt = secure("collect.example")
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        Transport(url, ca_file=crt).request("GET", "/v1/rounds")
    assert collector.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "http://collect.example",
        "http://127.0.0.1.collect.example",
        "ftp://127.0.0.1",
        "collect.example",
        "https://",
        "https://me:secret@collect.example",
        "https://collect.example/?a=b",
        "https://collect.example/#a",
        "https://collect.example:port",
        "https://collect.example/a b",
        "https://collect.example/\r\nX: y",
    ],
)
def test_invalid_addresses_are_rejected(url):
    with pytest.raises(InvalidInput):
        Transport(url)


def test_unreadable_certificates_are_rejected(tmp_path):
    (tmp_path / "empty.crt").write_text("nothing")
    for name in ("empty.crt", "missing.crt"):
        with pytest.raises(InvalidInput, match="cannot read certificates"):
            Transport("https://collect.example", ca_file=tmp_path / name)


def test_the_address_may_have_a_path(collector):
    Transport(collector.url + "/behind/a/proxy/").request("GET", "/v1/rounds")
    assert collector.seen[0].path == "/behind/a/proxy/v1/rounds"


def test_a_closed_port_is_unreachable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unreachable):
        Transport(f"http://127.0.0.1:{port}").request("GET", "/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_silent_server_times_out(scheme):
    """Also during the handshake: the limit is on the whole exchange, not on each read."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="took over"):
            Transport(url, patience=0.2).request("GET", "/")


def test_a_slow_handshake_is_cut_off():
    """Bytes keep coming, so no single read is ever too slow."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            link, _ = server.accept()
            with link:
                try:
                    link.sendall(b"\x16\x03\x03\x40\x00")
                    while True:
                        link.sendall(b"\x02")
                        time.sleep(0.02)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(Unreachable):
            Transport(f"https://127.0.0.1:{server.getsockname()[1]}", patience=0.3).request(
                "GET", "/"
            )
        thread.join()


def test_the_size_of_a_response_is_bounded(collector: Collector):
    collector.scripts["GET", "/"] = lambda handler: handler.answer(200, b"x" * 1000)
    transport = Transport(collector.url)
    assert len(transport.request("GET", "/", largest=1000).body) == 1000
    with pytest.raises(Unreachable, match="larger than 999"):
        transport.request("GET", "/", largest=999)


def test_proxies_of_the_environment_are_ignored(collector, monkeypatch):
    """A proxy configured for other programs does not receive the device's reports."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert Transport(collector.url).request("GET", "/v1/rounds").status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(collector, status):
    collector.scripts["PUT", "/a"] = lambda handler: handler.answer(status, Location="/b")
    with pytest.raises(Unreachable, match="the collector redirects"):
        Transport(collector.url).request("PUT", "/a", body=b"x")
    assert [request.path for request in collector.seen] == ["/a"]
