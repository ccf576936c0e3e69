"""A site that lies about anything is named and left out, or ends its own study by name; the process never ends.

Every topic is answered with every lie of `tests/support/adversary/sites.py`, over a whole study: once as it comes, and
for what ends a study once more as a coordinator that was started again.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import in_process
from tests.support.adversary import sites as lying
from tests.support.adversary.any_reply import ARRAYS, JSON, NAMES, WORDS
from tests.support.amount import examples
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.text import plain_line
from wardround.deploy.coordinator.answer_bounds import LARGEST_LOSS, RowLimits
from wardround.deploy.coordinator.queue import enqueue, read_submission
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.wire import decode, encode

STUDY = in_process.study_of("lies", 2, deploy={"quorum": 2, "deadline": 0.3})
ALL_MUST = (Topic.OFFER, Topic.QUERY, Topic.SETTLE, Topic.PREPARE)
"""Questions that every site must answer: nonsense ends the study, by name."""
OTHERS = (Topic.BEGIN, Topic.ROUND, Topic.JUDGE, Topic.FIGURES, Topic.FINISH)
"""Questions that the others can go on without."""
LIARS = ("bo", "freetown")
QUICK = ("garbage", "packed bomb", "no arrays", "not a number", "a million million", "other shapes", "diverged")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A study that was conducted among honest sites, and all that they said; also where one's answers do not count.

    A site answers a round once, so what it says to another model is heard from a twin of it.
    """
    consortium = in_process.Consortium(tmp_path_factory.mktemp("honest"))
    told = [lying.said_without(in_process.Consortium(tmp_path_factory.mktemp(one)), STUDY, one) for one in LIARS]
    recorder = lying.Recorder(consortium)
    consortium.conduct(STUDY)
    # The honest study's own answers come first, and count where a twin was asked the same.
    return consortium, {**recorder.told, **told[0], **told[1], **recorder.told}


@pytest.fixture
def conversation(honest: Any) -> Any:
    return lying.Conversation(*honest)


def outcome(conversation: Any, *, again: bool = False) -> tuple[Any, str]:
    """The result, or the paragraph that ended the study; any other exception is a failure of the test."""
    try:
        return conversation.conduct(STUDY, again=again), ""
    except Refusal as refusal:
        return None, str(refusal)


def test_the_recorded_sites_are_those_of_the_study(conversation: Any, honest: Any) -> None:
    """The control: what is told again without a lie gives the same model, and no site is asked anew."""
    consortium, told = honest
    asked = len(consortium.asked)
    result, why = outcome(conversation)
    assert why == ""
    assert len(consortium.asked) == asked
    first = (consortium.run(STUDY) / "model.safetensors").read_bytes()
    assert (conversation.last / "model.safetensors").read_bytes() == first
    assert {topic for _, topic, _ in told} == {*ALL_MUST, *OTHERS}
    assert not any("left out" in note for note in result.notes)


def each_lie(*topics: Topic) -> Any:
    return [
        pytest.param(topic, name, id=f"{topic}: {name}", marks=() if name in QUICK else pytest.mark.slow)
        for topic in topics
        for name in lying.LIES
    ]


@pytest.mark.parametrize(("topic", "name"), each_lie(*ALL_MUST))
def test_nonsense_where_all_must_answer_ends_the_study_by_name_and_nothing_else(
    conversation: Any, topic: Topic, name: str
) -> None:
    conversation.tell("bo", topic, lambda reply: lying.changed(lying.LIES[name], reply) or reply)
    result, why = outcome(conversation)
    if not conversation.lied:
        assert why == "", "nothing could be told otherwise, so nothing may go wrong"
        return
    if result is not None:
        assert (topic, name) in HARMLESS
        return
    assert "bo" in why
    assert "kenema" not in why
    assert len(why) < 600
    assert why == plain_line(why)
    assert outcome(conversation, again=True) == (None, why), "a restart comes to the same end"
    conversation.tell("", "", lambda reply: reply)
    assert outcome(conversation)[1] == "", "the others' next study is not affected"


