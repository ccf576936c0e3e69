"""A coordinator that chooses whose rows are learned from, or reads from which rows are there who the patients are.

Each test is an attack on one site over real homes with a smallest cell of 10; its docstring says what was read before.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from tests.support.adversary.noise import DECLARED, private_study
from wardround.data.noised_preparation import declared_preparation
from wardround.data.preparation import NumberColumn, Preparation, TextColumn
from wardround.data.schema import Schema
from wardround.data.site_rows import frame_for_schema, split_site_rows
from wardround.data.table import Table
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.replies import Reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site import approvals
from wardround.deploy.site.release import agreement
from wardround.deploy.site.study_summary import describe as summary_of
from wardround.queries.cards import describe
from wardround.queries.columns import kind_of
from wardround.study.file import Study

SITE = "bo"
PRIVACY = {"epsilon": 1.0, "delta": 1e-3}
Change = Callable[[pd.DataFrame], pd.DataFrame]


class Attack:
    """On one site, whose table may be changed first; the study is approved there, the rest is the attacker's."""

    def __init__(self, folder: Path, change: Change | None = None) -> None:
        self.consortium = in_process.Consortium(folder)
        path = self.consortium.tables[SITE]
        if change is not None:
            change(pd.read_csv(path)).to_csv(path, index=False)
        self.frame = pd.read_csv(path)
        self.taken: dict[str, str] = {}
        """Kinds that the attacker makes up."""

    def kinds(self, target: str = "ebola") -> dict[str, str]:
        told = {str(name): str(kind_of(column)) for name, column in self.frame.items()}
        kinds = {name: "number" if kind == "flag" else kind for name, kind in told.items() if name != target}
        return {**kinds, **self.taken}

    def settle(self, study: Study, classes: list[str], kinds: dict[str, str]) -> tuple[LyingCoordinator, Reply]:
        one = LyingCoordinator(self.consortium, study)
        one.send(SITE, "offer", {"content": study.model_dump(mode="json"), "submitter": "researcher"})
        approvals.approve(self.consortium.homes[SITE], study_id(study), by="admin")
        schema = {"kinds": kinds, "task": "classification", "classes": classes}
        return one, one.send(SITE, "settle", {"schema": schema, "seed": study.study.seed})

    def prepare(self, study: Study, classes: list[str], preparation: Preparation) -> Reply:
        kinds = {one.name: self.kinds()[one.name] for one in preparation.columns}
        one, settled = self.settle(study, classes, kinds)
        assert settled.status is Status.OK, settled.why
        words = {"positive": classes.index("confirmed"), "numbers": list(in_process.NAMES)}
        return one.send(SITE, "prepare", {"preparation": preparation.to_json(), **words})

    def declared(self) -> Preparation:
        return declared_preparation(self.kinds(), DECLARED["ranges"], DECLARED["categories"], scale="standard")


def labels_of(frame: pd.DataFrame) -> list[str]:
    return sorted(set(frame["ebola"].astype(str)) - {"relapsed"})


# ---- whose rows are learned from ----


def test_an_outcome_of_many_values_is_not_taken_for_classes(tmp_path: Path) -> None:
    """The classes were the attacker's to name above 100 values: with the code of one patient and one that nobody has,
    all other rows were dropped, and the first update was that patient's row."""

    def many(frame: pd.DataFrame) -> pd.DataFrame:
        codes = np.random.default_rng(1).integers(0, 400, len(frame))
        return frame.assign(diagnosis=[f"A{code:03d}" for code in codes])

    attack = Attack(tmp_path, many)
    times = attack.frame["diagnosis"].value_counts()
    assert len(times) > 100
    victim = str(times.index[times == 1][0])
    study = in_process.study_of("codes", 1, data={"target": "diagnosis", "positive": None})
    _, said = attack.settle(study, [victim, "never"], attack.kinds("diagnosis"))
    assert said.status is Status.REFUSED
    assert "the outcome has more than 100 values here" in said.why


@pytest.mark.parametrize("algorithm", [{"name": "fed_avg", "learning_rate": 0.1}, in_process.KEPT])
def test_fewer_training_patients_than_a_cell_are_not_learned_from(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """With a thousandth of the rows for training each site answered with the update of a single patient, exactly."""
    preparation = {"smallest_cell": 10, **DECLARED}
    data = {"shares": [0.001, 0.5, 0.499], "preparation": preparation}
    one = LyingCoordinator(
        in_process.Consortium(tmp_path), in_process.study_of("few", 1, data=data, algorithm=algorithm)
    )
    one.conduct("judge")
    answers = [each.reply for each in one.seen if each.topic == "round"]
    assert len(answers) == len(in_process.NAMES)
    for each in answers:
        assert each.status is Status.OK, each.why
        told = [np.asarray(leaf) for leaf in leaves(each.message.arrays)]
        assert told
        assert not any(leaf.any() for leaf in told)


def leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree.values() for leaf in leaves(part)] if isinstance(tree, dict) else [tree]


