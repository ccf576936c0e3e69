"""Which weights differ from the others': found where they were turned round, and as rarely as promised where not."""

import json
import math

import numpy as np
import pytest
from scipy import special, stats

from tests.support.by_hand.hospitals import asked_cost, asked_ill, patients
from wardround.core.errors import Refusal
from wardround.partners.similarity.multiple_tests import holm
from wardround.partners.similarity.site_feedback import (
    DifferingWeights,
    differing_weights,
    moderate_variances,
)
from wardround.report.partners.feedback import weight_words


@pytest.fixture(scope="module")
def ill():
    return asked_ill()


@pytest.fixture(scope="module")
def cost():
    return asked_cost()


def test_the_weight_that_was_turned_round_is_found(ill):
    """Beside it, whatever chance did to this draw must look like chance: how often that happens is tested below."""
    fever, *rest = ill.weights(1).rows
    assert (fever["feature"], fever["column"]) == ("fever=yes", "fever")
    assert fever["here"] < 0 < fever["elsewhere"]
    assert fever["chance"] < 1e-6
    assert all(row["chance"] > 0.005 for row in rest)
    assert weight_words(ill.weights(1))[0] == "Here fever speaks against ill = yes, elsewhere for it."
    assert weight_words(ill.weights(1, positive="no"))[0] == "Here fever speaks for ill = no, elsewhere against it."
    json.dumps(ill.weights(1).rows, allow_nan=False)
    for site in (2, 3):
        assert ill.weights(site, peers=(2, 3)).rows == ()


def newton(x, y, decay):
    """Ridge logistic regression, its last column an intercept without pull."""
    weights, pull = np.zeros(x.shape[1]), np.diag([*[decay / 2] * (x.shape[1] - 1), 0.0])
    for _ in range(8):
        chance = 1 / (1 + np.exp(-x @ weights))
        curvature = (x * (chance * (1 - chance))[:, None]).T @ x + pull
        weights = weights - np.linalg.solve(curvature, x.T @ (chance - y) + pull @ weights)
    return weights


def jackknifed(site, fever, rows=120):
    """The weights of a logistic model of a made-up site, and their spread over five folds, without the engine."""
    frame = patients(site, rows, fever=fever)
    y = (frame["ill"] == "yes").to_numpy(float)
    hot = (frame["fever"] == "yes").to_numpy(float)
    x = np.column_stack([frame[["lab", "age", "shoe_size"]], 1 - hot, hot, np.ones(rows)])
    out = np.arange(rows) % 5
    without = np.array([newton(x[out != fold], y[out != fold], 5.0)[:-1] for fold in range(5)])
    return newton(x, y, 5.0)[:-1], np.sqrt(4 / 5 * ((without - without.mean(axis=0)) ** 2).sum(axis=0))


def test_how_often_truly_alike_sites_are_told_a_difference_and_truly_different_ones_are_not():
    """Logistic models of 120 patients at four sites: all alike, and then fever turned round at the first."""
    features, columns = ("lab", "age", "shoe_size", "fever=no", "fever=yes"), ("lab", "age", "shoe_size", "fever")
    false = beside = found = 0
    repeats = 40
    for repeat in range(repeats):
        alike = [jackknifed(100 + 5 * repeat + site, 1.2) for site in range(4)]
        turned = [jackknifed(104 + 5 * repeat, -1.2), *alike[1:]]
        told = []
        for models in (alike, turned):
            weights, spread = (np.array(part) for part in zip(*models, strict=True))
            # Softmax: half of the classical weight for one class, and minus half for the other.
            state = own_state(
                np.stack([-weights, weights], axis=-1) / 2, np.stack([spread] * 2, axis=-1) / 2, [120] * 4
            )
            found_here = compared(state, features, columns, classes=("no", "yes"))
            told.append({row["feature"] for row in found_here.rows})
        false += bool(told[0])
        found += "fever=yes" in told[1]
        beside += bool(told[1] - {"fever=yes"})
    assert found == repeats
    assert false <= 8, "2 of 40 promised, 3 expected"
    assert beside <= 8


def test_the_same_for_a_number(cost):
    assert [row["feature"] for row in cost.weights(1).rows] == ["fever=yes"]
    assert weight_words(cost.weights(1)) == ("Here fever goes with a lower cost, elsewhere with a higher one.",)
    assert cost.weights(2, peers=(0, 3)).rows == ()


