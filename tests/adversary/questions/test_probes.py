"""A coordinator that reads patients out of the questions of a choice of partners, or out of figures of quality.

Each test is an attack over real homes with a smallest cell of 10. What the attacker would have read is reckoned from
what really left, or, where nothing leaves any more, from what exact numbers would have told.
"""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from wardround.core.codes.json_arrays import pack
from wardround.core.components.recipes import recipe_of, to_json
from wardround.core.contracts import Message, Scores, Task
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site import approvals
from wardround.deploy.site.own_model import own_figures
from wardround.deploy.site.release.disclosure import coarse_figures
from wardround.evaluate.block import result_block
from wardround.partners.probes.losses import losses
from wardround.queries.columns import kind_of
from wardround.study import assemble
from wardround.study.file import Study
from wardround.study.methods import own_method

SITE, CELL = "bo", 10


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every patient has a village of their own, by which a model can single them out, and a temperature."""
    made = in_process.Consortium(tmp_path_factory.mktemp("probes"))
    for path in made.tables.values():
        frame = pd.read_csv(path)
        villages = [f"v{row}" for row in range(len(frame))]
        frame.assign(village=villages, temperature=frame["temperature"].fillna(37.0)).to_csv(path, index=False)
    return made


def rows_of(consortium: Any) -> pd.DataFrame:
    return pd.read_csv(consortium.tables[SITE])


def approved(consortium: Any, study: Study) -> LyingCoordinator:
    """A coordinator of a study that the site has approved; it has asked nothing yet."""
    one = LyingCoordinator(consortium, study)
    one.send(SITE, "offer", {"content": study.model_dump(mode="json"), "submitter": "researcher"})
    approvals.approve(consortium.homes[SITE], study_id(study), by="admin")
    return one


def settle(one: LyingCoordinator, kinds: dict[str, str], classes: list[str]) -> None:
    task = "classification" if classes else "regression"
    schema = {"kinds": kinds, "task": task, "classes": classes}
    assert one.send(SITE, "settle", {"schema": schema, "seed": one.study.study.seed}).status is Status.OK


def worker_of(consortium: Any, study: Study) -> Any:
    return consortium.handlers[SITE]._workers[study_id(study)]


def choosing(name: str, partners: dict[str, Any]) -> Study:
    sites = list(in_process.NAMES)
    return in_process.study_of(name, 2, study={"user": SITE}, partners=partners, deploy={"sites": sites})


# ---- counts between edges ----


def test_counts_between_many_edges_tell_no_small_group(consortium: Any) -> None:
    """The ages one by one: a column fifty times at once is refused; asked in turn, counts are whole tens."""
    study = choosing("ages", {"name": "distribution_distance", "smallest_cell": CELL, "top": 1})
    one, frame = approved(consortium, study), rows_of(consortium)
    kinds = {
        name: {"flag": "number"}.get(kind_of(frame[name]), kind_of(frame[name]))
        for name in frame.columns
        if name not in ("ebola", "hospital")
    }
    settle(one, kinds, sorted(frame["ebola"].unique()))
    recipe = {"kind": "query", "name": "cells_of", "parts": []}
    query = {**recipe, "settings": {"epsilon": 0.0, "smallest_cell": CELL, "seed": None}}

    def ask(columns: list[list[float]]) -> Any:
        fields = [{"name": "age", "edges": edges, "number": True} for edges in columns]
        return one.send(SITE, "query", {"query": query, "on": "training"}, Message({"columns": pack(fields)}))

    refused = ask([[float(age)] for age in range(50)])
    assert refused.status is Status.REFUSED
    assert "more than once in one question" in refused.why
    worker = worker_of(consortium, study)
    ages = worker.own.frame["age"].iloc[worker.own.parts[0]].dropna()
    fine = False
    for middle in (25.0, 26.0, 27.0):
        told = ask([[middle]]).message.arrays
        assert not (told["cells_0"] % CELL).any()
        assert int(told["rest_0"]) % CELL == 0
        fine |= 0 < ((ages >= middle) & (ages < middle + 1)).sum() < CELL
    assert fine  # there are groups that exact counts would have told


# ---- losses of models that the coordinator makes up ----


class Judged:
    """A site that has prepared its rows by village, and a choice of partners that lets three models be judged."""

    def __init__(self, consortium: Any, name: str) -> None:
        frame = rows_of(consortium)
        study = choosing(name, {"name": "leave_one_out", "top": 1})
        self.one, self.classes = approved(consortium, study), sorted(frame["ebola"].unique())
        settle(self.one, {"village": "text"}, self.classes)
        preparation = Preparation((TextColumn("village", tuple(frame["village"])),))
        positive = self.classes.index("confirmed")
        words = {"preparation": preparation.to_json(), "positive": positive, "numbers": list(in_process.NAMES)}
        assert self.one.send(SITE, "prepare", words).status is Status.OK
        self.features = len(preparation.features)
        task = Task((self.features,), tuple(self.classes), "ebola")
        self.algorithm = to_json(recipe_of(losses(assemble.model_of(study, task), part="validation")))
        self.victims = worker_of(consortium, study).own.parts[1]
        self.outcome = frame["ebola"].iloc[self.victims].to_numpy() == self.classes[1]

    def stack(self, victims: Any, certain: float = 3.0) -> dict[str, Any]:
        """A model for every victim, which has an opinion about nobody else."""
        count = len(victims)
        kernel = np.zeros((count, self.features, 2), np.float32)
        kernel[np.arange(count), victims, 1] = certain
        return {"dense_0/kernel": kernel, "dense_0/bias": np.zeros((count, 2), np.float32)}

    def begin(self, stack: Any) -> Any:
        return self.one.send(SITE, "begin", {"algorithm": self.algorithm, "course": 1}, Message({"first": stack}))

    def round(self, stack: Any) -> Any:
        words = {"algorithm": self.algorithm, "transforms": [], "seed": self.one.study.study.seed}
        return self.one.send(SITE, "round", {**words, "round": 1, "course": 1}, Message({"params": stack}))


def test_more_models_than_the_choice_announces_are_refused_before_anything_is_computed(
    consortium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judged(consortium, "many")
    computed = []
    monkeypatch.setattr("wardround.deploy.site.study_worker.carried_round", lambda *request, **more: computed.append(1))
    for count in (1, 2, 4, 10):
        refused = judged.begin(judged.stack(judged.victims[:count]))
        assert refused.status is Status.REFUSED
        assert "does not have the arrays" in refused.why
    assert judged.begin(judged.stack(judged.victims[:3])).status is Status.OK
    uneven = judged.stack(judged.victims[:3]) | {"dense_0/bias": np.zeros((10, 2), np.float32)}
    for stack in (
        judged.stack(judged.victims[:10]),
        uneven,
        jax.tree.map(np.float64, judged.stack(judged.victims[:3])),
    ):
        refused = judged.round(stack)
        assert refused.status is Status.REFUSED
        assert "does not have the arrays" in refused.why
    assert not computed


def test_losses_of_models_that_differ_for_one_patient_tell_nothing_of_that_one(consortium: Any) -> None:
    """Of a model sure of one patient the mean loss would be below ln 2 where it is right, and above where it is not."""
    judged = Judged(consortium, "sure")
    ill, well = (judged.victims[judged.outcome == one] for one in (True, False))
    stack = judged.stack([ill[0], well[0], ill[1]])
    assert judged.begin(stack).status is Status.OK
    told = judged.round(stack)
    assert told.status is Status.OK
    arrays, rows = told.message.arrays, len(judged.victims)
    assert int(arrays["weight"]) == rows - rows % CELL < rows
    mean = arrays["loss"] / arrays["weight"]
    # Nobody's loss is above or below ln 2 but for the one, so it is told of all, in steps of 2 ln 2 a patient or more.
    assert len(set(mean.tolist())) == 1
    assert mean[0] == pytest.approx(np.log(2), abs=2 * np.log(2) / rows)
    assert len(set(arrays["squares"].tolist())) == 1
    assert not arrays["apart"].any()
    # The positive control: exact means would have told both outcomes.
    alone = np.log1p(np.exp([-3.0, 3.0]))
    assert ((rows - 1) * np.log(2) + alone[0]) / rows < np.log(2) < ((rows - 1) * np.log(2) + alone[1]) / rows


# ---- errors of a regression ----


def test_errors_of_a_model_that_is_wrong_about_one_patient_tell_nothing_of_that_one(consortium: Any) -> None:
    """All ages below the oldest but one count alike; the oldest patient's error, ever so large, would tell the age."""
    data = {"target": "temperature", "positive": None, "task": "regression"}
    study = in_process.study_of("fever", 1, data=data, model={"name": "linear", "l2": 0.0})
    one = approved(consortium, study)
    settle(one, {"age": "number"}, [])
    worker = worker_of(consortium, study)
    second, oldest = np.sort(worker.own.frame["age"].iloc[worker.own.parts[2]].dropna().to_numpy())[-2:]
    preparation = Preparation((NumberColumn("age", 0.0, float(second), 1.0, low=float(second), high=second + 40.0),))
    words = {"preparation": preparation.to_json(), "positive": 0, "numbers": list(in_process.NAMES)}
    assert one.send(SITE, "prepare", words).status is Status.OK
    task = Task((1,), (), "temperature")
    algorithm = to_json(recipe_of(assemble.build(study, own_method(study), task)))
    first = jax.tree.map(np.zeros_like, jax.device_get(assemble.model_of(study, task).init(jax.random.key(0))))
    assert one.send(SITE, "begin", {"algorithm": algorithm}, Message({"first": first})).status is Status.OK
    steep = 1e8
    model = {name: np.full_like(array, steep) if "kernel" in name else array for name, array in first.items()}
    asked = {"algorithm": algorithm, "transforms": [], "seed": study.study.seed, "round": 1, "part": "test"}
    reply = one.send(SITE, "figures", asked, Message({"sent": {"params": model}, "params": model}))
    assert reply.status is Status.OK
    told = reply.header["figures"]["sites"][SITE]
    x, y = worker.parts["test"]
    assert np.count_nonzero(x) == 1
    # What is told is the error of predicting 0, which all but the one have; a temperature is at most 45.
    for name in ("rmse", "mae"):
        assert all(30 < told[name][key] < 45 for key in ("value", "low", "high"))
    # The site has the exact figures for itself, and these would have told the age.
    own = own_figures(worker.folder)
    assert own is not None
    exact = own["figures"]["mae"]["value"] * len(y) / steep
    assert second + exact == pytest.approx(oldest, rel=1e-3)
    rows = reply.header["figures"]["rows"][SITE]
    assert rows == len(y) - len(y) % CELL


