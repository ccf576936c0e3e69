"""What a site is told: found where it was put in, not found where it was not, and said in words that are true."""

import json
import math
from functools import cached_property

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_folder
from wardround.data.load import load
from wardround.data.table import Table
from wardround.engine.simulate import Simulation
from wardround.models.linear import linear
from wardround.models.logistic import logistic
from wardround.partners.choice import Evidence
from wardround.partners.probes.feature_gains import Plan, feature_gains, plan_trials
from wardround.partners.probes.own_models import own_models
from wardround.partners.similarity.multiple_tests import holm
from wardround.partners.similarity.site_feedback import (
    DifferingWeights,
    FurtherFeatures,
    differing_weights,
    further_features,
    moderate_variances,
    site_feedback,
)
from wardround.queries.recorded_columns import recorded_columns
from wardround.report.partners.feedback import feedback_text, further_words, weight_words

try:
    WITH_DATA = (data_folder() / "uci_heart_disease").is_dir()
except Refusal:
    WITH_DATA = False

SURE = {"epochs": 60}


def known_everywhere(sites, columns):
    return np.ones((sites, len(columns)), bool)


class Asked:
    """A loaded table, what its sites answered, and the questions put to them again for any site."""

    def __init__(self, table, model_of):
        self.loaded = load(table, seed=1, shares=(0.8, 0.1, 0.1), missing_columns="fill")
        federation = self.loaded.federation
        self.task, self.features, self.sites = federation.task, federation.features, federation.sites
        self.columns = [column.name for column in self.loaded.preparation.columns]
        tables = [Site(name, frame) for name, frame in self.loaded.table.sites.items()]
        self.engine = Simulation(federation, tables=tables)
        self.recorded = np.array(self.engine.ask(recorded_columns(columns=self.columns), Message({}))["recorded"])
        self.model = model_of(self.task)
        self.params = self.model.init(jax.random.key(0))
        self.gains = feature_gains(self.model, **SURE)

    @cached_property
    def own(self):
        return self.probe(own_models(self.model, **SURE), self.params)

    def probe(self, algorithm, params):
        progress = self.engine.begin(algorithm, params)
        done = self.engine.train(algorithm, progress, [(1, np.arange(len(self.sites)))])[0]
        return jax.tree.map(np.asarray, done.server)

    def further(self, site, **options):
        tried = plan_trials(self.features, self.columns, self.recorded, site)
        state = self.probe(self.gains, {"params": self.params, "keep": tried.keep})
        return further_features(state, tried, self.columns, self.recorded, site, **options)

    def weights(self, site, **options):
        return differing_weights(
            self.own,
            self.features,
            self.columns,
            self.recorded,
            site,
            target=self.task.target,
            classes=self.task.classes,
            **options,
        )


def patients(site, rows, *, fever=1.2, regression=False):
    """Disease depends on lab (and its twin, the same but for a little noise), fever and age, not on shoe size."""
    generator = np.random.default_rng([5, site])
    lab, age, shoe = generator.normal(0, 1, (3, rows))
    hot = generator.random(rows) < 0.5
    pull = 1.6 * lab + fever * np.where(hot, 1, -1) + 0.8 * age
    frame = pd.DataFrame({"lab": lab, "twin": lab + generator.normal(0, 0.1, rows), "shoe_size": shoe, "age": age})
    frame["fever"] = np.where(hot, "yes", "no")
    if regression:
        return frame.assign(cost=pull + generator.normal(0, 0.7, rows))
    ill = generator.random(rows) < 1 / (1 + np.exp(-pull))
    return frame.assign(ill=np.where(ill, "yes", "no"))


def hospitals(**options):
    """The first lacks what others record, fever means the opposite at the second, the last has next to nobody."""
    frames = {f"hospital {site}": patients(site, 220, fever=-1.2 if site == 1 else 1.2, **options) for site in range(4)}
    frames["hospital 0"] = frames["hospital 0"].drop(columns=["lab", "twin"]).assign(shoe_size=np.nan)
    frames["hospital 4"] = patients(4, 12, **options)
    return frames


@pytest.fixture(scope="module")
def ill():
    return Asked(Table(hospitals(), target="ill", origin="made up", positive="yes"), logistic)


@pytest.fixture(scope="module")
def cost():
    table = Table(hospitals(regression=True), target="cost", origin="made up", task="regression")
    return Asked(table, linear)


# Which further feature would help


