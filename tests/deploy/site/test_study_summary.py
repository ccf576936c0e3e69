"""The approver reads what is true: columns, numbers and bytes as they will really be."""

import jax
import numpy as np
import pytest

from tests.support import small_site as small
from wardround.core.chain import identity
from wardround.core.errors import Refusal
from wardround.data.load import load
from wardround.deploy.protocol.wire import encode
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.datasets import table_for
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.privacy_summary import epsilon_sentence
from wardround.deploy.site.release.answer_size import HEADER
from wardround.deploy.site.study_summary import describe
from wardround.engine.split_round import OwnRows, initial_progress, message_of_round, site_round
from wardround.study import assemble
from wardround.study.methods import own_method


@pytest.fixture
def home(tmp_path):
    return small.make(tmp_path)


def said(shown) -> str:
    return "\n".join(sentence for _, sentences in shown.parts for sentence in sentences)


def test_who_what_and_how_long(home):
    asked = small.study(study={"user": "kenema"})
    shown = describe(home, small.offered(home, asked))
    text = said(shown)
    for part in (
        "anna submitted triage. Purpose: triage research.",
        "The model is for the site kenema",
        "100 rows. Columns: age, pulse, sex, outcome.",
        "algorithm/fed_avg, aggregator/weighted_mean, model/logistic",
        "values of single patients; counts between edges around the median",
        "gives no formal guarantee",
        f"Until {read_policy(home.policy_path).expires}",
    ):
        assert part in text
    assert shown.against == ()
    assert "patient_id" not in text


def test_the_size_of_an_answer_is_that_of_a_real_one(home):
    """Two numbers and two categories are 4 features; with 2 classes a logistic model has 4 * 2 + 2 = 10 numbers."""
    asked = small.study(algorithm={"name": "scaffold"}, study={"rounds": 7})
    facts = describe(home, small.offered(home, asked)).facts
    assert facts["arrays"] == {"update": 10, "control": 10, "weight": 1}
    table = table_for(home, "patients", asked, read_policy(home.policy_path))
    federation = load(table, seed=0, **asked.data.preparation.model_dump()).federation
    algorithm = assemble.build(asked, own_method(asked), federation.task)
    params = assemble.model_of(asked, federation.task).init(jax.random.key(0))
    rows = int(federation.counts[0, 0])
    own = OwnRows(federation.x[:rows], federation.y[:rows], 0)
    row = tuple(jax.ShapeDtypeStruct(part.shape[1:], part.dtype) for part in (federation.x, federation.y))
    progress = initial_progress(algorithm, identity(), params, 3, row)
    sent = message_of_round(algorithm, identity(), progress, seed=0, number=1)
    answer, _, _ = site_round(algorithm, identity(), sent, algorithm.init_client(params), own, seed=0, number=1)
    assert facts["bytes_a_round"] == len(encode(HEADER, jax.device_get(answer)))
    assert facts["bytes_in_all"] == 7 * facts["bytes_a_round"]
    counted = {name: sum(np.size(leaf) for leaf in jax.tree.leaves(part)) for name, part in answer.arrays.items()}
    assert facts["arrays"] == counted


def test_what_is_withheld_and_what_seems_to_identify_is_pointed_out(home):
    shown = describe(home, small.offered(home, small.study(data={"drop": []})))
    assert "Withheld by your policy: patient_id." in said(shown)
    assert "Warning" not in said(shown)
    set_policy(home.policy_path, "columns", "*")
    shown = describe(home, small.offered(home, small.study(data={"drop": []})))
    assert "Warning: these columns may identify patients: patient_id (its name contains 'id')." in said(shown)


def test_extremes_are_not_told_of_where_none_are_asked_for(home):
    asked = small.study(data={"preparation": {"impute": "mean", "scale": "standard"}})
    assert "values of single patients" not in said(describe(home, small.offered(home, asked)))


def test_the_share_is_told_where_the_offer_tells_the_others(home):
    """60 of 100 rows train here; 60 / (60 + 240) is a fifth."""
    shown = describe(home, small.offered(home, others=240))
    assert "About 20.0% of the training rows would be yours: 60, and 240 at the other sites together" in said(shown)
    other = describe(home, small.offered(home, small.study(study={"rounds": 9})))
    assert "how many patients the other sites have becomes known" in said(other)


def test_reasons_against_are_told_and_are_those_that_refuse(home):
    set_policy(home.policy_path, "purposes", "sepsis")
    offer = small.offered(home)
    shown = describe(home, offer)
    assert len(shown.against) == 1
    with pytest.raises(Refusal) as refused:
        approve(home, offer.id, by="ben")
    assert shown.against[0] in str(refused.value)


def test_an_unknown_size_is_said_to_be_unknown(home):
    """A target that no row has an outcome for cannot be prepared; the reason is told instead of a number."""
    shown = describe(home, small.offered(home, small.study(data={"task": "regression", "positive": "1"})))
    assert shown.facts["bytes_a_round"] is None
    assert "size is not known yet. The positive label" in said(shown)


def test_epsilon_spent_and_left():
    """3 allowed, 1 spent, 0.5 asked: 1.5 left."""
    assert (
        epsilon_sentence(0.5, 1.0, 3.0)
        == "Epsilon 0.5; 1 of 3 is promised to studies approved earlier; 1.5 would be left."
    )
    assert "your policy sets no limit" in epsilon_sentence(None, 0.0, None)


def test_whoever_approves_reads_what_its_own_line_gets(home):
    """At a gentle line nothing is compressed; at one of few bytes a second this site's messages are, and it is said."""
    told = {}
    for name, megabits in (("gentle", 10.0), ("slow", 8e-6)):
        lines = {"elsewhere": 10.0, home.own_name: megabits}
        words = {"name": "auto", "lines": lines, "seconds": 1000.0, "smallest": 8}
        offer = small.offered(
            home,
            small.study(
                model={"name": "mlp", "hidden": [64]},
                transforms=[words],
                deploy={"sites": sorted(["elsewhere", home.own_name])},
            ),
        )
        told[name] = said(describe(home, offer))
    assert "the model comes uncompressed, your answers leave uncompressed." in told["gentle"]
    assert "For the line of this site, that is: the model comes by the scheme" in told["slow"]
    assert "your answers leave by the scheme" in told["slow"]
    assert "by the scheme" not in told["gentle"].replace("or by the scheme conservative", "")


def test_whoever_approves_reads_how_answers_are_compressed(home):
    shown = said(describe(home, small.offered(home, small.study(transforms=[{"name": "compression", "smallest": 2}]))))
    assert "Answers leave rounded to 16 levels (4 bits a number), arrays below 2 numbers exactly." in shown
    assert "Of the numbers of large arrays 50 % are sent, drawn anew each round." in shown
    assert "The model travels to the sites rounded to 32 levels (5 bits a number)" in shown
