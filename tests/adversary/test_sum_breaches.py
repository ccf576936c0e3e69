"""A site that breaks the protocol of a secure sum, at any step: it is left out by name, or the study ends by name.

Of four sites three are enough. Of three all are needed, so a study that cannot go on without the liar must end: it was
once asked again for ever.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import in_process
from tests.support.adversary.actors import Enough
from tests.support.adversary.sums import bad_dealer
from wardround.core.errors import Refusal
from wardround.deploy.protocol.wire import decode, encode
from wardround.privacy.secure_sum.messages import from_json, sign, to_json

FOUR = ("bo", "freetown", "kenema", "makeni")
LIAR = "kenema"
SUM = [{"name": "secure_sum"}]
PATIENCE = 8
"""Lies after which it is called endless: an attempt has one for each step, and honest sites are asked a few times."""
STEPS = ("advertise", "share", "check", "mask", "agree", "reveal")


def garbage(home: Any, reply: bytes) -> bytes:
    return b"garbage"


def unsigned(home: Any, reply: bytes) -> bytes:
    """The honest letter under a signature of nobody."""
    words, message = decode(reply)
    return encode({**words, "letter": {**words["letter"], "signature": "ab" * 40}}, message)


def other_content(home: Any, reply: bytes) -> bytes:
    """A letter that the liar signs with its own true key, and that holds something else."""
    words, message = decode(reply)
    letter = from_json(words["letter"], message.arrays.get("vector"))
    changed = sign(replace(letter, content={**letter.content, "more": 1}), home.key)
    return encode({**words, "letter": to_json(changed)}, message)


def refusal(home: Any, reply: bytes) -> bytes:
    words, _ = decode(reply)
    kept = {key: one for key, one in words.items() if key != "letter"}
    return encode({**kept, "status": "refused", "why": "it would rather not"})


LIES: dict[str, tuple[Callable[[Any, bytes], bytes], str]] = {
    "garbage": (garbage, "its answer cannot be read"),
    "unsigned": (unsigned, "the signature is not kenema's"),
    "changed": (other_content, "from kenema"),
    "refusal": (refusal, "it would rather not"),
}


def lying(consortium: Any, step: str, lie: Callable[[Any, bytes], bytes]) -> list[str]:
    """Let the liar tell it whenever it has answered this step."""
    told: list[str] = []

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != (LIAR, "secure") or header["step"] != step or decode(reply)[0]["status"] != "ok":
            return reply
        told.append(header["session"]["nonce"])
        if len(told) > PATIENCE:
            raise Enough
        return lie(consortium.homes[LIAR], reply)

    consortium.change = change
    return told


class Begun(NamedTuple):
    """A study of which the next request is the first of its first secure sum, as often as it is wanted."""

    consortium: Any
    study: Any
    kept: Path

    def conduct(self) -> None:
        run = self.consortium.run(self.study)
        shutil.rmtree(run)
        shutil.copytree(self.kept, run)
        self.consortium.conduct(self.study)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("three")
    consortium: Any = in_process.Consortium(folder)
    study = in_process.study_of("needed", 1, transforms=SUM, deploy={"deadline": 0.2})
    ask = consortium.ask

    def asking(site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "secure":
            raise Enough
        reply: bytes = ask(site, topic, body, within)
        return reply

    consortium.ask = asking
    with pytest.raises(Enough):
        consortium.conduct(study)
    consortium.ask = ask
    shutil.copytree(consortium.run(study), folder / "kept")
    return Begun(consortium, study, folder / "kept")


def end_of(begun: Begun, step: str, name: str) -> None:
    lie, why = LIES[name]
    told = lying(begun.consortium, step, lie)
    with pytest.raises(Refusal) as ended:
        begun.conduct()
    assert why in str(ended.value)
    assert LIAR in str(ended.value)
    assert told
    assert not (begun.consortium.run(begun.study) / "model.safetensors").exists()


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_study_that_needs_the_liar_ends_by_name(begun: Begun, step: str, name: str) -> None:
    end_of(begun, step, name)


@pytest.mark.parametrize("name", ["garbage", pytest.param("changed", marks=pytest.mark.slow)])
def test_nor_is_a_liar_asked_for_ever_to_reveal(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """The others have closed the round then: each of these needs a study of its own."""
    end_of(begun.__wrapped__(tmp_path_factory), STEPS[-1], name)


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_others_go_on_without_a_site_that_lies_at_any_step(tmp_path: Path, first: int) -> None:
    """Another step in every round, and another lie; what is recorded of the round names the liar."""
    four: Any = in_process.Consortium(tmp_path, FOUR)
    names = [list(LIES)[(first + number) % len(LIES)] for number in range(len(STEPS))]
    told: list[str] = []

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        number = header["round"] - 1
        if (site, topic) != (LIAR, "secure") or header["step"] != STEPS[number]:
            return reply
        told.append(header["step"])
        return LIES[names[number]][0](four.homes[LIAR], reply)

    four.change = change
    study = in_process.study_of("four", len(STEPS), transforms=SUM, deploy={"quorum": 3, "deadline": 0.3})
    four.conduct(study)
    assert told == list(STEPS), "each lie is told once: nobody needs the liar in that round"
    others = sorted(set(FOUR) - {LIAR})
    for one, step, name in zip(four.rounds(study), STEPS, names, strict=True):
        # Once its masked answer has come it is in the sum, whatever it says afterwards.
        counted = step in ("agree", "reveal")
        assert one["sites"] == (list(FOUR) if counted else others), step
        assert counted or LIES[name][1] in one["measures"]["absent"][LIAR], step


def test_a_dealer_that_does_not_open_what_others_complain_about_ends_it_too(tmp_path: Path) -> None:
    """The step 'open' is asked of an accused site only: it dealt rubbish, and answers the complaint with garbage."""
    consortium = in_process.Consortium(tmp_path)
    deal = bad_dealer(consortium, LIAR, "bo")
    opened: list[str] = []

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) == (LIAR, "secure") and header["step"] == "open":
            opened.append(header["session"]["nonce"])
            return b"garbage"
        return deal(site, topic, header, reply)

    consortium.change = change
    with pytest.raises(Refusal, match=r"kenema: .*bo got a wrong share of its secrets"):
        consortium.conduct(in_process.study_of("unopened", 1, transforms=SUM))
    assert len(opened) == 1


@pytest.mark.slow
def test_a_refusal_while_others_are_away_is_no_breach(tmp_path: Path) -> None:
    """A site that refuses until all are there is asked again when they are, however long that takes."""
    consortium = in_process.Consortium(tmp_path, FOUR)
    study = in_process.study_of("patient", 1, transforms=SUM, deploy={"quorum": 3, "deadline": 0.1})
    refused: list[str] = []

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if topic == "secure" and "bo" in consortium.away and site in ("freetown", LIAR) and header["step"] == "mask":
            refused.append(site)
            if len(refused) > 6:
                consortium.away.discard("bo")
            return refusal(None, reply)
        return reply

    prepared = consortium.ask

    def ask(site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "secure" and not refused:
            consortium.away.add("bo")
        return prepared(site, topic, body, within)

    consortium.ask = ask  # type: ignore[method-assign]
    consortium.change = change
    consortium.conduct(study)
    assert len(refused) > 6
    assert [one["sites"] for one in consortium.rounds(study)] == [list(FOUR)]
