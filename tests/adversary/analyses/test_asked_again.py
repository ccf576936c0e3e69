"""A coordinator that leaves the course of an analysis at a real site: other edges, a last look again, open trees.

The site has a real home and a real handler, and its administrator approved an honest study.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from tests.support.adversary.analyses import SITE, ApprovedAnalysis
from tests.support.findings import agreed_on
from wardround.analyses.survival.cox import cox
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.site.analyses.summary import privacy_words
from wardround.deploy.site.policy import Policy, epsilon_of, epsilon_reasons, noise_reasons
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release.privacy_budget import charged_epsilon, ledger_path
from wardround.privacy.accountant import epsilon
from wardround.privacy.budget import Budget
from wardround.study.file import parse_study

ROWS = 60
RANDOM = np.random.default_rng(8)
TIMES = np.round(np.sort(RANDOM.uniform(1, 100, ROWS)), 2)
TABLE = pd.DataFrame({"stay": TIMES, "dies": np.ones(ROWS, int), "age": np.round(RANDOM.uniform(30, 80, ROWS), 3)})


def counts_up_to(told):
    return np.cumsum(np.asarray(told.message.arrays["left"])[0])


def edges(at):
    return Message({"edges": np.array([0.0, at, 200.0])}, (("asked", "counts"),))


def test_a_curve_is_counted_between_one_set_of_edges(tmp_path):
    """Edges before and after one patient's time: each count is of a cell at least, and their difference is 1."""
    site = ApprovedAnalysis(tmp_path, TABLE, name="kaplan_meier", time="stay", event="dies")
    site.agree(stay="number", dies="number")
    before, after = (TIMES[29] + TIMES[30]) / 2, (TIMES[30] + TIMES[31]) / 2
    first = site.exchange(1, edges(before))
    assert first.status == "ok"
    assert counts_up_to(first)[1] == 30
    second = site.exchange(2, edges(after))
    assert (second.status, second.message.arrays) == ("refused", {})
    assert "question of the kind 'counts' was asked" in second.why


def test_nor_after_the_site_was_started_anew(tmp_path):
    site = ApprovedAnalysis(tmp_path, TABLE, name="kaplan_meier", time="stay", event="dies")
    site.agree(stay="number", dies="number")
    assert site.exchange(1, edges(50.0)).status == "ok"
    site.restart()
    assert site.exchange(1, edges(50.0)).status == "ok"
    assert "question of the kind 'counts' was asked" in site.exchange(2, edges(60.0)).why


def test_a_regression_keeps_its_scale(tmp_path):
    site = ApprovedAnalysis(tmp_path, TABLE, name="glm", formula="age ~ stay")
    site.agree(age="number", stay="number")

    def asked(center):
        beside = {"alpha": np.ones(1), "fold": -np.ones(1), "place": -np.ones(1), "scale": np.ones(2)}
        return Message({"stage": np.array(2.0), "center": np.array(center), "beta": np.zeros((1, 2)), **beside})

    assert site.exchange(1, asked([0.0, 50.0])).status == "ok"
    assert "another 'center' than before" in site.exchange(2, asked([0.0, 51.0])).why


def test_a_regression_across_sites_is_not_approved_in_the_open(tmp_path):
    """Twelve patients of a block, weighed by 18 coefficients: their ages can be solved for (the control below)."""
    settings = {"time": "stay", "event": "dies", "columns": ["age"], "by_site": False}
    with pytest.raises(Refusal, match="tells of fewer than 10 patients"):
        ApprovedAnalysis(tmp_path, TABLE, name="cox", **settings)