HARMLESS = {(topic, "routing words") for topic in ALL_MUST} | {
    # The word that says how large the site's cell is, or a word that nobody reads.
    (Topic.SETTLE, "words that are numbers"),
    (Topic.OFFER, "words that are numbers"),
    (Topic.OFFER, "words that are lists"),
    (Topic.OFFER, "words nested deeply"),
    (Topic.PREPARE, "words that are numbers"),
}


@pytest.mark.parametrize(("topic", "name"), each_lie(*OTHERS))
def test_nonsense_that_others_can_do_without_is_left_out_by_name(conversation: Any, topic: Topic, name: str) -> None:
    conversation.tell("bo", topic, lambda reply: lying.changed(lying.LIES[name], reply) or reply)
    result, why = outcome(conversation)
    assert why == ""
    rounds = conversation.rounds()
    assert [one["round"] for one in rounds] == [1, 2]
    assert all({"freetown", "kenema"} <= set(one["sites"]) for one in rounds)
    if not conversation.lied:
        return
    if topic in (Topic.ROUND, Topic.BEGIN) and (topic, name) not in SILENT:
        assert all(one["sites"] == ["freetown", "kenema"] for one in rounds)
        assert all(one["measures"]["absent"]["bo"] for one in rounds)
    if topic is Topic.JUDGE and name not in ("routing words", "other types"):
        assert all("bo" in one["measures"]["validation_left_out"] for one in rounds)
        assert all("bo" not in one["measures"]["validation_loss"]["sites"] for one in rounds)
        assert any(note.startswith("bo was left out of the validation loss") for note in result.notes)
    if topic is Topic.FIGURES and name != "routing words":
        assert "bo" not in result.methods[0].scores.sites
        assert any(note.startswith("The figures of bo were left out") for note in result.notes)


SILENT = {
    (Topic.BEGIN, "routing words"),
    (Topic.BEGIN, "words that are numbers"),
    (Topic.BEGIN, "words that are lists"),
    (Topic.BEGIN, "words nested deeply"),
}
"""Lies about words that nobody reads."""


def test_every_site_that_lies_in_a_round_ends_the_study_with_all_names(conversation: Any) -> None:
    conversation.tell("bo", "round", lying.LIES["no arrays"])
    study = in_process.study_of("lies", 2, deploy={"quorum": 3, "deadline": 0.3})
    with pytest.raises(Refusal, match=r"(?is)site bo: .*algorithm's arrays.*round 1"):
        conversation.conduct(study)


def test_a_site_that_refuses_for_as_long_as_it_is_given_ends_a_study_of_all_by_name(conversation: Any) -> None:
    """Asked again it would say the same, so the others do not wait for ever."""
    conversation.tell("bo", "round", lying.with_words(status="refused", why="I do not feel like it"))
    study = in_process.study_of("lies", 2, deploy={"quorum": 3, "deadline": 0.3})
    with pytest.raises(Refusal, match=r"(?is)site bo: refused: I do not feel like it.*round 1"):
        conversation.conduct(study)


# ---- lies about rows, weights and losses ----


def agreed(conversation: Any, site: str) -> tuple[RowLimits, int]:
    limits = RowLimits(conversation.last / "limits.json")
    return limits, limits.cells[site]


@pytest.mark.parametrize("weight", [1e12, -1.0, 0.0, 110.0], ids=str)
def test_an_answer_weighs_no_more_than_the_agreed_rows(conversation: Any, weight: float) -> None:
    """Freetown told its training rows in cells of 10 as 100: at most 109 count, whichever it has."""
    conversation.tell("freetown", "round", lying.with_arrays(lambda arrays: {**arrays, "weight": np.float32(weight)}))
    _, why = outcome(conversation)
    assert (why, conversation.lied) == ("", 2)
    limits, cell = agreed(conversation, "freetown")
    honest = read_reply(lying.told_about(conversation.told, "freetown", "round")[0]).message.arrays["weight"]
    assert (limits.rows["freetown"][0], cell, limits.most("freetown", "train")) == (100, 10, 109)
    assert 100 <= honest <= 109
    for one in conversation.rounds():
        assert one["sites"] == ["bo", "kenema"]
        assert "weight" in one["measures"]["absent"]["freetown"]


