"""What a site is told: found where it was put in, not found where it was not, and said in words that are true."""

import json

import numpy as np
import pytest
from scipy import stats

from tests.support.by_hand.hospitals import Asked, asked_cost, asked_ill
from wardround.core.errors import Refusal
from wardround.data.datasets.heart_disease import heart_disease
from wardround.data.folder import data_folder
from wardround.models.logistic import logistic
from wardround.partners.choice import Evidence
from wardround.partners.probes.feature_gains import Plan
from wardround.partners.similarity.site_feedback import (
    DifferingWeights,
    FurtherFeatures,
    further_features,
    site_feedback,
)
from wardround.report.partners.feedback import feedback_text, further_words

try:
    WITH_DATA = (data_folder() / "uci_heart_disease").is_dir()
except Refusal:
    WITH_DATA = False


@pytest.fixture(scope="module")
def ill():
    return asked_ill()


@pytest.fixture(scope="module")
def cost():
    return asked_cost()


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
