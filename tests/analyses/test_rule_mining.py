"""Rules mined with an expert: planted words are found, what few sites have is shown to nobody, dialogues go on."""

import json

import numpy as np
import pandas as pd
import pytest

import wardround as wr
from wardround.core.analysis import Agreed, AgreedColumn
from wardround.core.components.terms import Extent, terms_of
from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.analyse import analyse, combine_answers, exchange_in_process
from wardround.study.file import parse_study
from wardround.weak_supervision.function_file import read_functions
from wardround.weak_supervision.search.words import to_codes
from wardround.workflows.expert import DialogueStopped

GOOD, BAD = ("lovely", "superb", "gentle", "bright"), ("awful", "boring", "stupid", "noisy")
FILLER = ("film", "scene", "actor", "story", "music")
SETTINGS = {"labels": ("bad", "good"), "column": "text", "seeds": ("lovely -> good", "awful -> bad"), "questions": 8}


def sites(count=4, rows=60, seed=0):
    """Texts of one kind or the other; only the first site writes of "zebras", the first two of "llamas"."""
    generator = np.random.default_rng(seed)
    found = []
    for place in range(count):
        good = generator.random(rows) < 0.5
        texts = []
        for one in good:
            words = list(generator.choice(GOOD if one else BAD, 2)) + list(generator.choice(FILLER, 2))
            words += ["zebras"] * (place == 0 and len(texts) % 3 == 0) + ["llamas"] * (
                place < 2 and len(texts) % 3 == 0
            )
            texts.append(" ".join(words))
        labels = np.where(good, "good", "bad").astype(object)
        found.append(Site(f"site-{place}", pd.DataFrame({"text": texts, "kind": labels})))
    return found


def agreed_on(own, columns=("text",)):
    kinds = {"text": AgreedColumn("text"), "kind": AgreedColumn("category", ("bad", "good"))}
    return Agreed(tuple(site.name for site in own), {name: kinds[name] for name in columns})


def mine(own, answers=None, heard=None, **settings):
    """The report; `heard` takes up all that was asked and told."""
    columns = ("text", "kind") if settings.get("outcome") else ("text",)
    analysis = registry.find("analysis", "rule_mining").build(**{**SETTINGS, **settings})
    agreed, plain = agreed_on(own, columns), exchange_in_process(analysis, agreed_on(own, columns), own)

    def exchange(number, asked):
        told = plain(number, asked)
        if heard is not None:
            heard.extend([asked, told])
        return told

    return analyse(analysis, agreed, exchange, expert=answers) if answers else analyse(analysis, agreed, exchange)


def by_meaning(asked):
    """An expert who knows which words are good."""
    rule = asked.facts["rule"]
    return "yes" if rule["word"] in (GOOD if rule["label"] == "good" else BAD) else "no"


def test_the_expert_is_shown_useful_rules_first():
    numbers = mine(sites(), by_meaning)["numbers"]
    rules = {(one["word"], one["label"]) for one in numbers["functions"]}
    assert rules <= {*((word, "good") for word in GOOD), *((word, "bad") for word in BAD)}
    worse = [mine(sites(), by_meaning, strategy="random", seed=seed)["numbers"]["accepted"] for seed in range(5)]
    # Of 22 candidates (13 words without the seeds, twice) 6 are useful: chance would find 2 among 8.
    assert numbers["accepted"] >= 5 > max(worse)


def test_an_oracle_accepts_what_is_mostly_right():
    analysis = registry.find("analysis", "rule_mining").build(**{**SETTINGS, "expert": "oracle", "outcome": "kind"})
    own = sites()
    agreed = agreed_on(own, ("text", "kind"))
    found = analyse(analysis, agreed, exchange_in_process(analysis, agreed, own))
    numbers = found["numbers"]
    for words, answer in numbers["answers"]:
        assert (answer == "yes") == (words["word"] in (GOOD if words["label"] == "good" else BAD))
    assert found["words"][0].startswith("An oracle accepted 6 rules of 8 shown (75 %"), "all that are useful"


