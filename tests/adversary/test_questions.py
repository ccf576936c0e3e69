"""A coordinator that asks what was not approved: any part, any model, any preparation, repeated, altered, enlarged.

Each test is an attack over real homes with a smallest cell of 10. What the attacker would have read is reckoned by the
attack itself, so a test cannot pass because the attack is weak: it is compared with what the rows really hold.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from tests.support.adversary.actors import Exchange, LyingCoordinator
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.json_arrays import unpack
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site import approvals
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.release.release_list import REFUSALS
from wardround.deploy.site.study_summary import describe
from wardround.queries.cards import cards
from wardround.queries.category_counts import category_counts
from wardround.queries.histogram import histogram
from wardround.study.file import Study

SITE = "bo"
SURE = 40.0
"""Log-odds at which a prediction is certain in single precision."""


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every table has a number of the patient, which the study sets aside."""
    made = in_process.Consortium(tmp_path_factory.mktemp("questions"))
    for path in made.tables.values():
        frame = pd.read_csv(path)
        frame.assign(patient=np.arange(len(frame)) + 1000).to_csv(path, index=False)
    return made


@pytest.fixture(autouse=True)
def as_before(consortium: Any) -> Iterator[None]:
    texts = {name: home.policy_path.read_text() for name, home in consortium.homes.items()}
    yield
    for name, text in texts.items():
        consortium.homes[name].policy_path.write_text(text)


def study_of(name: str, rounds: int = 3, **tables: Any) -> Study:
    data = in_process.study_of("x").data.model_dump(mode="json", exclude_none=True)
    return in_process.study_of(name, rounds, data={**data, "split_by": "patient"}, **tables)


def rows_of(consortium: Any) -> pd.DataFrame:
    return pd.read_csv(consortium.tables[SITE])


def liar(consortium: Any, name: str, until: str | None = None, count: int = 1, **tables: Any) -> LyingCoordinator:
    one = LyingCoordinator(consortium, study_of(name, **tables))
    one.conduct(until, count)
    return one


def entries(consortium: Any, kind: str, study: Study) -> list[dict[str, Any]]:
    lines = consortium.homes[SITE].audit_path.read_bytes().splitlines()
    found = [json.loads(line)["entry"] for line in lines]
    return [one for one in found if one["kind"] == kind and one.get("study") == study_id(study)]


# ---- C1: reading patients through `judge` ----

LOSS = -np.log(1e-7)
"""Of a patient whose outcome was held to be impossible."""
LN2 = np.log(2)
"""Of one of whom nothing was said."""


