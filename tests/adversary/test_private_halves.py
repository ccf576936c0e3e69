"""[privacy] together with two servers: what is masked is noised, once a round whatever is attempted, and paid for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import tiny_study as tiny
from tests.support.adversary.actors import Enough
from tests.support.adversary.noise import DECLARED
from tests.support.second_server import FIVE, PairedConsortium
from wardround.core.errors import Refusal
from wardround.deploy.protocol.halves import meeting_of
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.release.privacy_budget import ledger_path
from wardround.deploy.trust.transcript.handout import read_source
from wardround.deploy.trust.transcript.replay import replay
from wardround.privacy.accountant import Step
from wardround.privacy.budget import Budget
from wardround.privacy.two_servers.protocol import stretch_seeds

NOISE = {"noise_multiplier": 2.0, "delta": 1e-3}
DATA = {"preparation": {"smallest_cell": 10, **DECLARED}}
SITE = "bo"
FIRST = Path("halves") / "00000001" / "answer"


class Private(PairedConsortium):
    """Hears what sites are asked in a round, and may end the honest part there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.heard: dict[tuple[str, int], bytes] = {}
        self.last_round = 99

    def ask(self, site: str, topic: str, body: bytes, within: float) -> bytes:
        if topic == "halves":
            number = decode(body)[0]["round"]
            self.heard[site, number] = body
            if number > self.last_round:
                raise Enough
        return super().ask(site, topic, body, within)

    def whole(self, site: str, header: dict[str, Any], message: Any) -> bytes:
        """What a site has masked in an attempt, with the seed that is on its own disk alone."""
        told, answer = decode(self.handlers[site].answer("halves", "server", encode(header, message)))
        assert told["status"] == "ok", told["why"]
        meeting = meeting_of(header["meeting"], header["study"], header["round"])
        folder = self.homes[site].folder(header["study"]) / "halves" / f"{meeting.round:08d}"
        seed = bytes.fromhex(json.loads((folder / f"{meeting.digest.hex()}.json").read_bytes())["seed"])
        masked = np.array(answer.arrays["masked"])
        for begin, mask in stretch_seeds(meeting, b"mask", [(site, [seed])]):
            masked[begin : begin + mask.shape[1]] += mask[0]
        return masked.tobytes()


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Private:
    return Private(tmp_path_factory.mktemp("private"))


@pytest.fixture(scope="module")
def study(consortium: Private) -> Any:
    """A first round that was opened, and a second one of which nobody was asked yet."""
    made = consortium.study("private", 2, bound=64.0, privacy=NOISE, data=DATA)
    consortium.last_round = 1
    with pytest.raises(Enough):
        consortium.conduct(made)
    consortium.last_round = 99
    return made


def debits(consortium: Private, site: str, study: Any) -> list[tuple[str, int]]:
    charges = Budget(ledger_path(consortium.homes[site])).charges()
    return [(one.level, one.round) for one in charges if one.study == consortium.id(study) and one.level == "sample"]


def test_eight_attempts_carry_one_noised_answer_and_cost_one_debit(consortium: Private, study: Any) -> None:
    """Also when the site is started again in between. Else whoever holds the seeds could average the noise away."""
    header, message = decode(consortium.heard[SITE, 2])
    found = set()
    for number in range(8):
        if number == 4:
            consortium.restart(SITE)
        meeting = {**header["meeting"], "nonce": f"{number:032x}"}
        found.add(consortium.whole(SITE, {**header, "meeting": meeting}, message))
    assert len(found) == 1
    assert debits(consortium, SITE, study) == [("sample", 1), ("sample", 2)]


@pytest.mark.slow
def test_the_study_goes_on_to_its_end_and_everybody_pays_once_a_round(consortium: Private, study: Any) -> None:
    result = consortium.conduct(study)
    for site in FIVE:
        assert debits(consortium, site, study) == [("sample", 1), ("sample", 2)]
    charges = Budget(ledger_path(consortium.homes[SITE])).charges()
    (step,) = next(one.steps for one in charges if one.level == "sample")
    assert (step.noise_multiplier, isinstance(step, Step)) == (2.0, True)
    assert result["methods"][0]["meters"]["privacy"]["sample_epsilon"] > 0
    assert [one["sites"] for one in consortium.rounds(study)] == [list(FIVE)] * 2
    # Any site replays it, noise and all: the sums are what they are.
    report = replay(read_source(consortium.run(study)))
    assert (report.problem, report.replayed) == ("", 2)


@pytest.mark.slow
def test_what_is_masked_is_noised(consortium: Private, study: Any) -> None:
    """The same site, rows and first model in another study: without noise it would tell the same."""
    again = consortium.study("private-again", 1, bound=64.0, privacy=NOISE, data=DATA)
    consortium.conduct(again)
    told, drawn = (
        np.frombuffer((consortium.homes[SITE].folder(consortium.id(one)) / FIRST).read_bytes()[64:], "<f4")[1:]
        for one in (study, again)
    )
    assert told.shape == drawn.shape
    assert np.count_nonzero(told != drawn) == told.size


def test_noise_of_whole_sites_is_refused_before_anybody_is_asked(consortium: Private) -> None:
    """It is the noise of a sum of all, and two servers open a sum of those whom they chose."""
    before = len(consortium.asked)
    words = {"level": "site", "noise_multiplier": 2.0, "delta": 1e-3}
    with pytest.raises(Refusal, match="must see single answers"):
        consortium.conduct(consortium.study("whole-sites", 1, privacy=words, data=DATA))
    assert len(consortium.asked) == before


def test_and_when_the_study_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.write_study(
        tmp_path,
        privacy={"level": "site", "noise_multiplier": 2.0, "delta": 1e-3, "seeded": True},
        aggregator={"name": "multi_krum", "bad": 0},
        transforms=[{"name": "two_servers"}],
    )
    said = tiny.call(capsys, "check", path)
    assert said.code != 0
    assert "must see single answers" in said.err