def test_sites_on_one_machine_are_asked_at_once_and_add_up_to_the_same():
    """Some drawn, some not, one without records; an oracle's counts come from all of them."""
    own = [*sites(4, rows=20), Site("nobody", sites(1)[0].table.iloc[:0]), *sites(1, rows=37, seed=5)]
    own[-1] = Site("site-9", own[-1].table)
    settings = {**SETTINGS, "outcome": "kind", "participants": 3, "smallest_cell": 1}
    analysis = registry.find("analysis", "rule_mining").build(**settings)
    agreed = agreed_on(own, ("text", "kind"))
    beginnings = Message({"beginnings": to_codes(["", "lo", "aw"])}, (("phase", "search"),))
    judged = np.full((8, 2), -1.0)
    judged[:2] = [[0, 1.0], [3, 0.0]]
    arrays = {"pool/words": to_codes(["awful", "boring", "film", "lovely"]), "judged": judged}
    drawn = Message({**arrays, "number": np.array(4.0)}, (("phase", "judge"),))
    for asked in (beginnings, drawn):
        together = analysis.together(agreed, asked, own).arrays
        alone = combine_answers(analysis, {site.name: analysis.ask(agreed, asked, site) for site in own}).arrays
        for name, expected in alone.items():
            np.testing.assert_allclose(together[name], expected, atol=1e-3)
    assert 0 < together["sites"].max() < 5, "some sites were not drawn"
    truth = pd.concat([site.table for site in own])
    fires = truth["text"].str.contains("awful")
    assert together["known"][0].tolist() == [(fires & (truth["kind"] == one)).sum() for one in ("bad", "good")]


def test_what_fewer_sites_have_reaches_nobody():
    """Not the expert, not another site: no question to a site names the word, or a beginning that only few have."""
    heard, shown = [], []

    def expert(asked):
        shown.append(asked.words)
        return "unsure"

    mine(sites(), expert, heard, questions=30)
    asked_words = [
        "".join(chr(int(code)) for code in row if code)
        for message in heard[::2]
        for key in ("beginnings", "pool/words")
        if key in message.arrays
        for row in np.asarray(message.arrays[key])
    ]
    assert "film" in asked_words
    assert not any(word.startswith(("zeb", "lla")) for word in asked_words)
    assert not any("zebras" in one or "llamas" in one for one in shown)
    # With two sites enough, llamas is common.
    shown.clear()
    mine(sites(), expert, questions=60, fewest_sites=2)
    assert any("llamas" in one for one in shown)
    assert not any("zebras" in one for one in shown)


def test_a_pool_of_a_lying_coordinator_gets_no_word_out_of_a_site():
    """Whoever asks about a name or a rare word is told 0, as of a word that is nowhere."""
    own = Site("a", pd.DataFrame({"text": ["seen by Meyer", "told Meyer so", "a word", "so what", "so rare"] * 4}))
    analysis = registry.find("analysis", "rule_mining").build(
        **{**SETTINGS, "smallest_cell": 5, "frequency": (0.0, 1.0)}
    )
    arrays = {"pool/words": to_codes(["meyer", "rare", "so", "nowhere"]), "judged": np.full((8, 2), -1.0)}
    message = Message({**arrays, "number": np.array(0.0)}, (("phase", "judge"),))
    told = analysis.ask(agreed_on([own]), message, own).arrays
    assert told["sites"].tolist() == [0, 0, 1, 0]
    assert told["covered"].tolist() == [0, 0, 10, 0], "12 documents, in cells of 5"
    assert not told["useful"][[0, 1, 3]].any()


def test_take_back_not_sure_and_done():
    said = iter(["yes", "back", "unsure", "no", "done"])
    numbers = mine(sites(), lambda asked: next(said))["numbers"]
    assert [answer for _, answer in numbers["answers"]] == ["unsure", "no"]
    assert numbers["accepted"] == 0
    assert numbers["unsure"] == 1
    nothing = mine(sites(), lambda asked: "done")
    assert nothing["numbers"]["shown"] == 0
    assert "The expert answered nothing" in nothing["words"][-1]
    with pytest.raises(Refusal, match="'maybe' is no answer"):
        mine(sites(), lambda asked: "maybe")
    with pytest.raises(Refusal, match="nobody is here to answer"):
        mine(sites())


