"""Whether the coordinator can be reached, and if not exactly why: the name, the line, TLS, or one's own certificate.

gRPC only goes on trying and says nothing, so we try the same ourselves, step by step, with the standard library. Takes
an address and three files; costs one connection of at most a few seconds.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.text import plain_line

Files = tuple[Path, Path, Path]
"""The consortium's authority, one's own certificate, one's own key."""
State = Literal["ok", "look", "wrong"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client of gRPC begins: the other side answers, or tells what it has against our certificate."""
EXPIRED, NOT_YET, WRONG_HOST, WRONG_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers for what is wrong with a certificate."""
SERVER_NAME = "coordinator's name"
AGAINST_US = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "DECRYPT_ERROR", "ACCESS_DENIED")


class Diagnosis(NamedTuple):
    """One thing that was looked at: fine, worth a look, or wrong with a remedy."""

    name: str
    state: State
    what: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.what}. Fix: {self.remedy}." if self.remedy else f"{self.what}."


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def diagnose(address: str, files: Files, *, within: float = 5.0, server: str = "") -> Diagnosis:
    """The first thing that is in the way, or that nothing is."""
    *_, last = diagnose_steps(address, files, within=within, server=server)
    return last


def diagnose_steps(address: str, files: Files, *, within: float = 5.0, server: str = "") -> Iterator[Diagnosis]:
    """Name, line and TLS, one after the other, up to the first that fails; `server` is whom we expect there."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        remedy = "check the spelling of the coordinator's address, or ask the network administrator"
        yield Diagnosis("name", "wrong", f"the host name '{host}' could not be resolved", remedy)
        return
    yield Diagnosis("name", "ok", f"'{host}' is {found[0][4][0]}")
    try:
        line = socket.create_connection((host, port), within)
    except OSError as error:
        yield connection_problem(address, error, within)
        return
    with line:
        yield Diagnosis("connection", "ok", f"connected to {address}")
        yield handshake(line, host, files, server)


def connection_problem(address: str, error: OSError, within: float) -> Diagnosis:
    if isinstance(error, ConnectionRefusedError):
        what = f"nothing listens at {address} (the connection was refused)"
        remedy = (
            "check that the coordinator is running and the port is right; a firewall may also refuse the connection"
        )
    elif isinstance(error, TimeoutError):
        what = f"{address} did not answer within {within:.0f} s; most likely a firewall drops the connection"
        remedy = f"have the firewall allow outgoing connections to {address}, and incoming ones at the coordinator"
    else:
        what = f"{address} cannot be reached ({error.strerror or error})"
        remedy = "check that this machine is on the network, or ask the network administrator"
    return Diagnosis("connection", "wrong", what, remedy)


def refuse_other_server(address: str, files: Files, server: str, *, within: float = 5.0) -> None:
    """Refuse a coordinator of another name, which TLS itself lets pass; one that cannot be reached is not judged."""
    found = diagnose(address, files, within=within, server=server)
    if found.state == "wrong" and found.name == SERVER_NAME:
        raise Refusal(found.what, where=address, remedy=found.remedy)


def handshake(line: socket.socket, host: str, files: Files, server: str = "") -> Diagnosis:
    """TLS as gRPC would do it, up to the first word of the other side."""
    until, name = "", ""
    try:
        context = client_context(files)
        with context.wrap_socket(line, server_hostname=host) as secure:
            shown: Any = secure.getpeercert() or {}
            until = str(shown.get("notAfter", ""))
            name = dict(pair for part in shown.get("subject", ()) for pair in part).get("commonName", "")
            secure.sendall(PREFACE)
            said = secure.recv(1)
    except Refusal as refusal:
        return Diagnosis("tls", "wrong", refusal.what, refusal.remedy)
    except ssl.SSLCertVerificationError as error:
        return Diagnosis("tls", "wrong", *server_certificate_problem(error, host))
    except ssl.SSLError as error:
        return Diagnosis("tls", "wrong", *(NOT_ACCEPTED if until else handshake_problem(error)))
    except OSError:
        said = b""
    if not said:
        return Diagnosis("tls", "wrong", *(NOT_ACCEPTED if until else CUT))
    if server and name != server:
        what = f"the coordinator's certificate is for '{plain_line(name)}', but this party expects '{server}'"
        remedy = "ask the coordinator for its name, and correct server_name in the .toml file of this folder"
        return Diagnosis(SERVER_NAME, "wrong", what, remedy)
    return Diagnosis("tls", "ok", f"TLS works: both certificates are accepted, the coordinator's until {until}")


def client_context(files: Files) -> ssl.SSLContext:
    """As gRPC has it: the consortium's authority only, our certificate, HTTP/2."""
    authority, certificate, key = files
    try:
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(str(certificate), str(key))
    except FileNotFoundError:
        missing = next((path for path in files if not path.exists()), certificate)
        raise Refusal(f"there is no {missing}", remedy="ask the coordinator to sign the request, then join") from None
    except (ssl.SSLError, OSError) as error:
        raise Refusal(
            f"the certificate and the key do not work together ({error.strerror or error})",
            remedy="ask the coordinator to sign a new request, then join again",
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


CUT = (
    "the connection was closed during the TLS handshake",
    "check the coordinator's host and port, and that no proxy or firewall in between inspects TLS",
)
NOT_ACCEPTED = (
    # gRPC gives no reason; but what is on the other side has proved to be the coordinator.
    "the coordinator rejected this site's certificate: it sent its own and then closed the connection",
    "check that this coordinator signed the certificate and that it has not expired, also by the coordinator's clock; "
    "if it has, send a new request",
)


def server_certificate_problem(error: ssl.SSLCertVerificationError, host: str) -> tuple[str, str]:
    today = f"{clock.now():%Y-%m-%d %H:%M} UTC"
    if error.verify_code == EXPIRED:
        return (
            f"the coordinator's certificate has expired by this machine's clock ({today})",
            "correct the clock if it is wrong, otherwise ask the coordinator to renew its certificate",
        )
    if error.verify_code == NOT_YET:
        return (
            f"the coordinator's certificate is not valid yet by this machine's clock ({today})",
            "correct this machine's clock",
        )
    if error.verify_code in (WRONG_HOST, WRONG_ADDRESS):
        return (
            f"the coordinator's certificate is not for the name '{host}'",
            "use one of the names in its certificate, or ask the coordinator to add this one to its hosts",
        )
    return (
        f"the coordinator's certificate was not signed by this consortium's authority ({error.verify_message})",
        "check the address, and that authority.pem came from this coordinator; a proxy that inspects TLS has the "
        "same effect",
    )


def handshake_problem(error: ssl.SSLError) -> tuple[str, str]:
    reason = str(error.reason or error)
    if "WRONG_VERSION" in reason or "UNKNOWN_PROTOCOL" in reason or "HTTP_REQUEST" in reason:
        return "the server at this address does not use TLS", "check the coordinator's host and port"
    if any(word in reason for word in AGAINST_US):
        return NOT_ACCEPTED
    if "EOF" in reason:
        return CUT
    return (f"TLS failed ({reason.replace('_', ' ').lower()})", CUT[1])


def check_free(address: str) -> None:
    """Refuse an address at which nothing can listen."""
    host, port = host_and_port(address)
    try:
        kind, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen()
    except OSError as error:
        raise Refusal(
            f"cannot listen at {address}: {error.strerror or error}",
            where="coordinator.toml, listen",
            remedy="stop the process that uses this port, or set an address of this machine with a free port",
        ) from None


def wait_until_listening(address: str, within: float = 20.0) -> None:
    host, port = host_and_port(address)
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            socket.create_connection((own_host(host), port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Refusal(
        f"nothing listens at {address}", remedy="check that the certificate and the key can be read, and start again"
    )


def own_host(host: str) -> str:
    """Where to find on this machine what listens everywhere."""
    return "127.0.0.1" if host == "0.0.0.0" else host
