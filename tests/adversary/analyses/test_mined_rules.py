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
from wardround.data.table import Table
from wardround.deploy.coordinator.analyses import conduct
from wardround.deploy.coordinator.engine import Deployment
from wardround.deploy.coordinator.events import ignore
from wardround.deploy.coordinator.gather import Gatherer
from wardround.deploy.coordinator.studies.offers import gather_approvals
from wardround.deploy.coordinator.studies.submission import Submission, policy_of
from wardround.deploy.demo import PURPOSE
from wardround.deploy.protocol.requests import AgreeColumns
from wardround.deploy.site.analyses.asked_questions import remember_question
from wardround.deploy.site.analyses.releases import analysis_releases
from wardround.deploy.site.analyses.worker import AnalysisWorker, checked_answer
from wardround.deploy.site.policy_file import set_policy
from wardround.runs.folder import RunFolder
from wardround.study.analyses.analysis import analysis_recipe
from wardround.study.file import parse_study
from wardround.study.transform_chain import links_of
from wardround.weak_supervision.search import shapes
from wardround.weak_supervision.search.vote_groups import as_groups, differences
from wardround.weak_supervision.search.words import LETTERS, from_codes, longer_ones, own_words, to_codes
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


def notes(*texts, rows=60):
    return pd.DataFrame({"note": [texts[place % len(texts)] for place in range(rows)]})


def searched(analysis, agreed, answers_of):
    """The pool that an honest coordinator comes to, from what the sites answer."""
    state = analysis.begin(agreed)
    while "pool" not in state:
        asked = analysis.message(state)
        told = [answers_of(place, analysis.ask(agreed, asked, site).arrays, asked) for place, site in enumerate(SITES)]
        state = analysis.step(state, Message({"sites": np.sum(told, axis=0)}))
    return from_codes(state["pool"]["words"])


SITES = [
    Site(f"site-{place}", notes("pain and fever", "pain again", *own))
    for place, own in enumerate((["rare zoonosis"], [], [], []))
]
MINING = {"labels": ("x", "y"), "column": "note", "smallest_cell": 10, "fewest_sites": 3, "frequency": (0.0, 1.0)}


def test_a_site_that_claims_to_be_three_is_found_out():
    """Its lie would lift every word that one other site has to three sites, and show it to all: counts end at four."""
    analysis = rule_mining(**MINING)
    agreed = Agreed(tuple(site.name for site in SITES), {"note": AgreedColumn("text")})
    honest = searched(analysis, agreed, lambda place, told, asked: told["sites"])
    assert "pain" in honest
    assert "zoonosis" not in honest
    for lie in (2.0, -9.0):
        with pytest.raises(Refusal, match="propose a rule, and 4 take part: the answer of one of them is not true"):
            searched(analysis, agreed, lambda place, told, asked, lie=lie: told["sites"] + lie * (place == 3))


def test_what_a_site_can_still_learn_that_lies_about_one_word():
    """Left, and said in the promises: two votes too many along one rare word stay below the number of sites."""

    def lie(place, told, asked):
        found = told["sites"].copy()
        if place == 3:
            beginnings = from_codes(asked.arrays["beginnings"])
            for row, letter in longer_ones(["zoonosis"], {one: row for row, one in enumerate(beginnings)}, LETTERS):
                found[row, letter] += 2.0
        return found

    agreed = Agreed(tuple(site.name for site in SITES), {"note": AgreedColumn("text")})
    assert "zoonosis" in searched(rule_mining(**MINING), agreed, lie)


def test_a_study_that_shows_what_one_site_has_is_not_approved():
    for name in ("rule_mining", "vocabulary"):
        given = {"labels": ["x", "y"]} if name == "rule_mining" else {}
        study = study_of().model_dump(exclude_unset=True)
        study["analysis"] = {"name": name, "column": "note", "fewest_sites": 1, **given}
        with pytest.raises(Refusal, match="What one site alone has would be shown to everybody"):
            analysis_releases(parse_study(study, where="test"), {"note": "text"}, 10)


def test_words_of_a_request_do_not_change_what_a_site_holds_back():
    """The cell and the number of sites are those of the approved study, whatever stands beside the arrays."""
    analysis = rule_mining(**MINING, questions=6)
    agreed = Agreed(tuple(site.name for site in SITES), {"note": AgreedColumn("text")})
    arrays = {"pool/words": to_codes(["pain", "zoonosis"]), "judged": np.full((6, 2), -1.0), "number": np.array(0.0)}
    few = Site("few", notes("pain", *["fever"] * 9))
    asked = Message(arrays, (("phase", "judge"),))
    lying = Message(
        {**arrays, "smallest_cell": np.array(1.0), "fewest_sites": np.array(1.0)},
        (("phase", "judge"), ("fewest_sites", "1"), ("smallest_cell", "1")),
    )
    for name, told in analysis.ask(agreed, asked, few).arrays.items():
        np.testing.assert_array_equal(analysis.ask(agreed, lying, few).arrays[name], told)
        assert name == "rows" or not told.any(), "six notes have pain, fewer than a cell"


def test_noise_is_not_gone_from_the_mean_of_a_dialogue():
    """Counts that stay the same have the same noise in all exchanges, whatever was judged in between."""
    analysis = rule_mining(**MINING, questions=6, noise=20.0)
    agreed = Agreed(tuple(site.name for site in SITES), {"note": AgreedColumn("text")})

    def told(*judged):
        filled = np.full((6, 2), -1.0)
        filled[: len(judged)] = np.reshape(judged, (-1, 2))
        arrays = {"pool/words": to_codes(["fever", "pain"]), "judged": filled, "number": np.array(float(len(judged)))}
        return analysis.ask(agreed, Message(arrays, (("phase", "judge"),)), SITES[1]).arrays

    every = [told(*[(0, 1.0)] * many)["covered"] for many in range(6)]
    assert np.abs(every[0] - [30, 60]).max() > 0.1
    for one in every[1:]:
        np.testing.assert_array_equal(one, every[0])


def test_a_site_denies_names_of_its_own_without_telling_anybody(tmp_path):
    """The policy's words_denied, as it stands now: a name in texts without capitals is in no answer."""
    study = study_of(kind="words", column="note", columns=[], transforms=())
    frame = notes("seen by meyer", "meyer's walk", "pain")
    denied = []
    worker = AnalysisWorker.start(
        site="bo",
        study=study,
        table=Table({"bo": frame}, None, "notes"),
        folder=tmp_path / "study" / "bo",
        allow=lambda recipe: None,
        smallest_cell=10,
        words_denied=lambda: tuple(denied),
    )
    (tmp_path / "study" / "bo").mkdir(parents=True)
    worker._take(AgreeColumns({"note": "text"}, {}, list(NAMES)))
    recipe = analysis_recipe(study)

    def asked(beginnings):
        message = Message({"beginnings": to_codes(beginnings)}, (("phase", "search"),))
        return worker.answer(recipe, message, 1, "request").arrays["sites"]

    assert asked(["meye", "pai"]).sum(axis=1).tolist() == [1, 1], "one in three notes each"
    denied.append("Meyer")
    assert asked(["meye", "pai", "see"]).sum(axis=1).tolist() == [0, 1, 1]
