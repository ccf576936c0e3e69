"""Trees for the hazard of an event: the splits of all rows in one place, and what is wrong with times."""

import numpy as np
import pytest

from tests.support.analyses.tree_sites import COLUMNS, agreed, dealt, names_of, patients
from wardround.analyses.boosted_trees import TERMS, boosted_trees
from wardround.core.analysis import AgreedColumn
from wardround.core.components.terms import Extent
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.statistics.survival.concordance import comparable_pairs

WORDS = {"target": "died", "time": "days"}
FIT = {"trees": 8, "depth": 3, "validation": 0.0, "test": 0.0, "effects": 0, "columns": COLUMNS, **WORDS}


def cohort(rows, seed):
    """Whose hazard rises with age, with lactate, and in two wards; some are censored."""
    table, draw = patients(rows, seed), np.random.default_rng(seed + 100)
    raised = np.isin(table["ward"], ("B", "D"))
    score = 0.04 * (table["age"] - 55) + 0.5 * table["lactate"].fillna(2.5) + 0.8 * raised - 1
    event, leaves = draw.exponential(1000 * np.exp(-score)), draw.uniform(100, 3000, rows)
    return table.assign(days=np.minimum(event, leaves).round(1), died=(event <= leaves) * 1.0)


TABLE = cohort(2000, 1)


def public(*names):
    known = agreed(*names)
    return known._replace(columns={**known.columns, "days": AgreedColumn("number"), "died": AgreedColumn("number")})


def grown(analysis, sites):
    known = public(*names_of(sites))
    exchange, state, number = exchange_in_process(analysis, known, sites), analysis.begin(known), 0
    while (asked := analysis.message(state)) is not None:
        number += 1
        state = analysis.step(state, exchange(number, asked))
    return state, number


def report(analysis, sites):
    known = public(*names_of(sites))
    return analyse(analysis, known, exchange_in_process(analysis, known, sites))


def test_sites_grow_the_trees_of_one():
    alone, _ = grown(boosted_trees(fewest_sites=1, **FIT), [Site("all", TABLE)])
    spread, exchanges = grown(boosted_trees(**FIT), dealt(TABLE, 4))
    np.testing.assert_array_equal(alone.common.time.edges, spread.common.time.edges)
    np.testing.assert_array_equal(alone.forest.column, spread.forest.column)
    np.testing.assert_array_equal(alone.forest.left, spread.forest.left)
    # Three for the bins, a hazard and three levels a tree, a hazard and a look at the end.
    assert exchanges == 3 + 8 * (1 + 3) + 2


def test_the_first_split_is_the_best_of_all_by_the_definition():
    # Every cut of age, tried on the rows themselves with slopes made from whole risk sets, patient by patient.
    words = FIT | {"columns": ("age",), "trees": 1, "depth": 1, "learning_rate": 1.0, "smallest_leaf": 30}
    state, _ = grown(boosted_trees(**words), dealt(TABLE, 3))
    place = np.searchsorted(state.common.time.edges, TABLE["days"], side="right")
    event = TABLE["died"].to_numpy() > 0
    risk = np.array([(place >= own).sum() for own in place])
    gradient = np.array([(1 / risk[event & (place <= own)]).sum() for own in place]) - event
    hessian = np.array([(1 / risk - 1 / risk**2)[event & (place <= own)].sum() for own in place])
    found = []
    for edge in state.common.features[0].edges:
        sides = TABLE["age"].to_numpy() < edge, TABLE["age"].to_numpy() >= edge
        gain = sum(gradient[side].sum() ** 2 / (hessian[side].sum() + 1) for side in sides)
        enough = min(side.sum() for side in sides) >= 30
        found.append((gain if enough else -np.inf, edge, [-gradient[s].sum() / (hessian[s].sum() + 1) for s in sides]))
    _, edge, values = max(found)
    bits = np.unpackbits(state.forest.left[0, 0, 0])
    assert state.common.features[0].edges[bits[: state.common.features[0].size].sum() - 1] == edge
    np.testing.assert_allclose(state.forest.value[0, 0], values, rtol=1 / 128)


def test_a_leaf_holds_as_many_patients_as_was_said():
    # A hazard's curvature is not bounded, so rows are counted; a leaf of fewer would else be worth it.
    state, _ = grown(boosted_trees(**FIT | {"smallest_leaf": 150}), dealt(TABLE, 3))
    assert state.shape.rules.fewest == 150
    for tree in range(state.forest.trees):
        age = state.common.features[0].edges
        nodes = state.forest.column[tree, 0]
        if nodes[0] == 0:
            left = np.unpackbits(state.forest.left[tree, 0, 0])[: len(age) + 1].sum()
            below = (TABLE["age"] < age[left - 1]).sum()
            assert min(below, len(TABLE) - below) >= 150


def test_a_report_says_how_patients_are_ordered_and_what_intervals_cost():
    found = report(boosted_trees(columns=COLUMNS, trees=25, depth=3, personal=2, **WORDS), dealt(TABLE, 4))
    numbers, text = found["numbers"], " ".join(found["words"])
    # The truth orders these patients with a C of about 0.75.
    assert 0.69 < numbers["c_index"] < 0.8
    assert set(numbers["c_index_by_site"]) == set(numbers["personal_c_index_by_site"]) == {"H0", "H1", "H2", "H3"}
    assert 0 < numbers["pairs_in_one_interval"] < 0.03
    assert numbers["validation_loss"][-1] < numbers["validation_loss"][0]
    assert min(numbers["permutation"].values()) > 0
    ages = [row[1] for row in numbers["effects"]["age"]]
    assert ages[-1] > 3 * ages[0]
    for words in ("C-index", "intervals of days: the order of", "the relative hazard of died rises"):
        assert words in text


