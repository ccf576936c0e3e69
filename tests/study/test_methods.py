"""Which ways to train a study names, and for whom."""

import pytest

from wardround.core.errors import Refusal
from wardround.partners.choice import Rule
from wardround.study.file import parse_study
from wardround.study.methods import compared_methods, own_method


def study(**tables):
    return parse_study({"study": {"name": "s"}, "data": {"source": "triage"}, **tables}, where="s.toml")


def test_a_choice_of_partners_is_a_method_that_trains_as_the_study_says():
    said = study(
        algorithm={"name": "fed_prox", "mu": 0.3},
        compare={"methods": ["global", "ndoye"], "settings": {"ndoye": {"top": 2, "mu": 0.1}}},
    )
    common, chosen = compared_methods(said)
    assert (common.algorithm, common.choice, common.for_one_site) == ("fed_prox", "", False)
    assert (chosen.algorithm, chosen.choice, chosen.for_one_site) == ("fed_prox", "ndoye", True)
    assert chosen.rule == Rule(top=2)
    assert dict(chosen.settings) == {"mu": 0.1}
    assert chosen.label != common.label


def test_the_partners_table_makes_the_study_s_own_method_choose():
    method = own_method(study(partners={"name": "ndoye", "threshold": -0.1, "folds": 3}))
    assert (method.choice, method.rule, dict(method.choice_settings)) == ("ndoye", Rule(threshold=-0.1), {"folds": 3})
    assert own_method(study()).choice == ""


def test_settings_of_partners_hold_for_the_same_choice_in_a_comparison():
    said = study(partners={"name": "ndoye", "by_hand": ["Bo"]}, compare={"methods": ["ndoye", "gradient_distance"]})
    ndoye, gradients = compared_methods(said)
    assert ndoye.rule == Rule(by_hand=("Bo",))
    assert gradients.rule == Rule()


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"partners": {"name": "ndoy"}}, "did you mean 'ndoye'"),
        ({"partners": {"name": "ndoye", "fold": 3}}, "nknown key 'fold'"),
        ({"compare": {"methods": ["ndoyee"]}}, "no algorithm or choice of partners called 'ndoyee'"),
        ({"compare": {"methods": ["ndoye"], "settings": {"ndoye": {"folds": 1}}}}, "'folds' must be"),
    ],
)
def test_what_is_wrong_is_said(tables, words):
    said = study(**tables)
    with pytest.raises(Refusal, match=words):
        compared_methods(said) if said.compare else own_method(said)