def test_the_patients_of_a_block_can_be_solved_for():
    """Sums of w, w x and w x x over eleven patients at 18 coefficients give back every age, from a rough start."""
    site = Site("A", TABLE)
    agreed, analysis = (
        agreed_on([site]),
        cox(time="stay", event="dies", columns=("age",), by_site=False, smallest_cell=10),
    )
    beta = np.linspace(-2.5, 2.5, 18)
    arrays = {"center": np.array([55.0]), "scale": np.array([15.0]), "edges": np.array([0.0, TIMES[10], 200.0])}
    asked = [Message({"beta": np.array([one]), **arrays}, (("asked", "fit"),)) for one in beta]
    told = np.array([analysis.ask(agreed, one, site).arrays["left"][0, :2].sum(axis=0) for one in asked])

    def misses(x):
        weight = np.exp(np.outer(beta, x))
        found = np.stack([weight.sum(axis=1), weight @ x, weight @ x**2], axis=1)
        return ((found - told) / told[:, :1]).ravel()

    truth = np.sort((TABLE.age[:11].to_numpy() - 55) / 15)
    start = truth + RANDOM.normal(0, 0.2, 11)  # three years off
    solved = least_squares(misses, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=300)
    assert np.abs(np.sort(solved.x) - truth).max() * 15 < 0.5


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "tells of fewer than 10 patients"),
        ({"epsilon": 1.0, "noise_seed": 3}, "noise that follows from a seed protects nobody"),
    ],
    ids=["in the open", "known noise"],
)
def test_trees_without_a_secure_sum_or_noise_of_the_site_are_not_approved(tmp_path, settings, why):
    """Sums over the bins of a single site tell whole patients (test_reconstruction); seeded noise can be taken off."""
    table = TABLE.assign(ill=np.arange(ROWS) % 2)
    with pytest.raises(Refusal, match=why):
        ApprovedAnalysis(tmp_path, table, name="boosted_trees", target="ill", columns=["age"], trees=2, **settings)


def test_noised_trees_are_asked_as_often_as_the_noise_is_reckoned_for(tmp_path):
    """Noise is for three looks at counts, and one at test patients; that of twenty looks would average out."""
    table = TABLE.assign(ill=np.arange(ROWS) % 2)
    settings = {"target": "ill", "columns": ["age"], "trees": 2, "depth": 2, "epsilon": 1.0}
    site = ApprovedAnalysis(tmp_path, table, name="boosted_trees", objective="logistic", **settings)
    site.agree(age="number", ill="number")
    replies = [
        site.exchange(number, Message({"edges": np.array([[40.0, 50.0 + number]])}, (("phase", "edges"),)))
        for number in range(1, 5)
    ]
    assert [one.status for one in replies] == ["ok", "ok", "ok", "refused"]
    assert "has 3 of them" in replies[3].why


def test_noise_of_an_analysis_is_debited_before_its_first_answer(tmp_path):
    """Three looks for the bins and two trees of two levels: seven sums a patient is in, charged at once."""
    table = TABLE.assign(ill=np.arange(ROWS) % 2)
    settings = {"target": "ill", "columns": ["age"], "trees": 2, "depth": 2, "epsilon": 1.0}
    site = ApprovedAnalysis(tmp_path, table, name="boosted_trees", objective="logistic", **settings)
    site.agree(age="number", ill="number")
    home = site.consortium.homes[SITE]
    assert charged_epsilon(home, read_policy(home.policy_path)) == 0
    for number in (1, 2):
        asked = Message({"edges": np.array([[40.0, 50.0 + number]])}, (("phase", "edges"),))
        assert site.exchange(number, asked).status == "ok"
        (charge,) = Budget(ledger_path(home)).charges()
        (step,) = charge.steps
        assert step.times == 7
        np.testing.assert_allclose(epsilon([step], 1e-5), 1.0, rtol=0.02)


def test_an_analysis_beyond_the_budget_is_not_approved():
    words = {"name": "boosted_trees", "target": "ill", "columns": ["age"], "epsilon": 3.0}
    study = {"study": {"name": "a"}, "data": {"source": "csv"}, "analysis": words}
    policy = Policy(epsilon=4.0)
    assert epsilon_of(study) == 3.0
    assert epsilon_reasons(policy, epsilon_of(study), 0.0) == []
    (why,) = epsilon_reasons(policy, epsilon_of(study), 2.0)
    assert "it would spend an epsilon of 3; 2 of 4 is already promised" in why
    words["delta"] = 1e-3
    assert noise_reasons(policy, study) == ["its epsilon is stated at a delta of 0.001, but the policy's at 1e-05"]


def test_noise_of_an_analysis_is_told_before_approval():
    words = {"name": "boosted_trees", "target": "ill", "columns": ["age"], "epsilon": 2.0}
    study = parse_study({"study": {"name": "a"}, "data": {"source": "csv"}, "analysis": words}, where="a.toml")
    (said,) = privacy_words(study)
    assert "epsilon of 2 (at a delta of 1e-05) is debited from your ledger whole" in said
    del words["epsilon"]
    plain = parse_study({"study": {"name": "a"}, "data": {"source": "csv"}, "analysis": words}, where="a.toml")
    assert privacy_words(plain) == ("No noise is added, so there is no formal guarantee.",)