def test_a_rule_that_is_shown_again_is_judged_by_the_rules_accepted_before_it():
    """Taken back after a yes: its own votes are not among those that it agrees with, and the report says so too."""
    asked_of = []
    said = iter(["yes", "back", "yes", "done"])

    def expert(asked):
        asked_of.append(asked)
        return next(said)

    report = mine(sites(), expert)
    assert asked_of[2] == asked_of[0]
    own = asked_of[0].facts
    assert 0 < own["agree_of"] < own["records"], "the two seeds fire on some of its records"
    (row,) = report["tables"][0]["rows"]
    assert row[report["tables"][0]["columns"].index("agreement")] == own["agree"] / own["agree_of"]
    assert "accuracy" not in report["tables"][0]["columns"], "no label is known"


def test_an_expert_who_takes_back_without_end_comes_to_an_end():
    """Sites allow for two answers a question: then what stands is the result, and the report says why it is short."""
    turn = iter(["yes", "back"] * 50)
    report = mine(sites(), lambda asked: next(turn), questions=3)
    assert report["numbers"]["shown"] == 1
    assert next(turn) == "back", "after six answers and five times back"
    assert any("ended after 6 answers, those included that were taken back" in one for one in report["words"])


def test_sums_are_enough_and_answers_have_the_shapes_of_nobody():
    own, heard = sites(), []
    component = registry.find("analysis", "rule_mining")
    analysis = component.build(**SETTINGS, smallest_cell=5, noise=2.0, noise_seed=1)
    given = {one.name: one.default for one in component.parameters if not one.required} | SETTINGS
    most = terms_of(component.factory).numbers(Extent(given, sites=4, columns=1))
    agreed = agreed_on(own)

    def exchange(number, asked):
        pattern = analysis.ask(agreed, asked, Site("nobody", own[0].table.iloc[:0]))
        answers = {site.name: analysis.ask(agreed, asked, site) for site in own}
        for answer in answers.values():
            assert {k: np.shape(v) for k, v in answer.arrays.items()} == {
                k: np.shape(v) for k, v in pattern.arrays.items()
            }
            assert sum(np.size(one) for one in answer.arrays.values()) <= most
        assert all(not np.asarray(one).any() for one in pattern.arrays.values())
        heard.append(answers)
        return combine_answers(analysis, answers)

    analyse(analysis, agreed, exchange, expert=by_meaning)
    covered = heard[-1]["site-0"].arrays["covered"]
    assert (covered % 5 != 0).any(), "noised on request"


def study(path, **analysis):
    words = {"name": "rule_mining", **{key: list(v) if isinstance(v, tuple) else v for key, v in SETTINGS.items()}}
    data = {"source": "csv", "path": str(path), "site": "site"}
    return parse_study({"study": {"name": "mined"}, "data": data, "analysis": {**words, **analysis}}, where="test")


@pytest.mark.slow
def test_a_dialogue_that_is_stopped_goes_on_where_it_was(tmp_path):
    frame = pd.concat([site.table.assign(site=site.name) for site in sites()])
    frame.drop(columns="kind").to_csv(tmp_path / "texts.csv", index=False)
    whole = wr.analyse(study(tmp_path / "texts.csv"), out=tmp_path / "whole", expert=by_meaning)
    asked = []

    def tired(question):
        asked.append(question.key)
        if len(asked) == 4:
            raise DialogueStopped
        return by_meaning(question)

    with pytest.raises(DialogueStopped):
        wr.analyse(study(tmp_path / "texts.csv"), out=tmp_path / "run", expert=tired)
    assert len((tmp_path / "run" / "expert.jsonl").read_text().splitlines()) == 3
    again = wr.analyse(study(tmp_path / "texts.csv"), out=tmp_path / "run", resume=True, expert=tired)
    assert again.result.numbers == whole.result.numbers
    assert len(asked) == 3 + 1 + 5, "three answered, one asked twice, five more"
    functions = read_functions(tmp_path / "run" / "functions.json")
    assert len(functions) == 2 + whole.result.numbers["accepted"]
    kept = [json.loads(line)["answer"] for line in (tmp_path / "run" / "expert.jsonl").read_text().splitlines()]
    assert kept == [answer for _, answer in whole.result.numbers["answers"]]