def test_columns_that_are_filled_here_are_not_compared(ill):
    """Five columns, of which site 0 records two."""
    assert weight_words(ill.weights(0, peers=(2, 3))) == (
        "None of the model's 2 weights differs from its peers' beyond chance.",
    )


def test_a_site_with_too_few_patients_is_told_so(ill):
    few = int(ill.own["rows"][4])
    said = f"The model was learned from {few} patients: too few to compare its weights (50 needed)."
    assert ill.weights(4) == DifferingWeights(patients=few, needed=50)
    assert weight_words(ill.weights(4)) == (said,)
    assert weight_words(ill.weights(1, peers=(4,))) == (
        "No other site with enough patients records the same columns, so no weight is compared.",
    )


def own_state(weights, spread, rows, name="dense_0/kernel"):
    weights, spread = (np.asarray(array, float) for array in (weights, spread))
    bias = np.zeros((len(weights), weights.shape[2]))
    return {"models": {name: weights, "dense_0/bias": bias}, "spread": {name: spread}, "rows": np.array(rows)}


def known_everywhere(sites, columns):
    return np.ones((sites, len(columns)), bool)


def compared(state, features, columns, site=0, **options):
    recorded = known_everywhere(len(state["rows"]), columns)
    return differing_weights(state, features, columns, recorded, site, target="cost", **options)


def test_a_comparison_by_hand():
    """Three sites of 100, weight 1.0, 0.2 and 0.4, spread 0.1 all. The spreads agree wholly, so all are one, on
    4 + 2 * 4 = 12 degrees of freedom: the geometric middle s^2 = 0.01 stands for s^2 * 2 * exp(-digamma(2)), in which
    digamma(2) = 1 - Euler's 0.5772, so v = 0.01 * (4 + 8 * 1.31043) / 12. Peers: mean 0.3, variance v/2;
    t = 0.7 / sqrt(1.5 v). Satterthwaite: (1.5 v)^2 / (v^2 + 2 (v/4)^2) * 12 = 2.25 / 1.125 * 12 = 24, at most 12."""
    state = own_state([[[1.0]], [[0.2]], [[0.4]]], np.full((3, 1, 1), 0.1), [100] * 3)
    (row,) = compared(state, ("age",), ("age",)).rows
    v = 0.01 * (4 + 8 * 2 * math.exp(-(1 - 0.5772156649))) / 12
    assert (row["here"], row["elsewhere"], row["difference"]) == pytest.approx((1.0, 0.3, 0.7))
    assert row["error"] == pytest.approx(math.sqrt(1.5 * v))
    assert (row["here_error"], row["elsewhere_error"]) == pytest.approx((math.sqrt(v), math.sqrt(v / 2)))
    assert row["chance"] == pytest.approx(2 * stats.t.sf(0.7 / math.sqrt(1.5 * v), 12))
    assert weight_words(compared(state, ("age",), ("age",))) == (
        "A higher age goes with a higher cost everywhere, but counts about 3.3 times as much here as elsewhere.",
    )


def test_categories_and_classes_count_against_each_other():
    """All weights of a column's categories, or of all classes, moved alike: the same predictions, so no difference."""
    features, columns = ("pain=no", "pain=yes", "ward=a", "ward=b", "ward=c"), ("pain", "ward")
    weights = np.zeros((4, 5, 2))
    weights[0, :2] += 5.0  # of both categories of pain
    weights[0, 2:] -= 3.0  # of all wards
    weights[0] += [[7.0, 7.0]]  # of both classes
    state = own_state(weights, np.full(weights.shape, 0.1), [100] * 4)
    assert compared(state, features, columns, classes=("ill", "well")).rows == ()
    weights[0, 1, 0] += 2.0
    weights[0, 4, 1] += 3.0
    found = {row["feature"]: row for row in compared(state, features, columns, classes=("ill", "well")).rows}
    # pain: yes against no, well against ill: -2. Wards: c + 3, so against a and b 3, and a against b and c -1.5.
    # Spreads: (0.1 + 0.1) * (1 + 1) = 0.4 for pain, (0.1 + 0.1) * 3/2 = 0.3 for wards.
    differences = {name: row["difference"] for name, row in found.items()}
    assert differences == pytest.approx({"pain=yes": -2, "ward=c": 3, "ward=a": -1.5, "ward=b": -1.5})
    assert found["pain=yes"]["error"] / found["ward=c"]["error"] == pytest.approx(4 / 3)
    assert found["pain=yes"]["outcome"] == "cost = well"


