import json

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper, numpy_helper

from benchmarks.planted_region import planted
from wardround.analyses.classifier_selection import classifier_selection
from wardround.classifiers.exchange import AskedTask
from wardround.classifiers.site_choices import SiteQuestion, _parts, choose_at_home, unpacked
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.column_agreement import no_rows
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.predict.selection import SelectionPredictor
from wardround.runs.explain.selection_file import read_selection
from wardround.selection.known_patients import FILE
from wardround.selection.operating_points import operating_point
from wardround.selection.settings import SelectionSettings

COLUMNS = ("lactate", "age", "pulse", "sodium", "sex")
AGREED = Agreed(
    ("A", "B"),
    {
        **{name: AgreedColumn("number") for name in COLUMNS[:4]},
        "sex": AgreedColumn("category", ("f", "m")),
        "died": AgreedColumn("category", ("no", "yes")),
    },
)
SETTINGS = {"outcome": "died", "positive": "yes", "columns": COLUMNS, "points": ("youden",), "k": 25, "shuffles": 19}


def sites(rows=1500):
    return [Site(name, table[[*COLUMNS, "died"]]) for name, table in planted(rows, 1).items()]


@pytest.fixture(scope="module")
def conducted():
    analysis = classifier_selection(**SETTINGS, smallest_cell=10)
    own = sites()
    seen = []
    inner = exchange_in_process(analysis, AGREED, own)

    def exchange(number, asked):
        seen.append((asked, inner(number, asked)))
        return seen[-1][1]

    return analysis, own, analyse(analysis, AGREED, exchange), seen


def test_one_exchange_of_classifiers_and_one_of_counts(conducted):
    _, _, report, seen = conducted
    assert len(seen) == 2
    assert report["words"][0].startswith("A, youden: gains by rules")
    assert "no benefit" in report["words"][1]
    counts = np.array(report["numbers"]["A"])
    assert (counts[..., :5] % 10 == 0).all()  # whole cells
    files = seen[0][1].arrays
    assert {name: one["file"].shape for name, one in files.items()} == {"A": (65_537,), "B": (65_537,)}


def test_a_site_keeps_its_rules_and_sends_none(conducted):
    analysis, own, _, seen = conducted
    asked = seen[1][0]
    answer = analysis.ask(AGREED, asked, own[0])
    kept = analysis.keep(AGREED, asked, own[0])
    told = json.loads(kept["selection.json"])
    assert "lactate above" in told["words"][0]
    assert set(kept) == {"selection.json", *told["files"].values()}
    assert set(told["files"]) == {"A", told["rules"][0]["source"]}
    assert set(answer.arrays) == {"counts"}


def test_answers_have_the_shapes_of_nobody(conducted):
    analysis, own, _, seen = conducted
    for asked, _ in seen:
        nobody, somebody = (analysis.ask(AGREED, asked, site) for site in (no_rows(AGREED, "C"), own[0]))
        assert {k: v.shape for k, v in nobody.arrays.items()} == {k: v.shape for k, v in somebody.arrays.items()}
        assert not any(value.any() for value in nobody.arrays.values())


def test_a_site_that_sends_none_does_not_stop_the_others(conducted):
    analysis, own, _, _ = conducted
    agreed = AGREED._replace(sites=("A", "B", "C"))
    few = Site("C", own[0].table.head(20))
    report = analyse(analysis, agreed, exchange_in_process(analysis, agreed, [*own, few]))
    assert report["words"][-1] == "1 of the sites sent no classifier."
    with pytest.raises(Refusal, match="Only 1 of 2 sites could send"):
        analyse(analysis, AGREED, exchange_in_process(analysis, AGREED, [own[0], Site("B", few.table)]))


def test_a_file_that_is_none_is_left_out(conducted):
    analysis, own, _, seen = conducted
    asked = seen[1][0].arrays
    broken = {name: np.where(np.arange(65_537) > 0, 300.5, one) for name, one in asked.items()}
    assert not analysis.ask(AGREED, Message(broken), own[0]).arrays["counts"].any()
    with pytest.raises(Refusal, match="no file"):
        unpacked(np.array([4.0, 1.0]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"positive": "perhaps"}, "has no outcome 'perhaps'"),
        ({"outcome": "lactate"}, "has no outcome 'yes'"),
        ({"patient": "sex"}, "holds words"),
    ],
)
def test_what_cannot_work_is_refused_before_anybody_is_asked(change, said):
    with pytest.raises(Refusal, match=said):
        classifier_selection(**{**SETTINGS, **change}).begin(AGREED)