def test_tables_are_cut_where_it_tells_classes_apart():
    generator = np.random.default_rng(0)
    own = []
    for place in range(3):
        ill = generator.random(80) < 0.5
        frame = pd.DataFrame(
            {"lactate": generator.normal(np.where(ill, 4.0, 1.0), 0.7), "age": generator.normal(60, 9, 80)}
        )
        own.append(Site(str(place), frame.assign(kind=np.where(ill, "bad", "good").astype(object))))
    analysis = registry.find("analysis", "rule_mining").build(
        labels=("bad", "good"), kind="table", columns=("lactate", "age"), expert="oracle", outcome="kind", questions=12,
        seeds=("lactate > 5 -> bad",),
    )  # fmt: skip
    kinds = {"lactate": AgreedColumn("number"), "age": AgreedColumn("number")}
    agreed = Agreed(("0", "1", "2"), {**kinds, "kind": AgreedColumn("category", ("bad", "good"))})
    found = analyse(analysis, agreed, exchange_in_process(analysis, agreed, own))
    accepted = [one["condition"] for one in found["numbers"]["functions"][1:]]
    assert accepted
    assert all("lactate" in one for one in accepted)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"labels": ("good",)}, "two different labels or more"),
        ({"column": ""}, "need column"),
        ({"kind": "series"}, "need series"),
        ({"frequency": (0.5, 0.1)}, "two shares in order"),
        ({"seeds": ("lovely -> goood",)}, "no rule with a label of the study"),
        ({"seeds": ("two words -> good",)}, "is not one word"),
        ({"expert": "oracle"}, "no outcome is named"),
        ({"columns": ('a "b"',)}, "column with a quotation mark"),
        ({"fewest_sites": 9}, "9 sites propose it, and 4 take part"),
        ({"frequency": (0.99, 1.0)}, "o candidate rule is common to 3 sites"),
    ],
)
def test_mistakes(settings, told):
    own = sites(rows=20)
    with pytest.raises(Refusal, match=told):
        mine(own, by_meaning, **settings)


def test_empty_texts_and_a_site_without_records():
    own = sites()
    own[3] = Site("site-3", own[3].table.iloc[:0])
    own[0] = Site("site-0", own[0].table.assign(text=None))
    report = mine(own, by_meaning, fewest_sites=2)
    assert report["numbers"]["shown"] == 8


def test_rules_for_the_labels_are_shown_in_turn():
    """A model learns nothing of a class that no rule votes for; on request the best one is shown whatever its label."""
    shown = []

    def expert(asked):
        shown.append(asked.facts["label"])
        return by_meaning(asked)

    mine(sites(), expert)
    assert shown == ["bad", "good"] * 4


def test_an_expert_who_contradicts_themself_is_taken_by_the_last_word():
    """A rule that was accepted is not shown for another label; taken back, it is, and only the last answer counts."""
    said, asked_of = iter(["yes", "back", "no"]), []

    def expert(asked):
        asked_of.append((asked.facts["rule"]["word"], asked.facts["label"]))
        return next(said, "yes")

    found = mine(sites(), expert, questions=22)["numbers"]
    first = asked_of[0]
    assert asked_of[2] == first, "the same question again"
    assert (first[0], {"good": "bad", "bad": "good"}[first[1]]) in asked_of[3:], "open for the other label"
    accepted = [one["word"] for one in found["functions"]]
    assert len(set(accepted)) == len(accepted), "no rule votes for two classes"
    assert [first[0], first[1]] not in [[one["word"], one["label"]] for one in found["functions"]]
