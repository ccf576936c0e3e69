"""A party at rest answers for itself, as the whole request handler would, and loads that for the first study."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import Consortium
from wardround.deploy.party.late_answerer import LateAnswerer
from wardround.deploy.party.own_questions import ITSELF
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import request_of_site
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import PROTOCOL, encode

HEAVY = ("pandas", "scipy", "optax", "sklearn", "wardround.deploy.site.study_worker")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("rest"), ("bo", "kenema"))


def late(consortium: Consortium, made: list[str]) -> LateAnswerer:
    def make() -> Any:
        made.append("made")
        return consortium.handlers["bo"]

    return LateAnswerer(consortium.homes["bo"], make)


@pytest.mark.parametrize("topic", ["hello", "renewal"])
def test_what_it_says_of_itself_is_what_the_handler_says(consortium: Consortium, topic: str) -> None:
    assert topic in ITSELF
    made: list[str] = []
    told, expected = (
        read_reply(one.answer(topic, "server", request_of_site({})))
        for one in (late(consortium, made), consortium.handlers["bo"])
    )
    assert made == []
    assert told.status is expected.status is Status.OK
    assert told.header.keys() == expected.header.keys()


@pytest.mark.parametrize(
    ("topic", "origin", "content"),
    [
        ("round", "server", encode({"protocol": PROTOCOL, "study": "x", "round": 1})),
        ("hello", "kenema", request_of_site({})),
        ("hello", "server", encode({"protocol": PROTOCOL + 5})),
        ("hello", "server", b"nonsense"),
    ],
    ids=["a study", "a stranger", "a far protocol", "nonsense"],
)
def test_everything_else_is_answered_by_the_handler(
    consortium: Consortium, topic: str, origin: str, content: bytes
) -> None:
    made: list[str] = []
    answerer = late(consortium, made)
    heard: list[tuple[str, str]] = []
    answerer.on_refusal = lambda *told: heard.append(told)
    told = read_reply(answerer.answer(topic, origin, content))
    assert made == ["made"]
    assert told.status is Status.REFUSED
    assert heard


def test_a_party_at_rest_has_loaded_nothing_that_trains(tmp_path: Path) -> None:
    code = (
        "import sys, wardround.cli.services\n"
        "from wardround.deploy.party import late_answerer, service\n"
        f"print([one for one in {HEAVY!r} if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