def errors_told(error: Any, actual: Any) -> dict[str, Any]:
    scores, task = Scores(actual + error, actual, np.array([0, len(actual)])), Task((1,))
    return coarse_figures(result_block(scores, task, [SITE], resamples=0), scores, task, CELL)["sites"][SITE]


def test_errors_are_told_on_the_grid_of_a_patient() -> None:
    random = np.random.default_rng(5)
    actual, error = random.normal(50, 10, 200), random.normal(0, 2, 200)
    told = errors_told(error, actual)
    # Clipping at the fences and steps of a patient's half leave figures as they are but for some percent.
    for name, exact in (
        ("rmse", np.sqrt(np.square(error).mean())),
        ("mae", np.abs(error).mean()),
        ("r2", 1 - np.square(error).mean() / actual.var()),
    ):
        assert told[name]["value"] == pytest.approx(exact, rel=0.1)
    # Fewer than a cell of patients far out, in their errors or their outcomes, are told as the last of the others.
    for few in (1, CELL - 1):
        far = np.where(np.arange(200) < few, 1e3, error)
        further = np.where(np.arange(200) < few, 1e6, error)
        assert errors_told(far, actual) == errors_told(further, actual)
        old = np.where(np.arange(200) < few, 1e4, actual)
        older = np.where(np.arange(200) < few, 1e5, actual)
        assert errors_told(error, old) == errors_told(error, older)
    assert errors_told(np.where(np.arange(200) < CELL, np.nan, error), actual)["rmse"]["value"] is None


def test_the_interval_of_a_log_loss_tells_no_single_patient() -> None:
    """A model certain of all, and wrong about up to nine: the draws in which these are would tell of them."""
    task = Task((1,), ("no", "yes"))
    actual = np.repeat([1, 0], 30)
    found = set()
    for wrong in range(CELL):
        likely = np.where((actual == 1) ^ (np.arange(60) < wrong), 0.9, 0.1)
        scores = Scores(np.stack([1 - likely, likely], axis=1), actual, np.array([0, 60]))
        block = result_block(scores, task, [SITE], resamples=50)
        told = coarse_figures(block, scores, task, CELL)["sites"][SITE]["log_loss"]
        found.add((told["value"], told["low"], told["high"]))
        if wrong:  # the positive control
            assert block["sites"][SITE]["log_loss"]["high"] > -np.log(0.9) + 0.01
    assert len(found) == 1