@pytest.mark.parametrize("asked", ["ill", "cost"])
def test_the_column_that_matters_is_found_and_the_other_is_not(asked, request):
    """lab and twin each tell what the other tells: leaving out one of them at a site that has both loses nothing, but
    the site that has neither would gain from either. Without them a patient's loss is much larger."""
    asked = request.getfixturevalue(asked)
    assert asked.recorded[0].sum() == 2
    assert asked.recorded[1:].all()
    found = asked.further(0)
    by_column = {row["column"]: row for row in found.rows}
    assert [row["column"] for row in found.rows][-1] == "shoe_size"
    assert [by_column[name]["helps"] for name in ("lab", "twin", "shoe_size")] == [True, True, False]
    for name in ("lab", "twin"):
        assert by_column[name]["low"] > 0.02
        assert 0.05 < by_column[name]["share_of_loss"] < 1
    assert by_column["shoe_size"]["low"] < 0.01
    best = found.rows[0]["column"]
    words = further_words(found)
    assert words[0].startswith(f"Recording {best} would help most: at the 4 sites that record it (")
    assert words[1].startswith("Recording ")
    assert "would help too" in words[1]
    assert words[2] == "No benefit beyond chance was seen from shoe size."
    json.dumps(found.rows, allow_nan=False)


def test_the_gain_of_a_regression_is_the_variance_explained(cost):
    """cost = 1.6 lab + ... + noise: without lab (and twin) the squared error is larger by 1.6^2 Var(lab) = 2.56."""
    lab = next(row for row in cost.further(0).rows if row["column"] == "lab")
    assert abs(lab["gain"] - 2.56) < 3 * lab["error"]
    assert lab["error"] < 0.3


def test_a_site_that_records_all_is_told_so(ill):
    assert ill.further(2) == FurtherFeatures(())
    assert further_words(ill.further(2)) == ("Every column that other sites record is recorded here too.",)


def state_of(loss, error, rows):
    return {"loss": np.array(loss), "gain_error": np.array(error), "rows": np.array(rows)}


TRIED = Plan(np.zeros((3, 2), np.float32), ("lab", "shoe_size"))
COLUMNS = ("lab", "shoe_size")
RECORDED = np.array([[0, 0], [1, 1], [1, 0], [1, 1]], bool)
STATE = state_of(
    [[0.9, 0.8, 0.7], [0.6, 0.5, 0.6], [0.6, 0.4, 0.1], [0.0, 0.0, 0.0]],
    [[0.0, 0.1, 0.1], [0.0, 0.02, 0.02], [0.0, 0.02, 0.02], [0.0, 0.0, 0.0]],
    [100, 100, 100, 0],
)


def test_only_sites_that_record_a_column_and_answered_speak_of_it():
    """lab: gains 0.1 and 0.2, errors 0.02, 100 rows each. Weighted by rows the gains scatter by 2 * 100 * 0.05^2 = 0.5,
    by chance 2 * 100 * 0.02^2 / 2 = 0.04, so the variance between sites is (0.5 - 0.04) / (200 - 100) = 0.0046 and that
    of the mean (0.0004 + 0.0046) / 2 = 0.0025.
    shoe_size: site 1 alone, no gain; site 2 does not record it, whatever its model lost; site 3 did not answer."""
    found = further_features(STATE, TRIED, COLUMNS, RECORDED, 0)
    lab, shoe = found.rows
    assert (lab["column"], lab["sites"], lab["patients"], lab["helps"]) == ("lab", 2, 200, True)
    assert (lab["gain"], lab["error"]) == pytest.approx((0.15, 0.05))
    assert (lab["low"], lab["high"]) == pytest.approx((0.052, 0.248))
    assert lab["share_of_loss"] == pytest.approx(0.15 / 0.6)
    # Holm: the smaller of two counts twice. One-sided: 3 standard errors, and none.
    assert lab["chance"] == pytest.approx(2 * stats.norm.sf(3))
    assert (shoe["sites"], shoe["gain"], shoe["chance"], shoe["helps"]) == (1, 0.0, 0.5, False)
    assert further_words(found) == (
        "Recording lab would help most: at the 2 sites that record it (200 patients), the model's loss per patient "
        "fell by 0.15, 25% of it (95 % interval 0.052 to 0.25).",
        "No benefit beyond chance was seen from shoe size.",
    )


def test_more_alike_sites_count_more_and_unlike_ones_not_at_all():
    even, towards = (
        further_features(STATE, TRIED, COLUMNS, RECORDED, 0, similarity=alike).rows[0]
        for alike in ([np.nan, 1, 1, 1], [np.nan, 3, 1, 1])
    )
    assert even["gain"] == pytest.approx(0.15)
    assert towards["gain"] == pytest.approx(0.75 * 0.1 + 0.25 * 0.2)
    alone = further_features(STATE, TRIED, COLUMNS, RECORDED, 0, similarity=[0, 0, 1, np.nan])
    assert (alone.rows[0]["gain"], alone.rows[0]["error"]) == pytest.approx((0.2, 0.02))
    assert "at the one site that records it (100 patients)" in further_words(alone)[0]
    assert alone.rows[1]["gain"] is None
    assert (
        further_words(alone)[-1]
        == "Too few patients at comparable sites to say whether these columns would help: shoe size."
    )
    with pytest.raises(Refusal, match="A similarity is negative"):
        further_features(STATE, TRIED, COLUMNS, RECORDED, 0, similarity=[0, -1, 1, 1])