def test_several_classes_are_each_held_against_the_rest():
    """Weight 0.9 for the first of three classes, against 0 elsewhere: it stands out by 0.9 over the mean of the other
    two, and each of these by -0.45 over the mean of its two."""
    weights = np.zeros((3, 1, 3))
    weights[0, 0] = [0.9, 0.0, 0.0]
    found = compared(own_state(weights, np.full(weights.shape, 0.05), [100] * 3), ("age",), ("age",), classes="abc")
    values = {row["outcome"]: row["difference"] for row in found.rows}
    assert values == pytest.approx({"cost = a": 0.9, "cost = b": -0.45, "cost = c": -0.45})


def test_alike_sites_are_told_a_difference_as_rarely_as_promised():
    """Twelve weights at five sites with known variance, spreads as a jackknife of five folds has them (chi-square, 4
    degrees of freedom): 5 % of sites expected; the plain normal test with these spreads calls one in most sites."""
    generator = np.random.default_rng(1)
    columns = tuple(f"column {i}" for i in range(12))
    rows = np.array([60, 100, 100, 200, 400])
    scale = generator.uniform(0.5, 2, 12)
    ours = plain = 0
    for _ in range(300):
        true = (scale / np.sqrt(rows[:, None]))[:, :, None]
        weights = generator.normal(0.3, true)
        spread = true * np.sqrt(generator.chisquare(4, true.shape) / 4)
        ours += bool(compared(own_state(weights, spread, rows), columns, columns).rows)
        share = 1 / spread[1:] ** 2
        off = weights[0] - (share * weights[1:]).sum(axis=0) / share.sum(axis=0)
        z = off / np.sqrt(spread[0] ** 2 + 1 / share.sum(axis=0))
        plain += bool((holm(2 * stats.norm.sf(np.abs(z[:, 0]))) < 0.05).any())
    assert 4 <= ours <= 27, "15 expected, standard deviation 3.8"
    assert plain > 3 * ours


def test_spreads_that_truly_differ_between_sites_stay_apart():
    """Variances a patient of 1 and 100, in turn: they scatter far more than chance, so little is lent."""
    error = np.sqrt(np.array([1.0, 100.0, 1.0, 100.0]) / 100)[:, None, None]
    variance, freedom = moderate_variances(error, np.full(4, 100.0), np.ones((4, 1, 1), bool), 5)
    np.testing.assert_array_less(variance[[0, 2]] * 10, variance[[1, 3]])
    # Logs of 0 and 4.605 scatter by 4 * 2.303^2 / 3 = 7.07; by chance trigamma(2) = 0.645.
    assert float(special.polygamma(1, (freedom[0, 0, 0] - 4) / 2)) == pytest.approx(7.07 - 0.645, rel=1e-3)


def test_two_sites_one_site_and_no_plain_weights():
    two = own_state([[[1.0]], [[-1.0]]], np.full((2, 1, 1), 0.1), [80, 80])
    assert weight_words(compared(two, ("age",), ("age",))) == (
        "Here a higher age goes with a higher cost, elsewhere with a lower one.",
    )
    one = own_state([[[1.0]]], np.full((1, 1, 1), 0.1), [80])
    assert "No other site" in weight_words(compared(one, ("age",), ("age",)))[0]
    said = ("The weights of this kind of model have no plain meaning, so they are not compared.",)
    deep = {**two, "models": {**two["models"], "dense_1/kernel": np.zeros((2, 1, 1))}}
    assert weight_words(compared(deep, ("age",), ("age",))) == said
    assert weight_words(compared(two, (), ())) == said
    with pytest.raises(Refusal, match="'maybe' is not an outcome"):
        compared(
            own_state(np.zeros((2, 1, 2)), np.ones((2, 1, 2)), [80, 80]),
            ("age",),
            ("age",),
            classes=("n", "y"),
            positive="maybe",
        )
