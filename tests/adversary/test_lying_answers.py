"""Lies of sites beside a recorded conversation: in a secure sum, where all weigh the same, in the form of a reply."""

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
from wardround.core.errors import Diverged
from wardround.core.text import plain_line
from wardround.deploy.coordinator.gather import problem_of
from wardround.deploy.protocol.replies import read_reply
from wardround.deploy.protocol.reply_form import LARGEST_REPLY, form_problem
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.wire import encode


def test_where_sites_weigh_the_same_a_weight_is_one_or_nothing(tmp_path: Path) -> None:
    consortium = in_process.Consortium(tmp_path)
    algorithm = {"name": "fed_avg", "learning_rate": 0.1, "weights": "uniform"}
    study = in_process.study_of("same", 1, algorithm=algorithm, deploy={"quorum": 2, "deadline": 0.3})
    consortium.change = lambda site, topic, header, reply: (
        lying.with_arrays(lambda arrays: {**arrays, "weight": np.float32(2)})(reply)
        if (site, topic) == ("kenema", "round")
        else reply
    )
    consortium.conduct(study)
    (only,) = consortium.rounds(study)
    assert only["sites"] == ["bo", "freetown"]
    assert "every site weighs 1" in only["measures"]["absent"]["kenema"]


def judged(**told: Any) -> lying.Lie:
    return lying.with_arrays(lambda arrays: {**arrays, **told})


def test_all_losses_that_are_not_finite_are_still_a_model_that_diverged(tmp_path: Path) -> None:
    consortium = in_process.Consortium(tmp_path)
    consortium.change = lambda site, topic, header, reply: (
        judged(loss=np.float64(np.inf))(reply) if topic == "judge" else reply
    )
    with pytest.raises(Diverged, match="not a finite number"):
        consortium.conduct(in_process.study_of("diverged", 1))


def test_what_a_question_allows_is_small_where_little_is_asked() -> None:
    assert LARGEST_REPLY[Topic.JUDGE] == LARGEST_REPLY[Topic.PREPARE] == 1 << 16
    assert max(LARGEST_REPLY.values()) == 1 << 24


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    topic=st.sampled_from(list(Topic)),
    status=st.sampled_from(["ok", "diverged"]),
    words=st.dictionaries(WORDS, JSON, max_size=4),
    arrays=st.dictionaries(NAMES, ARRAYS | st.dictionaries(NAMES, ARRAYS, max_size=2), max_size=4),
)
def test_any_reply_has_its_form_or_is_told_not_to(topic: Topic, status: str, words: Any, arrays: Any) -> None:
    """Not even our own checks may raise, whatever is in a reply that can be read."""
    reply = read_reply(encode({**words, "status": status, "site": "bo"}, Message(arrays)))
    wrong = form_problem(topic, reply)
    assert wrong is None or (wrong and wrong == plain_line(wrong))
    assert problem_of(topic, reply, lambda one: 1 / 0) in (wrong, "its answer does not make sense (ZeroDivisionError)")


def test_nonsense_in_a_secure_sum_is_left_out_by_name(tmp_path: Path) -> None:
    """Another lie in each round, in the first reply that it can be told about; three of four sites go on."""
    consortium = in_process.Consortium(tmp_path, ("bo", "freetown", "kenema", "makeni"))
    names = ("garbage", "words that are numbers", "one array more", "another site's name")
    study = in_process.study_of(
        "sums", len(names), transforms=[{"name": "secure_sum"}], deploy={"quorum": 3, "deadline": 0.3}
    )

    def change(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != ("bo", "secure"):
            return reply
        return lying.changed(lying.LIES[names[header["round"] - 1]], reply) or reply

    consortium.change = change
    consortium.conduct(study)
    rounds = consortium.rounds(study)
    assert [one["sites"] for one in rounds] == [["freetown", "kenema", "makeni"]] * len(names)
    words = ("cannot be read", "it sent no letter", "not part of a secure sum", "belongs to another request")
    for one, expected in zip(rounds, words, strict=True):
        assert expected in one["measures"]["absent"]["bo"]