def test_unknown_operating_points_are_refused():
    with pytest.raises(Refusal, match="no operating point"):
        classifier_selection(**{**SETTINGS, "points": ("often",)})


def test_patients_with_several_rows_are_in_one_part():
    table = planted(300, 2)["A"][[*COLUMNS, "died"]]
    twice = pd.concat([table, table]).assign(number=[*range(300), *range(300)])
    question = SiteQuestion("ridge", "number", SelectionSettings(), 0, 65_536, 1)
    kinds = {name: AGREED.columns[name].kind for name in COLUMNS}
    rows = _parts(question, AskedTask("died", ("no", "yes"), "yes", kinds), Site("A", twice))
    groups = [set(rows.patients[part]) for part in rows.parts]
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]


TASK = AskedTask("died", ("no", "yes"), "yes", {name: AGREED.columns[name].kind for name in COLUMNS})
QUESTION = SiteQuestion(
    "ridge", "", SelectionSettings(points=(operating_point("youden"),), k=25, shuffles=19), 0, 65_536, 10
)


@pytest.mark.parametrize("strategy", ["threshold", "hybrid"])
def test_a_site_keeps_what_following_its_choice_needs(conducted, tmp_path, strategy):
    _, own, _, seen = conducted
    files = [np.asarray(one) for _, one in sorted(seen[1][0].arrays.items())]
    made = choose_at_home(QUESTION, TASK, own[0], files)
    cell = made.choice.cells[0]
    made = made._replace(confirmed=frozenset({(cell.point.name, cell.keeps, strategy)}))
    kept = made.files()
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    selection = read_selection(tmp_path)
    assert selection.strategy == strategy
    needs = cell.strategies[strategy].threshold is not None
    assert (FILE in kept) == needs
    # For the site's test patients it decides as the choice did, which was judged there.
    rows = _parts(QUESTION, TASK, own[0])
    test = rows.frame.iloc[rows.parts[2]].reset_index(drop=True)
    found = SelectionPredictor(selection, tmp_path).predict(test)
    assert int((found["decided by"] != "A").sum()) == cell.strategies[strategy].test.rows > 0


def poisoned(packed):
    """A file whose risks are no numbers for patients above 60 alone, so that a trial on made-up rows shows nothing."""
    model = onnx.load_model_from_string(unpacked(packed))
    output = model.graph.output[0].name
    for name, value in (("sixty", 60.0), ("nil", 0.0)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
    for operator, inputs, result in (
        ("Sub", ["sixty", "age"], "left"),
        ("Log", ["left"], "grown"),
        ("Mul", ["grown", "nil"], "bad"),
        ("Add", [output, "bad"], "risks"),
    ):
        model.graph.node.append(helper.make_node(operator, inputs, [result]))
    model.graph.output[0].name = "risks"
    content = model.SerializeToString()
    room = np.zeros(len(packed))
    room[0], room[1 : 1 + len(content)] = len(content), np.frombuffer(content, np.uint8)
    return room


def test_a_lying_site_cannot_spoil_the_choice_among_the_others(conducted):
    """Not-a-number is the largest of all for an argmax: one such file would take every patient from the honest ones."""
    _, own, _, seen = conducted
    files = [np.asarray(one) for _, one in sorted(seen[1][0].arrays.items())]
    honest = choose_at_home(QUESTION, TASK, own[0], files)
    other = next(one for one in files if unpacked(one) != honest.own)
    spoiled = choose_at_home(QUESTION, TASK, own[0], [poisoned(other), *files])
    assert spoiled.others == honest.others
    assert spoiled.choice.cells[0].strategies["rules"].test == honest.choice.cells[0].strategies["rules"].test
    assert choose_at_home(QUESTION, TASK, own[0], [poisoned(other)]) is None


def test_pseudonyms_cannot_be_drawn_again_from_the_study():
    """Files are dealt out in an order that follows from their bytes alone: who sent what is not in it."""
    agreed = Agreed(("A", "B", "C", "D"), AGREED.columns)
    rng = np.random.default_rng(8)
    files = [np.concatenate([[50.0], rng.integers(0, 256, 65_536).astype(float)]) for _ in agreed.sites]

    def dealt(order):
        analysis = classifier_selection(**SETTINGS, seed=3)
        told = {site: {"file": files[place]} for site, place in zip(agreed.sites, order, strict=True)}
        return analysis.message(analysis.step(analysis.begin(agreed), Message(told))).arrays

    first, second = dealt([0, 1, 2, 3]), dealt([2, 0, 3, 1])
    assert all(np.array_equal(first[name], second[name]) for name in first)