class JudgeAttack:
    """Shows a model nothing but whether a column has one value, and reads from the loss who has it and what became
    of them: a patient with the value loses 0 or 16.1, every other one ln 2."""

    def __init__(self, one: LyingCoordinator) -> None:
        self.one, self.judged = one, one.last(SITE, "judge")
        self.settled, self.prepared = one.last(SITE, "settle"), one.last(SITE, "prepare")
        self.classes = self.settled.header["schema"]["classes"]
        text = json.dumps(self.judged.header["algorithm"])
        start = text.index('"shape": [')
        self.recipe = json.loads(text[:start] + '"shape": [1]' + text[text.index("]", start) + 1 :])
        self.tries = 0
        begun = one.last(SITE, "begin")
        one.alter(begun, self.model(begun, 0.0), algorithm=self.recipe)

    def model(self, like: Exchange, odds: float) -> Message:
        """A logistic model of one feature: certain of those with the value, and of nobody else."""

        def changed(array: Any) -> Any:
            return np.array([[0.0, odds]], np.float32) if np.ndim(array) == 2 else np.zeros(2, np.float32)

        return Message(jax.tree.map(changed, like.message.arrays))

    def show(self, column: str, value: str) -> None:
        kinds = {**self.settled.header["schema"], "kinds": {column: "text"}}
        self.one.alter(self.settled, schema=kinds)
        self.one.alter(self.prepared, preparation=Preparation((TextColumn(column, (value,)),)).to_json())

    def mean(self, part: str, odds: float) -> float | None:
        """The mean loss of a part; each time of a slightly other model, lest an old answer be given again."""
        self.tries += 1
        model = self.model(self.judged, odds * (1 + self.tries / 1000))
        said = self.one.alter(self.judged, model, part=part, algorithm=self.recipe)
        if said.status is not Status.OK or not int(said.message.arrays["rows"]):
            return None
        return float(said.message.arrays["loss"]) / int(said.message.arrays["rows"])

    def outcome(self, patient: int) -> str | None:
        self.show("patient", str(patient))
        for part in ("train", "validation", "test"):
            mean = self.mean(part, SURE)
            if mean is not None and abs(mean - LN2) > 1e-4:
                return str(self.classes[1] if mean < LN2 else self.classes[0])
        return None

    def training_patients(self) -> int | None:
        """How many there are, to the patient: from how much one of them weighs."""
        for patient in range(1000, 1020):
            self.show("patient", str(patient))
            mean = self.mean("train", SURE)
            if mean is not None and abs(mean - LN2) > 1e-4:
                return round(LN2 / (LN2 - mean) if mean < LN2 else (LOSS - LN2) / (mean - LN2))
        return None

    def count(self, column: str, value: str, among: int) -> int | None:
        self.show(column, value)
        yes, no = (self.mean("train", odds) for odds in (SURE, -SURE))
        return None if yes is None or no is None else round(among * (yes + no - 2 * LN2) / (LOSS - 2 * LN2))


def test_no_patients_outcome_is_read_through_a_preparation_of_the_coordinators_own(consortium: Any) -> None:
    attack = JudgeAttack(liar(consortium, "outcomes", "judge", 4))
    real = rows_of(consortium).set_index("patient")["ebola"].astype(str)
    read = {patient: attack.outcome(patient) for patient in range(1000, 1012)}
    right = sum(read[patient] == real[patient] for patient in read)
    assert set(read.values()) == {None}, f"{right} of {len(read)} outcomes were read"
    tried = [each for each in attack.one.seen if each.topic in ("settle", "prepare")][-2 * len(read) :]
    assert {each.reply.status for each in tried} == {Status.REFUSED}


def test_no_count_is_read_through_the_losses_of_training_patients(consortium: Any) -> None:
    attack = JudgeAttack(liar(consortium, "counts", "judge", 4))
    frame = rows_of(consortium)
    few = [column for column in frame if frame[column].nunique() < 5]
    wanted = [(column, str(value)) for column in few for value in frame[column].dropna().unique()]
    assert len(wanted) > 10
    worker = consortium.handlers[SITE]._workers[study_id(attack.one.study)]
    rows = frame.iloc[worker.own.parts[0]]
    real = [int((rows[column].astype(str) == value).sum()) for column, value in wanted]
    among = attack.training_patients()
    read = [attack.count(column, value, among or 1) for column, value in wanted]
    right = sum(one == two for one, two in zip(read, real, strict=True))
    assert (among, read) == (None, [None] * len(wanted)), f"{right} of {len(wanted)} counts were read exactly"


def test_a_model_is_judged_by_validation_patients_and_as_often_as_listed(consortium: Any) -> None:
    """Three rounds, each with one look, and three more for a coordinator that died: no further model is judged, and the
    same one again costs nothing."""
    one = liar(consortium, "looks")
    judged = [each for each in one.seen if (each.site, each.topic) == (SITE, "judge")]
    assert len(judged) == 3
    moved = [Message(jax.tree.map(lambda array, by=by: array + by, judged[0].message.arrays)) for by in range(1, 5)]
    other = moved.pop()
    assert [one.alter(judged[-1], model).status for model in moved] == ["ok"] * 3
    for _ in range(2):
        for part in ("train", "test"):
            assert "no judge of other patients" in one.alter(judged[-1], part=part).why
        assert "has 6, and all were given" in one.alter(judged[-1], other).why
        assert one.replay(judged[0]).message.arrays == judged[0].reply.message.arrays
        consortium.restart(SITE)


