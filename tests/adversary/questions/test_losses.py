"""Attack C1: patients are not read through the losses and figures of models of the coordinator's own."""

import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.adversary.actors import Exchange, LyingCoordinator
from tests.support.adversary.questions import (
    SITE,
    keep_policies,
    liar,
    rows_of,
    with_patient_numbers,
)
from wardround.core.contracts import Message
from wardround.data.preparation import Preparation, TextColumn
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id

SURE = 40.0
"""Log-odds at which a prediction is certain in single precision."""
LOSS = -np.log(1e-7)
"""Of a patient whose outcome was held to be impossible."""
LN2 = np.log(2)
"""Of one of whom nothing was said."""


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return with_patient_numbers(tmp_path_factory.mktemp("questions"))


@pytest.fixture(autouse=True)
def as_before(consortium: Any) -> Iterator[None]:
    with keep_policies(consortium):
        yield


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
    # Up or down by a secret of the site, so less than a step away.
    assert np.abs(np.subtract(told, exact)).max() < step + 1e-3
    assert step >= 2 * LOSS / len(y), "one patient more or less is at most half a step"


def test_figures_are_told_of_one_model(consortium: Any) -> None:
    one = liar(consortium, "figures")
    told = one.last(SITE, "figures")
    zeros = Message(jax.tree.map(np.zeros_like, told.message.arrays))
    assert "asked before in other words" in one.alter(told, zeros).why
    assert "no figures of other patients" in one.alter(told, part="validation").why
