"""The published attack on federated trees, rebuilt: what a curious coordinator, or a partner, can work out.

Di Gennaro, De Lucia, Longari, Zanero and Carminati, "TimberStrike: Dataset Reconstruction Attack Revealing Privacy
Leakage in Federated Tree-Based Systems", 2025. In the first tree all patients have the same score, so that a bin's sums
G = n p - k and H = n p (1 - p) tell how many patients n it holds and how many of them, k, have the outcome. Where a
node holds one patient, its sums tell all of that patient's bins and the outcome.
"""

import numpy as np

from tests.support.analyses.tree_sites import COLUMNS, agreed, dealt, names_of, patients
from wardround.analyses.boosted_trees import boosted_trees
from wardround.analyses.forests.plan import TreePlan, outcome_of
from wardround.analyses.forests.question import LEVEL, phase_of, read_tree
from wardround.analyses.forests.rows import binned, read_rows
from wardround.engine.analyse import combine_answers
from wardround.statistics.trees.bins import layout_of
from wardround.statistics.trees.forest import bare_forest
from wardround.statistics.trees.growth import coarse

SITES = dealt(patients(600, 4), 5)
PUBLIC = agreed(*names_of(SITES))
HELD = {"validation": 0.0, "test": 0.0}
CARELESS = {"smallest_leaf": 1, "least_weight": 1e-9, "depth": 8, "l2": 0.0}
"""Leaves of single patients, which no study should have."""


def overheard(**settings):
    """The grown trees, and what was asked and answered for the first of them: by site, and the sum of all."""
    analysis = boosted_trees(target="dies", columns=COLUMNS, trees=1, effects=0, **HELD, **settings)
    state, heard = analysis.begin(PUBLIC), []
    while (asked := analysis.message(state)) is not None:
        answers = {site.name: analysis.ask(PUBLIC, asked, site) for site in SITES}
        combined = combine_answers(analysis, answers)
        if phase_of(asked) == LEVEL:
            heard.append((asked, {name: one.arrays["sums"] for name, one in answers.items()}, combined.arrays["sums"]))
        state = analysis.step(state, combined)
    return state, heard


def counts_of(sums, base):
    """From sums of the first tree: patients in each bin, and how many of them have the outcome."""
    p = 1 / (1 + np.exp(-np.float32(base)))
    many = sums[1] / (p * (1 - p))
    return many, many * p - sums[0]