def test_a_weight_of_the_agreed_rows_is_taken(conversation: Any, tmp_path: Path) -> None:
    outcome(conversation)
    limits, _ = agreed(conversation, "bo")
    most = np.float32(limits.most("bo", "train"))
    lie = lying.with_arrays(lambda arrays: {**arrays, "weight": most})
    consortium = in_process.Consortium(tmp_path)
    consortium.change = lambda site, topic, header, reply: lie(reply) if (site, topic) == ("bo", "round") else reply
    consortium.conduct(STUDY)
    assert all("bo" in one["sites"] for one in consortium.rounds(STUDY))


def judged(**told: Any) -> lying.Lie:
    return lying.with_arrays(lambda arrays: {**arrays, **told})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"rows": np.int64(10**12), "loss": np.float64(0)}, "no site has"),
        ({"rows": np.int64(10**6), "loss": np.float64(0)}, "at most"),
        ({"rows": np.int64(-5)}, "no site has"),
        ({"loss": np.float64(-1)}, "a loss of -1"),
        ({"loss": np.float64(1e6)}, r"a loss of 1e\+06"),
        ({"loss": np.float64(np.nan)}, "not a finite number"),
        ({"loss": np.float64(np.inf)}, "not a finite number"),
        ({"right": np.int64(10**6)}, "right answers"),
    ],
    ids=str,
)
def test_a_false_loss_neither_stops_training_nor_blames_the_learning_rate(
    conversation: Any, told: dict[str, Any], words: str
) -> None:
    conversation.tell("bo", "judge", judged(**told))
    _, why = outcome(conversation)
    assert why == ""
    for one in conversation.rounds():
        assert words.replace("\\", "") in one["measures"]["validation_left_out"]["bo"]
        # The mean of the other two alone, recomputed from what they told.
        sums = [told_losses(conversation, site, one["round"]) for site in ("freetown", "kenema")]
        mean = sum(loss for loss, _ in sums) / sum(rows for _, rows in sums)
        assert one["measures"]["validation_loss"]["weighted"] == pytest.approx(mean, rel=1e-12)


def told_losses(conversation: Any, site: str, number: int) -> tuple[float, int]:
    """What a site said in the honest study when it judged for the `number`-th time."""
    arrays = read_reply(lying.told_about(conversation.told, site, "judge")[number - 1]).message.arrays
    return float(arrays["loss"]), int(arrays["rows"])


def test_a_loss_far_from_what_the_others_measure_is_named_and_counts(conversation: Any) -> None:
    """Nobody else has these patients, so a loss of 0 is within its bounds: it is told to whoever reads the result."""
    conversation.tell("kenema", "judge", judged(loss=np.float64(0)))
    result, why = outcome(conversation)
    assert why == ""
    assert any(note.startswith("kenema tells a validation loss that is worth a look") for note in result.notes)
    assert not any(note.startswith(("bo", "freetown")) for note in result.notes)
    assert pytest.approx(16.118, abs=1e-3) == LARGEST_LOSS  # -log(1e-7)


def test_figures_of_more_patients_than_the_site_has_are_left_out(conversation: Any) -> None:
    def lie(reply: bytes) -> bytes:
        header, message = decode(reply)
        return encode({**header, "figures": {**header["figures"], "rows": {"bo": 10**8}}}, message)

    conversation.tell("bo", "figures", lie)
    result, why = outcome(conversation)
    assert why == ""
    assert any(
        "The figures of bo were left out: it tells figures of 100000000 test rows" in one for one in result.notes
    )


def test_a_number_that_is_not_finite_or_no_number_in_a_figure_is_left_out(conversation: Any) -> None:
    for value in ("1.0", True, 1e300, [0.5], {"value": 1}):

        def lie(reply: bytes, value: Any = value) -> bytes:
            header, message = decode(reply)
            one = {"accuracy": {"value": value}}
            return encode({**header, "figures": {"sites": {"bo": one}, "rows": {"bo": 10}}}, message)

        conversation.tell("bo", "figures", lie)
        result, why = outcome(conversation)
        assert why == ""
        assert any("The figures of bo were left out: its figure 'accuracy'" in one for one in result.notes), value


# ---- words ----


