"""A coordinator that chooses rules and questions of a rule mining so as to read one patient through a secure sum.

The sites have real homes and handlers, and their administrators approved an honest study.
"""

import numpy as np
import pandas as pd
import pytest

from tests.support.in_process import NAMES, Consortium
from wardround.analyses.rule_mining import SiteHalf, rule_mining
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.analyses import conduct
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.events import ignore
from wardround.deploy.coordinator.gather import Gatherer
from wardround.deploy.coordinator.studies.offers import gather_approvals
from wardround.deploy.coordinator.studies.submission import Submission, policy_of
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.analyses.asked_questions import remember_question
from wardround.deploy.site.analyses.releases import analysis_releases
from wardround.deploy.site.analyses.worker import checked_answer
from wardround.deploy.site.policy_file import set_policy
from wardround.runs.folder import RunFolder
from wardround.study.file import parse_study
from wardround.study.transform_chain import links_of
from wardround.weak_supervision.search import shapes
from wardround.weak_supervision.search.vote_groups import as_groups, differences
from wardround.weak_supervision.search.words import LETTERS, own_words
from wardround.weak_supervision.series import squared_distances, z_normalised

COLUMNS = ("age", *(f"sign_{number}" for number in range(12)))
OLDEST, PATIENT = 99.0, 7
CUTS = np.array([[0, 1, 98.0], [0, 1, 200.0], *([place, 1, 0.5] for place in range(1, 13))])
"""Older than 98, which one patient is; older than 200, which nobody is; and each sign."""


def table(seed, rows=80):
    generator = np.random.default_rng(seed)
    signs = {name: (generator.random(rows) < 0.4).astype(float) for name in COLUMNS[1:]}
    return pd.DataFrame({"age": generator.integers(20, 90, rows).astype(float), **signs})


def judged_about(*answers):
    filled = np.full((6, 2), -1.0)
    filled[: len(answers)] = answers
    arrays = {"pool/cuts": CUTS, "judged": filled, "number": np.array(0.0)}
    return Message(arrays, (("phase", "judge"),))


def read_row(ask):
    """What the usefulness of every sign says of whoever is older than 98: with the answers, and without anybody."""

    def told(place, answer):
        return ask(judged_about((place, answer)))["useful"][2:]

    found = np.zeros(12)
    for label, sign in ((0, 1.0), (1, -1.0)):
        apart = (told(label, 1.0) - told(2 + label, 1.0)) - (told(label, 0.0) - told(2 + label, 0.0))
        found += sign * (apart[:, 0] - apart[:, 1])
    return found


def halves(seed, cell):
    """Three sites without a network: what a secure sum opens is the sum of their answers."""
    own = [Site(name, table(10 * seed + place)) for place, name in enumerate(NAMES)]
    own[1].table.loc[PATIENT, "age"] = OLDEST
    analysis = rule_mining(labels=("x", "y"), kind="table", columns=COLUMNS, smallest_cell=cell, questions=6)
    agreed = Agreed(NAMES, {name: AgreedColumn("number") for name in COLUMNS})

    def ask(asked):
        return {"useful": sum(analysis.ask(agreed, asked, site).arrays["useful"] for site in own)}

    return ask, own[1].table.loc[PATIENT, list(COLUMNS[1:])].to_numpy()


def test_the_row_of_one_patient_is_read_from_a_sum_where_small_groups_are_not_protected():
    """The control: eight sums over three sites put her signs in order (nearly all pairs)."""
    right = []
    for seed in range(3):
        ask, signs = halves(seed, cell=1)
        found = read_row(ask)
        right.append((found[signs == 1][:, None] > found[signs == 0]).mean())
    assert np.mean(right) > 0.95


def test_a_rule_that_one_patient_meets_teaches_a_site_nothing(tmp_path):
    """The same questions over three real sites: no answer depends on her."""
    consortium = Consortium(tmp_path)
    for place, (name, path) in enumerate(consortium.tables.items()):
        rows = table(place)
        rows.loc[PATIENT, "age"] = OLDEST if place == 1 else rows.loc[PATIENT, "age"]
        rows.to_csv(path, index=False)
        for key in ("components", "columns"):
            set_policy(consortium.homes[name].policy_path, key, "*")
    study = consortium.full(study_of())
    submission = Submission(study, consortium.names, "researcher")
    recipe, analysis = conduct.refuse_analysis(submission, consortium)
    engine = Deployment(
        sites=tuple(sorted(NAMES)),
        gatherer=Gatherer(submission.id, consortium, policy_of(submission), ignore),
        seed=study.study.seed,
        transforms=links_of(study),
        sums=tmp_path / "sums",
    )
    gather_approvals(engine.gatherer, submission, None, began=False)
    agreed = conduct.settle_columns(engine, study, analysis, tmp_path).agreed
    engine.introductions = [conduct.question_of(agreed)]
    folder = RunFolder.create(tmp_path / "run", resume=False)
    records = conduct.ExchangeRecords(recipe.name, analysis.most, folder, ignore)
    exchange = conduct.exchange_over(engine, analysis, recipe, agreed, records)
    numbers = iter(range(1, 20))
    told = [exchange(next(numbers), judged_about((place, 1.0))).arrays for place in (0, 2)]
    assert told[0]["sites"][:2].tolist() == [0, 0]
    assert (told[0]["useful"][2:] > 0).any()
    np.testing.assert_array_equal(told[0]["useful"], told[1]["useful"])
    np.testing.assert_array_equal(told[0]["useful"] * 16 % 1, 0)