def records_of(heard, sums_of, state):
    """Patients of whom a node's sums tell everything: the bin of every column, and the outcome.

    What was not asked for is worked out, as the coordinator does it: a sibling is what remains of the parent.
    """
    used, found, parents = state.shape.layout.used, set(), {}
    for asked, answers, combined in heard:
        sums = np.asarray(sums_of(answers, combined), float)[:, 0]
        known = {}
        for place, node in enumerate(np.asarray(asked.arrays["asked"])[0].tolist()):
            known[node] = sums[:, place]
            if node // 2 in parents:
                known[node ^ 1] = parents[node // 2] - sums[:, place]
        for own in known.values():
            many, ill = counts_of(own, state.common.base[0])
            places = np.zeros(used.size)
            places[np.flatnonzero(used)] = many
            held = places.reshape(used.shape)
            if abs(held[0].sum() - 1) < 0.01:
                found.add((*held.argmax(axis=1).tolist(), round(float(ill.sum()) / len(used))))
        parents = known
    return found


def truth_of(state, site):
    """The bins and the outcome of every patient of a site."""
    plan = TreePlan("dies", COLUMNS, **HELD)
    rows = read_rows(plan, PUBLIC, outcome_of(plan, PUBLIC), site)
    codes = binned(rows, state.common.features, layout_of(state.common.features).width).codes
    return {(*column.tolist(), int(label)) for column, label in zip(codes.T, rows.y, strict=True)}


def test_single_answers_tell_how_many_patients_of_each_bin_have_the_outcome():
    """The attack works where a site's answer is seen by itself: this is why trees belong under the secure sum."""
    state, heard = overheard()
    _asked, answers, _ = heard[0]
    many, cases = counts_of(np.asarray(answers["H0"], float)[:, 0, 0], state.common.base[0])
    table, edges = SITES[0].table, state.common.features[0].edges
    place = np.searchsorted(edges, table["age"], side="right")
    ill = table["dies"] == "yes"
    np.testing.assert_allclose(many[: len(edges) + 1], np.bincount(place, minlength=len(edges) + 1), atol=1e-3)
    np.testing.assert_allclose(cases[: len(edges) + 1], np.bincount(place[ill], minlength=len(edges) + 1), atol=1e-3)


def test_with_tiny_leaves_and_single_answers_whole_records_are_rebuilt():
    """The positive control: without any protection the attack finds patients of the site, and errs about none."""
    state, heard = overheard(**CARELESS)
    rebuilt = records_of(heard, lambda answers, _: answers["H0"], state)
    truth = truth_of(state, SITES[0])
    assert len(rebuilt) > 0.1 * len(truth)
    assert rebuilt <= truth


def test_from_the_sum_of_all_sites_neither_records_nor_counts_of_a_site_can_be_rebuilt():
    state, heard = overheard(**CARELESS)
    assert records_of(heard, lambda _, combined: combined, state) == set()
    _, answers, combined = heard[0]
    bins = state.shape.layout.used[0].sum()
    truth = np.round(counts_of(np.asarray(answers["H0"], float)[:, 0, 0, :bins], state.common.base[0]))
    # The best guess at one of five like sites is a fifth of the sum.
    guess = np.round(np.array(counts_of(np.asarray(combined)[:, 0, 0, :bins], state.common.base[0])) / 5)
    assert (guess == truth).all(axis=0).mean() < 0.4


def test_with_leaves_of_twenty_no_patient_is_alone_in_a_node():
    state, heard = overheard()
    assert records_of(heard, lambda _, combined: combined, state) == set()
    for _, _, combined in heard:
        many, _ = counts_of(np.asarray(combined, float)[:, 0], state.common.base[0])
        patients_of_node = many[:, : state.shape.layout.used[0].sum()].sum(axis=-1)
        # Only what can be split into two leaves is asked about.
        assert patients_of_node.min() >= 2 * 20 - 0.01


def leaf_sizes(value, base, rate, *, exactly):
    """How many patients a leaf of the first tree may hold, of 600, that publishes this value."""
    p = 1 / (1 + np.exp(-np.float64(np.float32(base))))
    many, cases = np.meshgrid(np.arange(20, 601), np.arange(601), indexing="ij")
    would = -rate * (many * p - cases) / (many * p * (1 - p) + 1.0)
    told = np.isclose(would, value, rtol=1e-6) if exactly else coarse(would) == np.float32(value)
    return set(many[told & (cases <= many)].tolist())


def test_a_published_leaf_does_not_tell_how_many_patients_it_holds():
    """To full precision a leaf value would: of all numbers of patients and cases, one pair gives just this value."""
    state, _ = overheard()
    base, rate = state.common.base[0], 0.2
    p = 1 / (1 + np.exp(-np.float64(np.float32(base))))
    exact = -rate * (37 * p - 12) / (37 * p * (1 - p) + 1.0)
    assert leaf_sizes(exact, base, rate, exactly=True) == {37}, "the positive control"
    for value in {float(value) for value in state.forest.value[0, 0] if value}:
        assert len(leaf_sizes(value, base, rate, exactly=False)) >= 10


def test_noise_hides_the_patients_of_a_bin_even_in_a_single_answer():
    state, heard = overheard(epsilon=1.0, noise_seed=0, depth=2)
    _, answers, _ = heard[0]
    many, _ = counts_of(np.asarray(answers["H0"], float)[:, 0, 0], state.common.base[0])
    ages = SITES[0].table["age"]
    edges = state.common.features[0].edges
    truth = np.bincount(np.searchsorted(edges, ages, side="right"), minlength=len(edges) + 1)
    wrong = np.abs(many[: len(truth)] - truth)
    assert np.median(wrong) > 10, "beside about a hundred patients nothing is told of single ones"


def test_what_is_sent_to_partners_is_the_forest_and_nothing_of_its_sums():
    _, heard = overheard()
    asked = heard[-1][0]
    assert set(asked.arrays) == {
        *("edges", "lengths", "base", "column", "left", "value"),
        *("tree_column", "tree_left", "columns", "asked", "number"),
    }
    tree, levels = read_tree(asked, bare_forest(0, 1, 4, 8)._replace(value=np.zeros((0, 1, 16), np.float32)))
    assert levels == len(heard) - 1
    assert not tree.value.any()
