"""Trees from noised sums: the promised epsilon, the noise that is added, and what is left of the risk."""

import numpy as np
import pytest

from tests.support.analyses.tree_sites import COLUMNS, agreed, dealt, found, names_of, patients
from wardround.analyses.boosted_trees import boosted_trees
from wardround.analyses.forests.answer import noise_multiplier
from wardround.analyses.forests.plan import TreePlan
from wardround.privacy.accountant import Step, epsilon

PRIVATE = {"target": "dies", "columns": COLUMNS, "trees": 10, "depth": 2, "bins": 16, "learning_rate": 0.3}


def test_all_sums_together_keep_the_promise():
    # Three passes of counts and 10 trees of 2 levels: 23 sums over a training patient.
    plan = TreePlan(**PRIVATE, epsilon=2.0)
    noise = noise_multiplier(plan)
    assert plan.private_sums == 23
    assert 1.99 < epsilon([Step(1.0, noise, 23)], 1e-5) <= 2.0
    assert epsilon([Step(1.0, 0.99 * noise, 23)], 1e-5) > 2.0


def test_a_patient_moves_the_sums_no_farther_than_the_noise_reckons_with():
    """One patient more or less, all answers of a level side by side: at most sqrt(2 columns), hessians by fours."""
    sites = dealt(patients(200, 5), 3)
    public = agreed(*names_of(sites))
    analysis = boosted_trees(**PRIVATE, fewest_sites=1, validation=0.0, test=0.0, seed=1)
    state, farthest = analysis.begin(public), 0.0
    fewer = [type(site)(site.name, site.table.drop(index=3).reset_index(drop=True)) for site in sites]
    while (asked := analysis.message(state)) is not None:
        whole, less = (analysis.ask(public, asked, own[0]).arrays for own in (sites, fewer))
        if "sums" in whole:
            apart = (whole["sums"] - less["sums"]) / np.array([1.0, 0.25]).reshape(2, 1, 1, 1)
            farthest = max(farthest, float(np.sqrt((apart**2).sum())))
        elif "first" in whole:
            apart = np.concatenate([(whole[name] - less[name]).ravel() for name in ("cells", "first")])
            # Two columns of numbers and the class.
            assert np.sqrt((apart**2).sum()) <= np.sqrt(3) + 1e-9
        state = analysis.step(state, analysis.ask(public, asked, sites[0]))
    assert 0.5 < farthest <= np.sqrt(2 * len(COLUMNS)) + 1e-6


def test_the_noise_has_the_deviation_it_says():
    site = dealt(patients(300, 6), 3)[0]
    public = agreed("H0", "H1", "H2")
    plain, noised = (
        boosted_trees(**PRIVATE, **extra, validation=0.0, test=0.0) for extra in ({}, {"epsilon": 2.0, "noise_seed": 3})
    )
    asked = plain.message(plain.begin(public))
    exact, under = (one.ask(public, asked, site).arrays["cells"] for one in (plain, noised))
    expected = noise_multiplier(TreePlan(**PRIVATE, epsilon=2.0)) * np.sqrt(3)
    assert np.std(under - exact) == pytest.approx(expected, rel=0.2)
    again = noised.ask(public, asked, site).arrays["cells"]
    np.testing.assert_array_equal(under, again)
    fresh = boosted_trees(**PRIVATE, epsilon=2.0, validation=0.0, test=0.0)
    assert not np.array_equal(fresh.ask(public, asked, site).arrays["cells"], under), "not for simulation: fresh bits"


def test_with_enough_patients_private_trees_still_tell_who_is_at_risk():
    sites = dealt(patients(20_000, 7), 3)
    report = found(boosted_trees(**PRIVATE, epsilon=5.0, noise_seed=1), sites)
    numbers = report["numbers"]
    assert numbers["epsilon"] == 5.0
    assert numbers["auc"] > 0.7
    assert not {"auc_by_site", "effects", "permutation"} & set(numbers), "nothing exact is told"
    assert any("epsilon is 5" in sentence for sentence in report["words"])