def test_no_help_beyond_chance_is_said_and_so_is_what_nobody_records():
    state = state_of([[0.6, 0.6, 0.6], [0.6, 0.59, 0.61]], [[0, 0.02, 0.02], [0, 0.02, 0.02]], [50, 50])
    columns, recorded = (*COLUMNS, "blood_count"), np.array([[0, 0, 0], [1, 1, 0]], bool)
    found = further_features(state, TRIED, columns, recorded, 0)
    assert not any(row["helps"] for row in found.rows)
    assert further_words(found) == (
        "None of the further columns helped the sites that record them beyond what chance does: lab, shoe size.",
        "No site records blood count, so its benefit is not known.",
    )


def test_gains_by_chance_are_called_help_no_more_often_than_promised():
    """Ten useless columns, gains drawn from their errors: at most 5 % of federations see any help (and a few do)."""
    generator = np.random.default_rng(0)
    tried = Plan(np.zeros((11, 1)), tuple(f"column {i}" for i in range(10)))
    recorded = np.array([[False] * 10] + [[True] * 10] * 5)
    false = 0
    for _ in range(400):
        error = generator.uniform(0.01, 0.05, (6, 11))
        loss = 0.6 + generator.normal(0, error)
        loss[:, 0] = 0.6
        state = state_of(loss, error, [100] * 6)
        false += any(row["helps"] for row in further_features(state, tried, tried.further, recorded, 0).rows)
    assert 4 <= false <= 36, "20 expected, standard deviation 4.4; the variance between sites makes it fewer or more"


# Which weights differ


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


# All together

SITES = ("Bo", "Kenema", "Makeni", "Lunsar", "Kabala")
EVIDENCE = Evidence(np.array([np.nan, 0.5, 0.8, 0.8, np.nan]), np.array([np.nan, 0.01, 0.2, 0.01, np.nan]), 0.6)
NOTHING = {"weights": DifferingWeights(), "further": FurtherFeatures(())}


def test_rank_choice_and_how_sure_it_is():
    """Makeni and Lunsar share the first place; Kenema is 30 errors from Lunsar, 1.5 from Makeni."""
    third = site_feedback(1, SITES, 0, EVIDENCE, (2, 3), **NOTHING)
    assert third.rank == {"place": 3, "of": 3, "score": 0.5, "error": 0.01}
    assert (third.site, third.user, third.chosen, third.near) == ("Kenema", "Bo", False, ("Makeni",))
    first = site_feedback(2, SITES, 0, EVIDENCE, (2, 3), **NOTHING)
    assert first.rank is not None
    assert (first.rank["place"], first.chosen, first.near) == (1, True, ("Kenema", "Lunsar"))


def test_who_asked_and_who_did_not_answer_have_no_rank():
    for site in (0, 4):
        told = site_feedback(site, SITES, 0, EVIDENCE, (2,), **NOTHING)
        assert (told.rank, told.near) == (None, ())
    only = Evidence(np.array([np.nan, 1.0]), np.array([np.nan, np.nan]), 0.0)
    told = site_feedback(1, SITES[:2], 0, only, (1,), **NOTHING)
    assert told.rank == {"place": 1, "of": 1, "score": 1.0, "error": None}


def test_everything_is_passed_on_and_json_can_hold_it(ill):
    shifted = [{"feature": "age", "words": "Patients are older here.", "distance": 0.4}]
    scores = Evidence(np.array([0.1, np.nan, 0.3, 0.2, np.nan]), np.full(5, 0.01), 0.0)
    weights, further = ill.weights(1), ill.further(0)
    told = feedback_text(site_feedback(0, ill.sites, 1, scores, (2,), weights=weights, further=further), shifted)
    assert set(told) == {"site", "rank", "chosen", "weights", "shifted", "further_features", "words"}
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["words"][-len(further_words(further)) :] == list(further_words(further))
    assert "Patients are older here." in told["words"]
    assert told["weights"][0]["words"] in told["words"]
    assert told["further_features"][0]["helps"]


@pytest.mark.skipif(not WITH_DATA, reason="the folder uci_heart_disease is not in WARDROUND_DATA")
def test_cholesterol_in_switzerland():
    """Of ten columns the Swiss hospital lacks cholesterol alone, which adds nothing at the three that measured it."""
    asked = Asked(heart_disease(), logistic)
    site = list(asked.sites).index("switzerland")
    found = asked.further(site)
    assert [(row["column"], row["sites"], row["helps"]) for row in found.rows] == [("chol", 3, False)]
    assert abs(found.rows[0]["gain"]) < 0.03
    assert further_words(found)[0].startswith("None of the further columns helped")