def study_of(transforms=({"name": "secure_sum"},), **analysis):
    words = {"name": "rule_mining", "labels": ["x", "y"], "kind": "table", "columns": list(COLUMNS), "questions": 6}
    return parse_study(
        {
            "study": {"name": "mined", "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "preparation": {"smallest_cell": 10}},
            "analysis": {**words, **analysis},
            "transforms": list(transforms),
        },
        where="test",
    )


def test_no_two_rules_of_a_pool_differ_by_a_few_patients():
    """Cuts on either side of one patient, and any others: alike, or a cell apart, from nobody and everybody too."""
    values = np.sort(np.random.default_rng(1).normal(size=200))
    fired = values[:, None] > np.append((values[1:] + values[:-1]) / 2, 9.0)
    groups = as_groups(fired, 10)
    apart = differences(np.concatenate([groups, np.zeros((200, 1), bool), np.ones((200, 1), bool)], axis=1))
    assert set(apart[apart < 10].tolist()) == {0}
    assert len(np.unique(groups, axis=1).T) == 21, "200 patients in cells of 10: 19 cuts between, nobody, everybody"
    np.testing.assert_array_equal(as_groups(fired, 1), fired)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"participants": 3}, "single answers can be worked out"),
        ({"kind": "words", "column": "note", "letters": LETTERS + "0123456789"}, "Words with digits may be numbers"),
    ],
    ids=["drawn sites", "digits"],
)
def test_settings_that_would_tell_more_than_the_approval_says_are_refused(words, why):
    """Who is drawn follows from a number in the question: sums of three of ten sites, solved, are ten answers."""
    with pytest.raises(Refusal, match=why):
        analysis_releases(study_of(**words), {}, 10)


def test_the_number_of_a_question_can_draw_a_single_site():
    """Why: of five sites some number draws each alone, and then the sum of all is that one's answer (the control)."""
    analysis = rule_mining(labels=("x", "y"), kind="table", columns=COLUMNS, participants=3)
    half: SiteHalf = analysis.ask.__self__  # type: ignore[attr-defined]
    names = ("bo", "freetown", "kenema", "makeni", "port loko")
    agreed, rows = Agreed(names, {}), table(0)

    def drawn(number):
        asked = Message({"number": np.array(float(number))})
        return tuple(name for name in names if half.is_drawn(agreed, asked, Site(name, rows)))

    assert {(name,) for name in names} <= {drawn(number) for number in range(500)}


def test_radii_of_templates_are_fixed_at_their_first_use(tmp_path):
    """One template and growing radii: where the count passes a cell lies one patient's distance."""
    analysis = rule_mining(labels=("x", "y"), kind="series", series="beat_", length=4, smallest_cell=10)

    def asked(radius):
        pool = {"pool/templates": np.array([[0.0, 1.0, 0.0, -1.0]]), "pool/radii": np.array([radius])}
        return Message({**pool, "judged": np.full((6, 2), -1.0), "number": np.array(0.0)}, (("phase", "judge"),))

    remember_question(tmp_path / "asked.json", analysis, asked(0.5))
    with pytest.raises(Refusal, match="another 'pool/radii' than before"):
        remember_question(tmp_path / "asked.json", analysis, asked(0.6))


@pytest.mark.parametrize("passes", [0, 1, 8])
def test_a_template_is_the_mean_of_a_cell_of_series(monkeypatch, passes):
    """However far k-means has come: a centre may still be one patient's series when a cell of others joins it."""
    monkeypatch.setattr(shapes, "PASSES", passes)
    series = np.random.default_rng(2).normal(size=(100, 6)).cumsum(axis=1)
    own = z_normalised(series)
    templates, radii = shapes.own_templates(series, 10, seed=3)
    assert len(templates) == len(radii) > 0
    assert np.sqrt(squared_distances(templates, own)).min() > 0.1
    for template, radius in zip(templates, radii, strict=True):
        assert (np.sqrt(squared_distances(own, template[None])) <= radius + 1e-9).sum() >= 10


def test_questions_larger_than_the_dialogue_take_no_memory():
    """A quarter of a million judged rules would be a table of as many votes by every record."""
    analysis = rule_mining(labels=("x", "y"), kind="table", columns=COLUMNS, smallest_cell=10, questions=6)
    agreed = Agreed(NAMES, {name: AgreedColumn("number") for name in COLUMNS})
    site = Site("bo", table(1))
    few, many = judged_about((4, 1.0)), judged_about((4, 1.0))
    longer = np.concatenate([few.arrays["judged"], np.tile([[6.0, 1.0]], (1 << 18, 1))])
    many = Message({**few.arrays, "judged": longer}, few.meta)
    first, second = (analysis.ask(agreed, one, site).arrays for one in (few, many))
    for name, expected in first.items():
        np.testing.assert_array_equal(second[name], expected)
    pattern = Message({"sites": np.zeros(101)})
    with pytest.raises(Refusal, match="would have 101 numbers, and the approved list has 100"):
        checked_answer(pattern, pattern, 100)


def test_names_in_capitals_at_the_start_or_denied_in_another_form_are_not_spoken_of():
    texts = [
        "Patient: MEYER, seen for pain. Positive for HIV, so hiv therapy; O'Hara's bed",
        "Kowalski slept well, no pain. hiv known. O'Hara's ward",
    ] * 10
    found = own_words(texts, 0.0, 1.0, 10, LETTERS, ["HIV", "Therapy of Hara"])
    assert {"pain", "slept", "well", "ward"} <= found
    assert not found & {"meyer", "kowalski", "hiv", "therapy", "patient", "o'hara", "o'hara's"}