def test_a_look_on_the_list_tells_of_no_single_patient(consortium: Any) -> None:
    """A model of the agreed columns that is certain of an outcome for the oldest validation patients, fewer than a
    cell, and of the other outcome for all others: exactly, the mean would tell what became of the oldest."""
    one = liar(consortium, "one-patient", "judge", 4)
    judged = one.last(SITE, "judge")
    worker = consortium.handlers[SITE]._workers[study_id(one.study)]
    place = list(worker.own.schema.kinds).index("age")
    assert all(kind == "number" for kind in list(worker.own.schema.kinds.values())[:place])
    x, y = worker.parts["validation"]
    ages = np.unique(x[:, place])
    oldest = x[:, place] == ages[-1]
    assert 0 < oldest.sum() < 10
    told, exact = [], []
    for outcome in (0, 1):
        slope = 2 * SURE / (ages[-1] - ages[-2])

        def aimed(array: Any, outcome: int = outcome, slope: float = slope) -> Any:
            # The odds of this outcome are 40 for the oldest and at most -40 for all others, of whom the loss is ...
            new = np.zeros_like(array)
            new[(place, outcome) if new.ndim == 2 else outcome] = slope if new.ndim == 2 else SURE - slope * ages[-1]
            return new

        said = one.alter(judged, Message(jax.tree.map(aimed, judged.message.arrays)))
        assert said.status is Status.OK, said.why
        told.append(float(said.message.arrays["loss"]) / int(said.message.arrays["rows"]))
        # ... 16.1 where they have it and 0 where they have not; of the oldest it is the other way round.
        exact.append(float(np.where((y == outcome) != oldest, LOSS, 0.0).mean()))
    step = 2.0 ** np.ceil(np.log2(2 * LOSS / len(y)))
    assert [value / step for value in told] == [round(value / step) for value in told]
    assert np.abs(np.subtract(told, exact)).max() <= step / 2 + 1e-3
    assert step >= 2 * LOSS / len(y), "one patient more or less is at most half a step"


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


def test_figures_are_told_of_one_model(consortium: Any) -> None:
    one = liar(consortium, "figures")
    told = one.last(SITE, "figures")
    zeros = Message(jax.tree.map(np.zeros_like, told.message.arrays))
    assert "asked before in other words" in one.alter(told, zeros).why
    assert "no figures of other patients" in one.alter(told, part="validation").why


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
        approvals.store_offer(home, study_id(each), each.model_dump(mode="json"), "researcher")
        approvals.approve(home, study_id(each), by="admin")
    LyingCoordinator(small, studies[0]).conduct()
    offer = approvals.store_offer(home, study_id(studies[2]), studies[2].model_dump(mode="json"), "researcher")
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
    train = study_worker.site_round
    monkeypatch.setattr(study_worker, "site_round", lambda *a, **k: (looked.append("rows"), train(*a, **k))[1])
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


# ---- M2, M4, a list that grew, refusals without end ----


def test_a_column_denied_amid_a_study_ends_it(consortium: Any) -> None:
    """`temperature` is no column that the study names: it is only read."""
    one = liar(consortium, "denied", "round", 4)
    access = HomeAccess(consortium.homes[SITE])
    assert access.state(study_id(one.study))[0] is Status.OK
    set_policy(consortium.homes[SITE].policy_path, "columns_denied", "temperature")
    said = one.alter(one.last(SITE, "round", round=1), round=2)
    assert said.status is Status.DENIED
    assert "column 'temperature' is not allowed" in said.why
    assert one.replay(one.last(SITE, "round", round=1)).status is Status.DENIED


def test_a_column_allowed_after_the_approval_is_not_read(consortium: Any) -> None:
    home = consortium.homes[SITE]
    set_policy(home.policy_path, "columns_denied", "temperature")
    study = study_of("later")
    approvals.store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    approvals.approve(home, study_id(study), by="admin")
    set_policy(home.policy_path, "columns_denied", "")
    table = HomeAccess(home).table(study)
    assert "temperature" not in table.sites[SITE].columns
    assert "age" in table.sites[SITE].columns


