"""The way to a collector: TLS is verified, addresses are what they say, nothing goes elsewhere."""

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
    """Write a key and a certificate of its own for a host, and return both files."""
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
    """A collector that speaks TLS for a host; returns its address and the certificate."""

    def start(host: str = "127.0.0.1"):
        crt, key = certificate(tmp_path, host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        collector._server.socket = context.wrap_socket(collector._server.socket, server_side=True)
        # A refused handshake is what these tests are about, and no news.
        collector._server.handle_error = lambda *_: None
        return collector.url.replace("http:", "https:"), crt

    return start


def test_a_certificate_that_is_trusted(collector, secure):
    url, crt = secure()
    assert Transport(url, ca_file=crt, token="t").ask("GET", "/v1/rounds").status == 200
    assert collector.seen[0].headers["authorization"] == "Bearer t"


def test_a_certificate_that_is_not_trusted_gets_nothing(collector, secure):
    url, _ = secure()
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        Transport(url, token="t").ask("GET", "/v1/rounds")
    assert collector.seen == []


def test_a_certificate_of_another_host_gets_nothing(collector, secure):
    url, crt = secure("collect.example")
    with pytest.raises(Unreachable, match=r"(?i)certificate"):
        Transport(url, ca_file=crt).ask("GET", "/v1/rounds")
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
def test_addresses_that_are_refused(url):
    with pytest.raises(InvalidInput):
        Transport(url)


def test_certificates_that_cannot_be_read(tmp_path):
    (tmp_path / "empty.crt").write_text("nothing")
    for name in ("empty.crt", "missing.crt"):
        with pytest.raises(InvalidInput, match="cannot read certificates"):
            Transport("https://collect.example", ca_file=tmp_path / name)


def test_a_path_before_the_collectors_own(collector):
    Transport(collector.url + "/behind/a/proxy/").ask("GET", "/v1/rounds")
    assert collector.seen[0].path == "/behind/a/proxy/v1/rounds"


def test_nobody_is_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unreachable):
        Transport(f"http://127.0.0.1:{port}").ask("GET", "/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_somebody_who_never_says_a_word_is_left(scheme):
    """Also during the handshake, and without trusting a time a read: the whole is bounded."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="took over"):
            Transport(url, patience=0.2).ask("GET", "/")


def test_a_handshake_that_drips_is_cut_off():
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
            Transport(f"https://127.0.0.1:{server.getsockname()[1]}", patience=0.3).ask("GET", "/")
        thread.join()


def test_the_size_of_an_answer_is_bounded(collector: Collector):
    collector.scripts["GET", "/"] = lambda handler: handler.answer(200, b"x" * 1000)
    transport = Transport(collector.url)
    assert len(transport.ask("GET", "/", largest=1000).body) == 1000
    with pytest.raises(Unreachable, match="larger than 999"):
        transport.ask("GET", "/", largest=999)


def test_settings_of_the_environment_lead_nowhere(collector, monkeypatch):
    """A proxy that some program was told of does not get the device's reports."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert Transport(collector.url).ask("GET", "/v1/rounds").status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nobody_is_followed_elsewhere(collector, status):
    collector.scripts["PUT", "/a"] = lambda handler: handler.answer(status, Location="/b")
    with pytest.raises(Unreachable, match="sends elsewhere"):
        Transport(collector.url).ask("PUT", "/a", body=b"x")
    assert [request.path for request in collector.seen] == ["/a"]
