"""A coordinator that uses the question whether a model ages to learn of single patients; and sites that answer lies."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.adversary.actors import LyingCoordinator
from tests.support.adversary.monitor import monitor_of, trained_consortium
from tests.support.adversary.questions import SITE, entries, keep_policies
from wardround.core.codes.json_arrays import pack
from wardround.core.components.recipes import Recipe, to_json
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.monitor.answer import windows_problem
from wardround.deploy.party.decisions import read_offer, store_offer
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import decode, encode
from wardround.deploy.site.approvals import approve, reasons_against, statistics_used
from wardround.deploy.site.policy_file import set_policy
from wardround.queries.outcomes_by_window import outcomes_by_window


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made, trained = trained_consortium(tmp_path_factory.mktemp("monitor"))
    return made, made.id(trained)


@pytest.fixture(autouse=True)
def as_before(world: Any) -> Iterator[None]:
    texts = {path: path.read_bytes() for path in world[0].tables.values()}
    with keep_policies(world[0]):
        yield
    for path, text in texts.items():
        path.write_bytes(text)


def liar_of(world: Any, name: str, **words: Any) -> LyingCoordinator:
    """It has been answered once."""
    one = LyingCoordinator(world[0], monitor_of(world[1], name, **words))
    one.conduct()
    return one


def query(**settings: Any) -> dict[str, Any]:
    said = {"every": "quarter", "most": 36, "smallest_cell": 10, **settings}
    return to_json(Recipe("query", "outcomes_by_window", tuple(sorted(said.items()))))


@pytest.mark.parametrize(
    "settings", [{"smallest_cell": 1}, {"smallest_cell": 11}, {"every": "month"}, {"most": 1}, {"most": 37}]
)
def test_other_settings_than_the_approved_ones_get_nothing(world: Any, settings: Any) -> None:
    one = liar_of(world, "settings")
    said = one.send(SITE, "query", {"query": query(**settings), "on": "raw"})
    assert said.status is Status.REFUSED
    assert not said.message.arrays


def test_a_second_question_in_other_words_gets_nothing(world: Any) -> None:
    """Other words around the question, or arrays beside it, would else be asked again as the table grows."""
    one = liar_of(world, "twice")
    first = one.last(SITE, "query")
    assert one.replay(first).message.arrays.keys() == first.reply.message.arrays.keys()
    for said in (
        one.alter(first, round=1),
        one.alter(first, Message({"extra": np.zeros(3)})),
        one.send(SITE, "query", {"query": query(), "on": "training"}),
    ):
        assert said.status is Status.REFUSED
        assert not said.message.arrays
    assert len(entries(world[0], "sent", one.study)) == 1


def test_nothing_but_the_question_is_answered(world: Any) -> None:
    """A study that trains nothing cannot be made to: neither statistics nor rounds nor figures."""
    one = liar_of(world, "else")
    moments = to_json(Recipe("query", "moments", (("columns", ("age",)), ("smallest_cell", 10))))
    cards = to_json(Recipe("query", "cards", (("smallest_cell", 10), ("target", "ebola"))))
    for topic, words in (
        ("query", {"query": moments, "on": "raw"}),
        ("query", {"query": cards, "on": "raw"}),
        ("settle", {"schema": {"kinds": {}, "task": "classification", "classes": ["a", "b"]}, "seed": 0}),
        ("prepare", {"preparation": "{}", "positive": 1, "numbers": [SITE]}),
        ("begin", {"algorithm": query()}),
        ("round", {"algorithm": query(), "transforms": [], "seed": 0}),
        ("figures", {"algorithm": query(), "transforms": [], "seed": 0, "part": "test"}),
        ("finish", {"algorithm": query(), "transforms": [], "seed": 0, "part": "test"}),
    ):
        said = one.send(SITE, topic, words)
        assert said.status is Status.REFUSED, topic
        assert not said.message.arrays
    assert len(entries(world[0], "sent", one.study)) == 1


def test_the_model_of_a_study_that_left_none_here_is_not_looked_at(world: Any) -> None:
    """Nor is a path: a study's identity names a folder of the site."""
    home = world[0].homes[SITE]
    for trained in ("../../" + "x" * 8, "trained/..", "/etc/passwd", ".."):
        with pytest.raises(Refusal, match="'study' cannot be"):
            monitor_of(trained)
    study = monitor_of("other-" + "0" * 32, "none")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    with pytest.raises(Refusal, match="left no model here"):
        approve(home, study_id(study), by="admin")


def test_an_offer_that_leaves_out_its_cell_or_asks_for_less_is_not_allowed(world: Any) -> None:
    home = world[0].homes[SITE]
    study = monitor_of(world[1], "small", smallest_cell=1)
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    (reason,) = reasons_against(home, read_offer(home, study_id(study)), None)
    assert "the monitor reports groups of 1 patients or more" in reason
    assert "[monitor] smallest_cell" in reason


def test_questions_over_many_studies_are_counted_together(world: Any) -> None:
    """Every study about the dataset is one more statistic of it; when they are used up, there is none."""
    home = world[0].homes[SITE]
    used = statistics_used(home, "demo")
    set_policy(home.policy_path, "statistics", str(used + 1))
    liar_of(world, "last")
    study = monitor_of(world[1], "one-too-many")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    with pytest.raises(Refusal, match="asks for up to 1 statistics"):
        approve(home, study_id(study), by="admin")