# ---- which rows are there ----


def test_the_rows_of_a_private_study_do_not_tell_how_many_have_a_rare_label(tmp_path: Path) -> None:
    """Two studies, one with the rare label among the classes and one without: the exact numbers of rows differed by the
    patients who have it."""

    def rare(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(ebola=["relapsed" if at < 3 else label for at, label in enumerate(frame["ebola"])])

    attack = Attack(tmp_path, rare)
    usual = labels_of(attack.frame)
    told = []
    for name, classes in (("without", usual), ("with", [*usual, "relapsed"])):
        said = attack.prepare(private_study(name, PRIVACY, rounds=1), classes, attack.declared())
        assert said.status is Status.OK, said.why
        told.append(said.message.arrays["rows"].tolist())
    assert told[0] == told[1]
    assert sum(told[0]) == len(attack.frame)


def test_a_label_that_is_no_class_counts_as_the_first_one_in_a_private_study() -> None:
    """By hand: labels 2, 1, 7, 1, of which 7 is none of the classes ("1", "2"), give 1, 0, 0, 0; else 1, 0, 0."""
    frame = pd.DataFrame({"age": [1.0, np.inf, 3.0, -np.inf], "outcome": [2, 1, 7, 1]})
    table = Table({"bo": frame}, "outcome", "classification")
    schema = Schema({"age": "number"}, "classification", ("1", "2"), ())
    preparation = Preparation((NumberColumn("age", fill=9.0),))
    found = {}
    for private in (True, False):
        rows = frame_for_schema(frame, table, schema, private=private)
        own = split_site_rows("bo", rows, table, schema, seed=1, shares=(1.0, 0.0, 0.0), by="", stratify=not private)
        clamped = Preparation((NumberColumn("age", fill=9.0, low=-100.0, high=100.0),))
        found[private] = own.prepare(preparation if private else clamped, "bo")[0]
    assert found[True][1].tolist() == [1, 0, 0, 0]
    assert found[False][1].tolist() == [1, 0, 0]
    assert found[True][0].tolist() == [[1.0], [9.0], [3.0], [9.0]]
    assert np.isinf(frame["age"]).sum() == 2, "the site's own table stays as it is"
    assert frame["outcome"].tolist() == [2, 1, 7, 1]


def test_the_rows_of_a_private_study_do_not_tell_how_many_have_no_outcome(tmp_path: Path) -> None:
    """Rows without an outcome were dropped: exact numbers of rows, and the card's, told for how many it is known."""
    unknown = 25

    def lost(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(ebola=[None if at < unknown else label for at, label in enumerate(frame["ebola"])])

    attack = Attack(tmp_path, lost)
    study = private_study("lost", PRIVACY, rounds=1)
    said = attack.prepare(study, labels_of(attack.frame.dropna(subset=["ebola"])), attack.declared())
    assert said.status is Status.OK, said.why
    assert int(said.message.arrays["rows"].sum()) == len(attack.frame)
    private = describe(SITE, attack.frame, "ebola", smallest_cell=10, private=True)
    assert (private.missing_target, private.rows) == (0, len(attack.frame) - len(attack.frame) % 10)
    # The positive control: without a promise they are dropped, and told in cells.
    assert describe(SITE, attack.frame, "ebola", smallest_cell=10).missing_target == unknown - unknown % 10
    home = attack.consortium.homes[SITE]
    text = str(summary_of(home, read_offer(home, study_id(study))).parts)
    assert f"{unknown} of these rows have no ebola" in text, "its own administrator is told"


def test_a_row_without_an_outcome_is_a_blank_row_in_a_private_study() -> None:
    """By hand: of the second row nothing is known, so age becomes the fill 9, ill 0, sex no category, outcome "1"."""
    frame = pd.DataFrame(
        {"age": [1, 2, 3], "ill": [True, True, False], "sex": ["f", "m", "m"], "outcome": [2.0, None, 1.0]}
    )
    table = Table({"bo": frame}, "outcome", "classification")
    kinds = {"age": "number", "ill": "number", "sex": "text"}
    preparation = Preparation((NumberColumn("age", fill=9.0), NumberColumn("ill"), TextColumn("sex", ("f", "m"))))
    found = {}
    for classes, private in ((("1", "2"), True), (("1", "2"), False), ((), True)):
        schema = Schema(kinds, "classification" if classes else "regression", classes, ())
        rows = frame_for_schema(frame, table, schema, private=private, blank=0.5)
        own = split_site_rows("bo", rows, table, schema, seed=1, shares=(1.0, 0.0, 0.0), by="", stratify=not private)
        found[classes, private] = [
            part[np.argsort(own.parts[0])].tolist() for part in own.prepare(preparation, "bo")[0]
        ]
    x, y = found[("1", "2"), True]
    assert (x, y) == ([[1, 1, 1, 0], [9, 0, 0, 0], [3, 0, 0, 1]], [1, 0, 0])
    assert found[("1", "2"), False] == [[x[0], x[2]], [1, 0]]
    assert found[(), True] == [x, [2.0, 0.5, 1.0]]
    assert frame["age"].tolist() == [1, 2, 3], "the site's own table stays as it is"


@pytest.mark.parametrize("value", [np.inf, 38.5])
def test_no_refusal_of_a_private_study_tells_of_an_infinite_value(tmp_path: Path, value: float) -> None:
    """A preparation without ends was refused if and only if a patient had an infinite value: a bit without noise."""

    def one(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[5, "temperature"] = value
        return frame

    attack = Attack(tmp_path, one)
    endless = tuple(
        replace(column, low=None, high=None) if isinstance(column, NumberColumn) else column
        for column in attack.declared().columns
    )
    study = private_study("endless", PRIVACY, declared=False, rounds=1)
    said = attack.prepare(study, labels_of(attack.frame), Preparation(endless))
    assert said.status is Status.OK, said.why


@pytest.mark.parametrize("value", ["high", None])
def test_no_refusal_of_a_private_study_tells_that_a_rarely_known_column_holds_words(
    tmp_path: Path, value: str | None
) -> None:
    """A column known for fewer patients than a cell counts as empty; taken for numbers, it was refused for one word."""
    attack = Attack(tmp_path, lambda frame: frame.assign(titre=[value, *[None] * (len(frame) - 1)]))
    attack.taken = {"titre": "number"}
    columns = tuple(
        TextColumn(name, ()) if kind == "text" else NumberColumn(name) for name, kind in attack.kinds().items()
    )
    study = private_study("titre", PRIVACY, declared=False, rounds=1)
    said = attack.prepare(study, labels_of(attack.frame), Preparation(columns))
    assert said.status is Status.OK, said.why


# ---- how large they become ----


def test_a_preparation_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each text column a preparation may name the categories of all sites, here 2,000 a column: 26,000 inputs of a
    patient, of which a site with 100,000 patients made 10 GB. Here the machine is small in place of the table large."""
    attack = Attack(tmp_path)
    columns = tuple(
        TextColumn(name, tuple(f"{name} {number}" for number in range(2000))) if kind == "text" else NumberColumn(name)
        for name, kind in attack.kinds().items()
    )
    wide = Preparation(columns)
    assert len(wide.features) > 20_000
    size = 4 * len(wide.features) * len(attack.frame)
    for most, status in ((size // 2, Status.REFUSED), (2 * size, Status.OK)):
        monkeypatch.setattr(agreement, "largest_matrix", lambda most=most: most)
        said = attack.prepare(in_process.study_of(f"wide{most}", 1), labels_of(attack.frame), wide)
        assert said.status is status, said.why
        assert ("inputs of each patient, which is more than this site's memory is for" in said.why) == (most < size)
    monkeypatch.undo()
    assert 1e8 < agreement.largest_matrix() < 1e13


# ---- what was declared ----


def narrowed(column: Any) -> Any:
    return replace(column, low=92.5, high=93.5, center=93.0, scale=1e-12) if column.name == "age" else column


def renamed(column: Any) -> Any:
    return replace(column, categories=("female", "anything")) if column.name == "sex" else column


@pytest.mark.parametrize("private", [True, False])
def test_a_declared_preparation_is_the_one_that_is_applied(tmp_path: Path, private: bool) -> None:
    """Age was declared from 0 to 100, and the site took a range around a single patient's; and any other words."""
    attack = Attack(tmp_path)
    honest = attack.declared()
    lies = {
        "narrowed": (tuple(narrowed(column) for column in honest.columns), "another range, or other categories"),
        "renamed": (tuple(renamed(column) for column in honest.columns), "another range, or other categories"),
        "fewer": (honest.columns[:2], "leaves out a column that the study declares"),
        "honest": (honest.columns, ""),
    }
    for name, (columns, why) in lies.items():
        data = {"preparation": {"smallest_cell": 10, **DECLARED}}
        plain = None if private else in_process.study_of(name, 1, data=data)
        study = plain or private_study(name, PRIVACY, rounds=1)
        said = attack.prepare(study, labels_of(attack.frame), Preparation(columns))
        assert said.status is (Status.REFUSED if why else Status.OK), (name, said.why)
        assert why in (said.why or "")
