"""Health and figures: Prometheus' format by hand, and an address that nobody else reaches."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from wardround.core.errors import Refusal
from wardround.deploy.operations.gauges import Gauge, GaugeServer, PartyHealth, metrics_text, require_loopback


def test_the_format_by_hand() -> None:
    gauges = [
        Gauge("sites", 3, "Sites."),
        Gauge("moved_bytes", 1.5, "Moved.", {"site": 'b"o\n'}),
        Gauge("moved_bytes", float("nan"), "Moved.", {"site": "a"}),
        Gauge("answers_total", 7, "Answers."),
    ]
    assert metrics_text(gauges) == (
        "# HELP wardround_answers_total Answers.\n# TYPE wardround_answers_total counter\nwardround_answers_total 7\n"
        "# HELP wardround_moved_bytes Moved.\n# TYPE wardround_moved_bytes gauge\n"
        'wardround_moved_bytes{site="b\\"o\\n"} 1.5\nwardround_moved_bytes{site="a"} NaN\n'
        "# HELP wardround_sites Sites.\n# TYPE wardround_sites gauge\nwardround_sites 3\n"
    )


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "10.0.0.1:9464", "hub.example.org:1", "127.0.0.1", ":9", "", "[::]:1"]
)
def test_another_address_than_this_machines_is_refused(address: str) -> None:
    with pytest.raises(Refusal, match="not an address of this machine alone"):
        require_loopback(address)


def test_own_addresses() -> None:
    assert require_loopback("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert require_loopback("[::1]:1") == ("::1", 1)


@pytest.fixture
def party() -> Iterator[tuple[list[bool], str]]:
    well = [True]
    server = GaugeServer(
        "127.0.0.1:0", lambda: (PartyHealth(well[0], {"why": "no line"}), [Gauge("connected", well[0], "Connected.")])
    )
    yield well, f"http://127.0.0.1:{server.port}"
    server.stop()


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_a_status_that_every_monitor_reads(party: tuple[list[bool], str]) -> None:
    well, url = party
    assert fetched(f"{url}/health")[0] == 200
    well[0] = False
    code, text = fetched(f"{url}/health")
    assert (code, json.loads(text)) == (503, {"well": False, "why": "no line"})
    assert "wardround_connected 0\n" in fetched(f"{url}/metrics")[1]
    assert fetched(f"{url}/status.json")[0] == 404


def test_an_address_in_use_is_refused(party: tuple[list[bool], str]) -> None:
    with pytest.raises(Refusal, match="Cannot listen"):
        GaugeServer(party[1].removeprefix("http://"), lambda: (PartyHealth(True, {}), []))