def test_a_list_that_grew_since_the_approval_is_not_answered(consortium: Any) -> None:
    one = liar(consortium, "grown", "round", 4)
    set_policy(consortium.homes[SITE].policy_path, "smallest_cell", "5")
    said = one.replay(one.last(SITE, "round", round=1))
    assert said.status is Status.DENIED
    assert "approved a shorter list of what may leave" in said.why
    assert "groups of 5 patients, 10 approved" in said.why
    assert "\n" not in said.why
    # Approved again, with the list as it is now, it goes on.
    approvals.approve(consortium.homes[SITE], study_id(one.study), by="admin")
    assert one.replay(one.last(SITE, "round", round=1)).status in (Status.OK, Status.REFUSED)
    assert read_policy(consortium.homes[SITE].policy_path).smallest_cell == 5


def test_a_request_larger_than_any_of_the_study_is_not_even_decoded(consortium: Any) -> None:
    """64 MB where a model has a few hundred numbers; that the arrays are no arrays is not noticed any more."""
    one = liar(consortium, "large", "round", 4)
    asked = one.last(SITE, "round", round=1)
    large = {**asked.message.arrays, "more": np.zeros(16 << 20, np.float32)}
    body = bytearray(encode({**asked.header, "round": 2}, Message(large)))
    body[-(60 << 20) :] = b"x" * (60 << 20)
    said = one.deliver(SITE, "round", bytes(body))
    assert said.status is Status.REFUSED
    assert "are allowed for round" in said.why
    assert one.deliver(SITE, "hello", encode({**asked.header}, Message(large))).status is Status.REFUSED
    sent = entries(consortium, "sent", one.study)
    listed = {each.kind: each for each in HomeAccess(consortium.homes[SITE]).releases(study_id(one.study))}
    assert sent
    assert all(each["bytes"] <= listed[each["release"]].bytes for each in sent)


def test_refusals_are_written_down_once_each_and_not_without_end(consortium: Any) -> None:
    one = liar(consortium, "refusals", "round", 4)
    asked = one.last(SITE, "round", round=1)
    for _ in range(5):
        one.alter(asked, round=99)
    written = entries(consortium, "refused", one.study)
    assert len(written) == 1
    assert "rounds 1 to 3" in written[0]["why"]
    long = "x" * 5000
    for number in range(REFUSALS + 20):
        said = one.send(
            SITE,
            "query",
            {"query": {"kind": "query", "name": f"{number}{long}", "settings": {}, "parts": []}, "on": "raw"},
        )
        assert said.status is Status.REFUSED
        assert len(said.why) <= 2000
    written = entries(consortium, "refused", one.study)
    assert len(written) == REFUSALS
    assert all(len(each["request"]) == 32 and long not in json.dumps(each) for each in written)
    assert "not told any more" in said.why
    consortium.restart(SITE)
    assert "not told any more" in one.alter(asked, extra="word").why


# ---- approval ----


def test_the_approval_names_all_that_left(consortium: Any) -> None:
    """A whole honest study: every reply in the audit log is of a listed kind, and no kind more often than listed."""
    one = liar(consortium, "honest")
    home = consortium.homes[SITE]
    decision = approvals.read_decision(home, study_id(one.study))
    assert decision is not None
    listed = {each["kind"]: each for each in decision.releases}
    used: dict[str, set[str]] = {}
    for each in entries(consortium, "sent", one.study):
        used.setdefault(each["release"], set()).add(each["slot"])
    spare = {"judge": 3}
    assert {kind: len(slots) for kind, slots in used.items()} == {
        kind: listed[kind]["times"] - spare.get(kind, 0) for kind in used
    }, "an honest study of three rounds asks for all that is listed but the looks for a coordinator that died"
    assert set(listed) - set(used) == {"diverged", "refusal"}
    (approved,) = entries(consortium, "approved", one.study)
    assert approved["releases_hash"] == decision.releases_hash
