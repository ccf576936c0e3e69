"""A coordinator that asks what was not approved: any part, any model, any preparation, repeated, altered, enlarged.

Each test is an attack over real homes with a smallest cell of 10. What the attacker would have read is reckoned by the
attack itself, so a test cannot pass because the attack is weak: it is compared with what the rows really hold.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.support import in_process
from tests.support.adversary.actors import Exchange, LyingCoordinator
from tests.support.adversary.questions import SITE, entries, keep_policies, liar, with_patient_numbers
from wardround.core.codes.json_arrays import unpack
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.deploy.party import decisions
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site import approvals
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.study_summary import describe
from wardround.queries.cards import cards
from wardround.queries.category_counts import category_counts
from wardround.queries.histogram import histogram


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return with_patient_numbers(tmp_path_factory.mktemp("questions"))


@pytest.fixture(autouse=True)
def as_before(consortium: Any) -> Iterator[None]:
    with keep_policies(consortium):
        yield


# ---- settled once, prepared once, each round once ----


def test_what_was_agreed_is_not_agreed_again(consortium: Any) -> None:
    one = liar(consortium, "frozen", "round", 4)
    settled, prepared, begun = (one.last(SITE, topic) for topic in ("settle", "prepare", "begin"))
    kinds = dict(settled.header["schema"]["kinds"])
    fewer = {name: kinds[name] for name in list(kinds)[:3]}
    again = [
        one.alter(settled, schema={**settled.header["schema"], "kinds": fewer}),
        one.alter(prepared, positive=1 - prepared.header["positive"]),
        one.alter(begun, Message(jax.tree.map(lambda array: array + 1, begun.message.arrays))),
    ]
    assert [each.status for each in again] == [Status.REFUSED] * 3
    assert all("asked before in other words" in each.why for each in again)
    for honest in (settled, prepared, begun):
        assert one.replay(honest).header == honest.reply.header


def test_a_round_has_one_answer_whatever_the_words_around_it(consortium: Any) -> None:
    """Another model under the same words and nonce; an extra word; the same JSON in other bytes; after a restart."""
    one = liar(consortium, "one-answer", "round", 7)
    first, latest = one.last(SITE, "round", round=1), one.last(SITE, "round", round=2)
    other = Message(jax.tree.map(lambda array: array + 1, latest.message.arrays))
    for _ in range(2):
        for asked in (first, latest):
            lies = [
                one.alter(asked, other, nonce=asked.header["nonce"]),
                one.alter(asked, other),
                one.alter(asked, extra=1),
                one.deliver(SITE, "round", encode({**asked.header, "transforms": [], "": ""}, asked.message)),
                one.deliver(SITE, "round", reordered(asked)),
                one.alter(asked, course=1),
                one.alter(asked, seed=asked.header["seed"] + 1),
            ]
            assert {lie.status for lie in lies} == {Status.REFUSED}
            assert all(not lie.message.arrays for lie in lies)
            assert one.replay(asked).header == asked.reply.header
        consortium.restart(SITE)
    assert one.alter(latest, round=9).status is Status.REFUSED
    sent = [each["round"] for each in entries(consortium, "sent", one.study) if each["topic"] == "round"]
    assert sent == [1, 2]


def reordered(asked: Exchange) -> bytes:
    """The same words in another order: other bytes."""
    return encode(dict(reversed(list(asked.header.items()))), asked.message)


# ---- statistics ----


def test_statistics_are_about_the_agreed_columns_and_asked_as_often_as_listed(consortium: Any) -> None:
    one = liar(consortium, "statistics", "round")
    kinds = one.last(SITE, "settle").header["schema"]["kinds"]
    numbers = tuple(name for name, kind in kinds.items() if kind != "text")
    attacks = {
        "labels of another column": (cards(target="sex", smallest_cell=10), "raw", {}),
        "the number of values": (category_counts(columns=("patient",), most=3, smallest_cell=10), "training", {}),
        "a column set aside": (histogram(columns=("patient",), smallest_cell=10), "training", {"edges": edges(1)}),
        "ever other edges": (histogram(columns=numbers, smallest_cell=10), "training", {"edges": edges(len(numbers))}),
    }
    for name, (query, on, arrays) in attacks.items():
        said = one.send(SITE, "query", {"query": to_json(recipe_of(query)), "on": on}, Message(arrays))
        assert said.status is Status.REFUSED, name
        assert not said.message.arrays


def edges(columns: int) -> Any:
    return np.tile(np.linspace(0.0, 2000.0, 65), (columns, 2, 1))


def test_a_refused_statistic_counts_as_a_told_one(consortium: Any) -> None:
    """Else the refusals of ever other limits would tell how many values a column has: a bit each."""
    one = liar(consortium, "limits", "query", 4)  # the sites have told their cards and agreed on a schema
    kinds = one.last(SITE, "settle").header["schema"]["kinds"]
    words = tuple(name for name, kind in kinds.items() if kind == "text")
    for most, why in ((1, "another limit than 200"), (200, "has 1, and all were given")):
        query = category_counts(columns=words, most=most, smallest_cell=10)
        said = one.send(SITE, "query", {"query": to_json(recipe_of(query)), "on": "training"})
        assert why in said.why


def test_statistics_have_a_budget_over_studies(consortium: Any, tmp_path: Path) -> None:
    """Two studies, each with a split of its own, ask for five statistics each: seven are allowed over both."""
    small = in_process.Consortium(tmp_path, ("bo", "freetown"))
    home = small.homes[SITE]
    studies = [in_process.study_of(f"split-{seed}", 1, study={"seed": seed}) for seed in (1, 2, 3)]
    set_policy(home.policy_path, "statistics", "12")
    for each in studies[:2]:
        decisions.store_offer(home, study_id(each), each.model_dump(mode="json"), "researcher")
        approvals.approve(home, study_id(each), by="admin")
    LyingCoordinator(small, studies[0]).conduct()
    offer = decisions.store_offer(home, study_id(studies[2]), studies[2].model_dump(mode="json"), "researcher")
    words = dict(describe(home, offer).parts)["What leaves, all of it"]
    assert words[-1] == "Statistics about demo: this study uses up to 5 of 12; 5 used so far."
    set_policy(home.policy_path, "statistics", "7")
    with pytest.raises(Refusal, match="asks for up to 5 statistics about demo, and 5 of the 7"):
        approvals.approve(home, study_id(studies[2]), by="admin")
    second = LyingCoordinator(small, studies[1])
    with pytest.raises(Refusal, match="All 7 statistics that this site tells about one dataset have been told"):
        second.conduct()
    told = [each for each in second.seen if (each.site, each.topic) == (SITE, "query") and each.reply.message.arrays]
    assert len(told) == 2
    assert second.replay(told[0]).message.arrays.keys() == told[0].reply.message.arrays.keys()


# ---- what a site accepts as agreed ----


def test_a_schema_or_preparation_of_the_coordinators_own_making_is_refused_at_first_use(consortium: Any) -> None:
    one = liar(consortium, "first-settle", "settle")
    card = unpack(one.last(SITE, "query").reply.message.arrays["card"])
    features = {name: kind for name, kind in card["kinds"].items() if name not in ("ebola", "patient")}
    kinds = {name: "number" if kind == "flag" else kind for name, kind in features.items()}
    good = {"kinds": kinds, "task": "classification", "classes": sorted(card["labels"])}
    some = next(name for name, kind in kinds.items() if kind == "number")
    wrong = {
        "a column set aside": {**good, "kinds": {**kinds, "patient": "number"}},
        "the outcome as input": {**good, "kinds": {**kinds, "ebola": "text"}},
        "another kind": {**good, "kinds": {**kinds, some: "text"}},
        "an unknown column": {**good, "kinds": {**kinds, "secret": "number"}},
        "patients dropped by outcome": {**good, "classes": [good["classes"][0], "nobody"]},
        "a quantity": {**good, "task": "regression", "classes": []},
    }
    for name, schema in wrong.items():
        said = one.send(SITE, "settle", {"schema": schema, "seed": one.study.study.seed})
        assert said.status is Status.REFUSED, name
    assert one.send(SITE, "settle", {"schema": good, "seed": one.study.study.seed}).status is Status.OK
    columns = [NumberColumn(n) if k != "text" else TextColumn(n, ("yes", "no")) for n, k in kinds.items()]
    at = [column.name for column in columns].index(some)

    def prepare(*changed: Any, **words: Any) -> Any:
        usual = {
            "preparation": Preparation(changed or tuple(columns)).to_json(),
            "positive": 0,
            "numbers": list(consortium.names),
        }
        return one.send(SITE, "prepare", {**usual, **words})

    def with_number(**words: Any) -> list[Any]:
        return [*columns[:at], NumberColumn(some, **words), *columns[at + 1 :]]

    bad = {
        "one column only": prepare(columns[at]),
        "a column set aside": prepare(*columns, NumberColumn("patient")),
        "a tiny width": prepare(*with_number(center=37.0, scale=1e-30)),
        "a huge center": prepare(*with_number(center=1e30)),
        "what is missing": prepare(*with_number(indicator=True)),
        "other sites": prepare(numbers=["bo", "freetown", "zzz", *[f"z{n}" for n in range(50)]][::-1]),
        "without this site": prepare(numbers=["freetown", "kenema"]),
        "an outcome beyond": prepare(positive=7),
    }
    assert {name: said.status for name, said in bad.items()} == dict.fromkeys(bad, Status.REFUSED)


# ---- models ----


def test_a_model_that_overflows_is_turned_away_before_any_patient_is_looked_at(
    consortium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wardround.deploy.site import study_worker

    one = liar(consortium, "overflow", "round", 7)
    latest = one.last(SITE, "round", round=2)
    looked: list[str] = []
    train = study_worker.carried_round
    monkeypatch.setattr(study_worker, "carried_round", lambda *a, **k: (looked.append("rows"), train(*a, **k))[1])
    for value in (np.nan, np.inf, 3e38, 2e20):
        arrays = {name: fill(tree, value) for name, tree in latest.message.arrays.items()}
        said = one.alter(latest, Message(arrays), round=3)
        assert said.status in (Status.REFUSED, Status.DIVERGED)
        assert not said.message.arrays
    cut = {name: fill(tree, 0.0, slice(1)) for name, tree in latest.message.arrays.items()}
    assert one.alter(latest, Message(cut), round=3).status is Status.REFUSED
    assert looked == []


def fill(tree: Any, value: float, part: Any = None) -> Any:
    if isinstance(tree, dict):
        return {name: fill(inner, value, part) for name, inner in tree.items()}
    array = np.full_like(np.asarray(tree), value)
    return array if part is None or not array.ndim else array[part]