@pytest.mark.parametrize("status", ["refused", "waiting", "denied", "withdrawn", "spent"])
def test_words_of_a_site_reach_nobody_as_they_came(conversation: Any, status: str) -> None:
    conversation.tell("bo", "round", lying.with_words(status=status, why=lying.ESCAPES))
    outcome(conversation)
    for one in conversation.rounds():
        why = one["measures"]["absent"]["bo"]
        assert why.startswith(f"{status}: [2J")
        assert why == plain_line(why)
        assert len(why) < 1100


def test_a_refusal_of_what_all_must_answer_is_told_in_plain_words(conversation: Any) -> None:
    conversation.tell("bo", "prepare", lying.with_words(status="refused", why=lying.ESCAPES))
    _, why = outcome(conversation)
    assert "[2J" in why
    assert "site bo" in why
    assert why == plain_line(why)


# ---- sizes ----


@pytest.mark.parametrize("topic", [*ALL_MUST, *OTHERS])
def test_a_reply_has_no_more_bytes_than_its_question_allows(conversation: Any, topic: Topic) -> None:
    conversation.tell("bo", topic, lying.padded)
    result, why = outcome(conversation)
    told = why if topic in ALL_MUST else json.dumps(conversation.rounds()) + json.dumps(result.notes)
    if topic is not Topic.FINISH:
        assert "bytes, and" in told
        assert "are allowed" in told
    assert conversation.lied


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    topic=st.sampled_from([*ALL_MUST, *OTHERS]),
    kind=st.sampled_from(["bytes", "words", "arrays"]),
    at=st.floats(0, 0.999),
    value=st.integers(0, 255),
    words=st.dictionaries(WORDS, JSON, min_size=1, max_size=2),
    array=ARRAYS,
    name=NAMES,
)
def test_any_damage_to_an_honest_reply_is_survived(
    honest: Any, topic: Topic, kind: str, at: float, value: int, words: Any, array: Any, name: str
) -> None:
    """One topic of one study, each of bo's replies to it damaged in some way: bytes, words or arrays."""
    conversation = lying.Conversation(*honest)

    def lie(reply: bytes) -> bytes:
        if kind == "bytes":
            place = int(at * len(reply))
            return reply[:place] + bytes([value]) + reply[place + 1 :]
        header, message = decode(reply)
        if kind == "words":
            return encode({**header, **words}, message)
        names = sorted(message.arrays) or [name]
        return encode(header, Message({**message.arrays, names[int(at * len(names))]: array}, message.meta))

    conversation.tell("bo", topic, lie)
    _, why = outcome(conversation)
    assert "bo" in why or not why


# ---- the process ----


def test_a_fault_of_the_coordinator_ends_the_study_and_not_the_process(
    honest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare")
    from wardround.deploy.coordinator import service

    consortium, told = honest
    conversation = lying.Conversation(consortium, told)
    ended: list[Any] = []
    coordinator = service.Coordinator(consortium.home, ended.append)
    try:
        coordinator.transport = coordinator.desk.transport = conversation
        coordinator.stopped = conversation.stopped
        first, second = (
            enqueue(consortium.home, in_process.study_of(name, 1), "researcher") for name in ("one", "two")
        )
        tries: list[str] = []
        conduct = service.conduct

        def faulty(submission: Any, *given: Any) -> Any:
            if submission.id == first:
                tries.append(first)
                if len(tries) > 1:  # it would go on without end
                    coordinator.stopped.set()
                raise ZeroDivisionError("secret\x1b[31m of a table")
            return conduct(submission, *given)

        monkeypatch.setattr(service, "conduct", faulty)
        coordinator.work(until_done=True)
    finally:
        coordinator.party.stop()
    states = {name: json.loads((consortium.home.folder(name) / "state.json").read_text()) for name in (first, second)}
    assert [states[name]["state"] for name in (first, second)] == ["failed", "finished"]
    assert len(tries) == 1
    assert "could not go on with this study (ZeroDivisionError)" in states[first]["why"]
    assert "secret" not in states[first]["why"]
    kept = (consortium.home.path / "faults.log").read_text()
    assert first in kept
    assert "ZeroDivisionError: secret[31m of a table" in kept
    assert read_submission(consortium.home.folder(first))[1] == "researcher"