def test_a_site_with_a_limit_of_epsilon_does_not_answer(world: Any) -> None:
    """Counts in cells are no formal guarantee, and the approval says so."""
    home = world[0].homes[SITE]
    set_policy(home.policy_path, "epsilon", "3.0")
    study = monitor_of(world[1], "formal")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    (reason,) = reasons_against(home, read_offer(home, study_id(study)), None)
    assert "gives no such guarantee" in reason


def test_a_patient_who_came_or_left_moves_nothing_by_less_than_a_cell(world: Any) -> None:
    """Two studies, one row removed in between: counts differ by a whole cell or not, risks by a step or not."""
    made, trained = world
    before = made.conduct(monitor_of(trained, "before"))
    rows = pd.read_csv(made.tables[SITE])
    rows.drop(index=7).to_csv(made.tables[SITE], index=False)
    after = made.conduct(monitor_of(trained, "after"))
    one, two = (next(site for site in told["sites"] if site["name"] == SITE) for told in (before, after))
    for was, now in zip(one["windows"], two["windows"], strict=True):
        assert abs(was["patients"] - now["patients"]) in (0, 10)
        assert abs(was["predicted"] - now["predicted"]) in (0, 1 / 64, 1 / 256)


def test_a_model_tuned_to_one_patient_does_not_tell_him_for_certain() -> None:
    """A mean that lies just above the middle of two steps with him and just below without, which would tell him if it
    were rounded to the nearest: by a secret of the site it shows for 0.4 of all secrets.

    40 patients: the step is 2 / 40, up to 1/16; he makes 1/40 of risk, that is 0.4 of a step.
    """
    told = []
    for offset in (np.arange(100) + 0.5) / 100:
        means = []
        for risk in (0.0, 1.0):
            risks = np.full(40, (7.5 / 16 - 1 / 80) * 40 / 39)
            risks[0] = risk
            table = pd.DataFrame({"window": "2025", "predicted": risks, "outcome": 0, "offset": offset})
            means.append(outcomes_by_window(smallest_cell=10).ask(Message({}), Site("A", table)).arrays["risk"][0])
        told.append(means[0] != means[1])
    assert np.mean(told) == pytest.approx(0.4, abs=0.011)


# ---- sites that lie ----

SAID = Recipe("query", "outcomes_by_window", (("every", "month"), ("most", 3), ("smallest_cell", 10)))
WINDOWS = ["2025-01", "2025-02", "all"]


def answer(**arrays: Any) -> Message:
    honest = {
        "site": pack(SITE),
        "cell": np.array(10, np.int64),
        "windows": pack(WINDOWS),
        "patients": np.array([20, 30, 50]),
        "risk": np.array([0.25, 0.5, 0.5]),
        "observed": np.array([10, 0, 10]),
    }
    return Message({name: one for name, one in {**honest, **arrays}.items() if one is not None})


def test_an_honest_answer_is_taken() -> None:
    assert windows_problem(answer(), SAID, SITE, 0) is None
    none = {name: np.array([], kind) for name, kind in (("patients", int), ("risk", float), ("observed", int))}
    assert windows_problem(answer(windows=pack([]), **none), SAID, SITE, 0) is None


@pytest.mark.parametrize(
    "lie",
    [
        {"site": pack("kenema")},
        {"risk": None},
        {"extra": np.zeros(1)},
        {"cell": np.array(5, np.int64)},
        {"cell": np.array([10, 10])},
        {"cell": np.array(10.0)},
        {"cell": np.array(10**9)},
        {"windows": pack(["2025-01", "2025-13", "all"])},
        {"windows": pack(["2025-02", "2025-01", "all"])},
        {"windows": pack(["2025-01", "2025-01", "all"])},
        {"windows": pack(["2025-01", "<b>\x1b[2J", "all"])},
        {"windows": pack(["2025-01", "2025-02"])},
        {"windows": pack(["2025-01", "all"])},
        {"windows": pack([f"2025-{month:02}" for month in range(1, 6)])},
        {"windows": pack(["2025-01" * 10**5])},
        {"patients": np.array([20, 30])},
        {"patients": np.array([20, -30, 50])},
        {"patients": np.array([0, 30, 50])},
        {"patients": np.array([25, 30, 50])},
        {"patients": np.array([20, 30, 10**12])},
        {"patients": np.array([20.0, 30.0, 50.0])},
        {"observed": np.array([10, 40, 10])},
        {"observed": np.array([10, -10, 10])},
        {"observed": np.zeros((3, 10**5), int)},
        {"risk": np.array([0.25, np.nan, 0.5])},
        {"risk": np.array([0.25, 1.5, 0.5])},
        {"risk": np.array([0.25, np.inf, 0.5])},
    ],
    ids=lambda lie: str(next(iter(lie))),
)
def test_nonsense_is_no_answer(lie: Any) -> None:
    assert windows_problem(answer(**lie), SAID, SITE, 0)


def test_a_site_that_answers_nonsense_is_named_and_the_others_count(world: Any, monkeypatch: Any) -> None:
    made, trained = world

    def lying(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if (site, topic) != (SITE, "query"):
            return reply
        words, message = decode(reply)
        return encode(words, Message({**message.arrays, "windows": pack(["\x1b[31m", "<script>", "all"])}))

    monkeypatch.setattr(made, "change", lying)
    result = made.conduct(monitor_of(trained, "lies"))
    assert [site["name"] for site in result["sites"]] == [name for name in made.names if name != SITE]
    (note,) = result["notes"]
    assert note.startswith(f"{SITE} gave no answer: ")
    assert "\x1b" not in json.dumps(result, ensure_ascii=False)
    assert "<script>" not in note
