"""A study with an [analysis]: what it may not have beside it, and that its words are its identity."""

import pytest

from wardround.core.errors import Refusal
from wardround.study.analyses.analysis import analysis_of, analysis_recipe
from wardround.study.file import parse_study
from wardround.study.methods import own_method


def words(**tables):
    return {
        "study": {"name": "ages"},
        "data": {"source": "csv", "path": "x.csv"},
        "analysis": {"name": "glm", "formula": "death ~ age"},
        **tables,
    }


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ({"algorithm": {"name": "fed_avg"}}, r"\[algorithm\] says how a model is trained"),
        ({"model": {"name": "logistic"}}, r"\[model\] says how"),
        ({"compare": {"methods": ["local"]}}, r"\[compare\] says how"),
        ({"study": {"name": "ages", "rounds": 3}}, r"rounds in \[study\]"),
        ({"study": {"name": "ages", "user": "bo"}}, r"user in \[study\]"),
        ({"data": {"source": "csv", "shares": [1.0, 0.0, 0.0]}}, r"shares in \[data\]"),
    ],
)
def test_what_says_how_to_train_is_refused(tables, match):
    with pytest.raises(Refusal, match=f"(?i){match}"):
        parse_study(words(**tables), where="test")


@pytest.mark.parametrize(
    ("analysis", "match"),
    [
        ({"name": "glmm"}, "there is no analysis called 'glmm'"),
        ({"name": "glm"}, "the key 'formula' is missing"),
        ({"name": "glm", "formula": "y ~ x", "famly": "binomial"}, "unknown key 'famly'"),
        ({"name": "glm", "formula": "y ~ x", "family": "normal"}, "'family' must be one of 'gaussian'"),
        ({"name": "glm", "formula": "y ~ f(x)"}, "a function 'f'"),
    ],
)
def test_an_unknown_analysis_or_setting_is_refused(analysis, match):
    with pytest.raises(Refusal, match=f"(?i){match}"):
        analysis_of(parse_study(words(analysis=analysis), where="test"))


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ({"transforms": [{"name": "clip", "norm": 1.0}]}, "the transform 'clip' would change them"),
        ({"transforms": [{"name": "secure_sum", "fraction_bits": 8}]}, "remove fraction_bits"),
        ({"privacy": {"epsilon": 1.0}}, "has no noise to offer"),
    ],
)
def test_transforms_and_privacy_that_do_not_fit_are_refused(tables, match):
    with pytest.raises(Refusal, match=match):
        analysis_of(parse_study(words(**tables), where="test"))


def test_its_words_come_back_and_name_no_algorithm():
    study = parse_study(words(), where="test")
    told = study.model_dump(mode="json")
    assert not {"algorithm", "model", "compare"} & set(told)
    assert parse_study(told, where="test") == study
    with pytest.raises(Refusal, match="trains no model"):
        own_method(study)


def test_studies_that_train_keep_their_identity():
    trained = parse_study({"study": {"name": "x"}, "data": {"source": "triage"}}, where="test")
    assert "analysis" not in trained.model_dump(mode="json")


def test_the_smallest_cell_of_the_study_is_that_of_the_analysis():
    study = parse_study(words(data={"source": "csv", "preparation": {"smallest_cell": 7}}), where="test")
    assert dict(analysis_recipe(study).settings)["smallest_cell"] == 7


def test_exchanged_classifiers_have_no_privacy_and_the_reason_is_told():
    said = {
        "study": {"name": "s"},
        "data": {"source": "csv", "path": "x.csv", "site": "hospital"},
        "analysis": {"name": "classifier_selection", "outcome": "died", "positive": "yes", "columns": ["age"]},
        "privacy": {"epsilon": 1.0},
    }
    with pytest.raises(Refusal, match="noise cannot be added to one after it was trained"):
        analysis_of(parse_study(said, where="test"))
