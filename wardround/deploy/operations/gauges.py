"""Health and figures of a running party for a monitor such as Prometheus: on this machine only, and off by default.

GET /health says whether the party works (200) or not (503), as JSON; GET /metrics has figures in Prometheus' text
format. Nothing about patients, and nothing that could be asked for: names of sites, counts, bytes, times.
"""

import ipaddress
import json
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from wardround.core.errors import Refusal

PREFIX = "wardround_"
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Gauge(NamedTuple):
    """One figure; `labels` tell it from others of its name."""

    name: str
    value: float
    help: str
    labels: Mapping[str, str] = {}


class PartyHealth(NamedTuple):
    """Whether a party works, and what is to be said of it."""

    well: bool
    words: Mapping[str, Any]


Look = Callable[[], tuple[PartyHealth, Sequence[Gauge]]]


def metrics_text(gauges: Sequence[Gauge]) -> str:
    """In Prometheus' text format: help and type once for each name, one line a figure."""
    lines: list[str] = []
    said: set[str] = set()
    for one in sorted(gauges, key=lambda gauge: gauge.name):
        name = PREFIX + one.name
        if not NAME.fullmatch(one.name):
            raise ValueError(f"'{one.name}' is no name of a figure")
        if name not in said:
            said.add(name)
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {one.help}", f"# TYPE {name} {kind}"]
        labels = ",".join(f'{key}="{escaped(text)}"' for key, text in sorted(one.labels.items()))
        lines.append(f"{name}{f'{{{labels}}}' if labels else ''} {number_text(one.value)}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def require_loopback(address: str) -> tuple[str, int]:
    """HOST:PORT of this machine alone."""
    host, _, port = address.rpartition(":")
    try:
        number = int(port)
        own = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        own, number = False, 0
    if not own or not 0 <= number < 65536:
        raise Refusal(
            f"'{address}' is not an address of this machine alone",
            where="--metrics",
            remedy="use 127.0.0.1:9464 or the like; let a monitor elsewhere fetch it through its own agent here",
        )
    return host.strip("[]"), number


class GaugeServer:
    """Answers at an address until stopped."""

    def __init__(self, address: str, look: Look) -> None:
        host, port = require_loopback(address)

        class GaugeHandler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                health, gauges = look()
                if self.path == "/metrics":
                    self._send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(gauges))
                elif self.path == "/health":
                    body = json.dumps({"well": health.well, **health.words}, default=str)
                    self._send(200 if health.well else 503, "application/json", body + "\n")
                else:
                    self._send(404, "text/plain; charset=utf-8", "ask for /health or /metrics\n")

            def _send(self, code: int, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A monitor asks every few seconds: nobody wants to read that."""

        try:
            self._server = ThreadingHTTPServer((host, port), GaugeHandler)
        except OSError as error:
            raise Refusal(
                f"cannot listen at {address}: {error.strerror}", where="--metrics", remedy="choose another port"
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="wardround gauges", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