def test_the_model_gives_log_hazards_that_order_new_patients():
    known, kept = public("H0", "H1", "H2"), []
    analysis, sites = boosted_trees(**FIT | {"increasing": ("age",), "trees": 20}), dealt(TABLE, 3)
    analyse(analysis, known, exchange_in_process(analysis, known, sites), kept.append)
    assert (kept[0].target, kept[0].classes) == ("log hazard of died", ())
    new = cohort(600, 8)
    age, lactate = new["age"].to_numpy(), new["lactate"].to_numpy()
    wards = np.stack([new["ward"] == ward for ward in "ABCD"], axis=1)
    zero = np.zeros((600, 1))

    def predicted(age):
        x = np.column_stack([age, zero, np.nan_to_num(lactate), np.isnan(lactate), wards, zero]).astype(np.float32)
        return np.asarray(analysis.predict(kept[0].params, x))

    assert comparable_pairs(new["days"].to_numpy(), new["died"].to_numpy(), predicted(age)).c_index > 0.7
    assert (predicted(age + 10) >= predicted(age)).all(), "age may only raise the hazard"


def test_a_site_that_forgot_everything_answers_as_one_that_remembers_in_shapes_that_tell_nothing():
    sites, known = dealt(TABLE, 3), public("H0", "H1", "H2")
    words = {"trees": 2, "depth": 2, "columns": COLUMNS, **WORDS}
    analysis = boosted_trees(**words)
    exchange, state, number = exchange_in_process(analysis, known, sites), analysis.begin(known), 0
    most, seen = TERMS.numbers(Extent(words, sites=3, columns=5)), {}
    while (asked := analysis.message(state)) is not None:
        number += 1
        one, again = (
            made.ask(known, asked, site).arrays
            for made, site in ((analysis, sites[0]), (boosted_trees(**words), Site("H0", sites[0].table.copy())))
        )
        nobody = boosted_trees(**words).ask(known, asked, Site("H0", sites[0].table.head(0))).arrays
        for name, array in one.items():
            np.testing.assert_array_equal(array, again[name])
            assert array.shape == nobody[name].shape
            assert np.isfinite(array).all()
            assert np.isfinite(nobody[name]).all()
        assert sum(array.size for array in one.values()) <= most
        kind = analysis.kind(asked)
        seen[kind.name] = seen.get(kind.name, 0) + 1
        assert seen[kind.name] <= kind.most
        state = analysis.step(state, exchange(number, asked))
    assert not analysis.alone, "under a secure sum only"


BAD = {
    "no time": ({"time": "", "objective": "cox"}, "the objective is 'cox', and no time is said"),
    "time of a class": ({"objective": "logistic"}, "the objective is 'logistic', and the time is 'days'"),
    "time among the columns": ({"columns": ("age", "days")}, "the target 'days' is also among the columns"),
    "time in words": ({"time": "ward", "columns": ("age",)}, "the time 'ward' does not hold numbers"),
    "time is the target": ({"time": "died"}, "the time 'died' is the target itself"),
    "unknown time": ({"time": "dayz"}, "there is no column 'dayz'.*days"),
    "one interval": ({"time_bins": 1}, "time_bins is 1"),
    "noise": ({"epsilon": 1.0}, "noise is calibrated for classes"),
}


@pytest.mark.parametrize(("settings", "words"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused_before_anybody_is_asked(settings, words):
    with pytest.raises(Refusal, match=f"(?i){words}") as refusal:
        boosted_trees(**{"columns": COLUMNS, **WORDS} | settings).begin(public("A", "B", "C"))
    assert "\n" not in str(refusal.value)


def changed(**columns):
    sites = dealt(TABLE.head(600), 3)
    return [*sites[:2], Site("H2", sites[2].table.assign(**columns))]


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (changed(days=lambda table: table["days"] - 500), "negative times .site H2"),
        (changed(days=lambda table: table["days"] / 30.44), "times that of another: days and months"),
        (changed(died=2), "does not hold 0 and 1 .site H2.*positive = "),
        ([Site(site.name, site.table.assign(died=0)) for site in changed()], "patients are censored: nobody had"),
    ],
    ids=["negative", "units", "no event column", "no events"],
)
def test_times_that_cannot_be_are_refused(sites, words):
    with pytest.raises(Refusal, match=f"(?i){words}"):
        report(boosted_trees(columns=COLUMNS, trees=2, **WORDS), sites)


def test_a_hazard_that_is_none_is_not_answered():
    sites, known = dealt(TABLE, 3), public("H0", "H1", "H2")
    analysis = boosted_trees(**FIT)
    state = analysis.begin(known)
    exchange = exchange_in_process(analysis, known, sites)
    for number in range(4):
        state = analysis.step(state, exchange(number, analysis.message(state)))
    asked = analysis.message(state)
    wrong = Message({**asked.arrays, "hazard": -asked.arrays["hazard"]}, asked.meta)
    with pytest.raises(Refusal, match="no hazard of these intervals"):
        analysis.ask(known, wrong, sites[0])
