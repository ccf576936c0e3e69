"""Deny by default: each rule forbids by itself, and only what is said is allowed."""

import tomllib
from datetime import date

import pytest

from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.errors import Refusal
from wardround.deploy.site.policy import Policy, components_of, decide, epsilon_of, recipe_reasons
from wardround.deploy.site.policy_file import first_policy, installed_components, policy_text, read_policy, set_policy
from wardround.engine import registry
from wardround.queries.cards import cards
from wardround.queries.moments import moments
from wardround.study.file import parse_study

TODAY = date(2031, 5, 1)
STUDY = {
    "study": {"name": "triage", "purpose": "Triage  research"},
    "data": {"source": "csv", "preparation": {"smallest_cell": 10}},
    "algorithm": {"name": "fed_avg"},
    "aggregator": {"name": "weighted_mean"},
    "model": {"name": "logistic"},
    "transforms": [{"name": "clip"}],
    "privacy": {"epsilon": 1.0},
}
ALLOWS = {
    "purposes": ["triage research"],
    "components": ["algorithm/fed_avg", "aggregator/*", "model/logistic", "transform/clip", "query/moments"],
    "columns": ["age", "lab_*"],
    "columns_denied": ["lab_hiv"],
    "epsilon": 3.0,
    "expires": date(2031, 5, 1),
}
COLUMNS = ("age", "lab_lactate")


def against(changes=(), study=STUDY, columns=COLUMNS, **more) -> list[str]:
    return decide(Policy(**{**ALLOWS, **dict(changes)}), study, columns, today=TODAY, **more)


def test_what_is_said_is_allowed():
    assert against() == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("purposes", [], "the purpose 'Triage  research' is not among the policy's purposes (none is allowed yet)"),
        ("purposes", ["triage"], "the purpose 'Triage  research' is not among the policy's purposes (triage)"),
        ("components", ["*/fed_avg", "aggregator/*", "model/*", "transform/*"], "the component algorithm/fed_avg is"),
        ("components", ["algorithm/*", "aggregator/*", "model/logistic"], "the component transform/clip is"),
        ("columns", ["lab_*"], "column 'age' is not allowed"),
        ("columns_denied", ["lab_*"], "column 'lab_lactate' is not allowed"),
        ("smallest_cell", 11, "reports groups of 10 patients or more, but the policy's smallest cell is 11"),
        ("epsilon", 0.9, "it would spend an epsilon of 1; 0 of 0.9 is already promised"),
        ("expires", date(2031, 4, 30), "the policy expired on 2031-04-30"),
        ("expires", None, "has no expiry date"),
    ],
)
def test_each_rule_forbids_alone(key, value, reason):
    (told,) = against({key: value})
    assert reason in told


def test_a_policy_that_says_nothing_allows_nothing():
    told = "\n".join(decide(Policy(), STUDY, ["age"], today=TODAY))
    for part in (
        "no expiry date",
        "purpose",
        "algorithm/fed_avg",
        "aggregator/",
        "model/",
        "transform/",
        "column 'age'",
    ):
        assert part in told
    # An empty study cannot be smuggled past it either.
    assert any("a study without a purpose" in reason for reason in decide(Policy(), {}, today=TODAY))


def test_a_star_has_to_be_said():
    everything = {"purposes": ["*"], "components": ["*"], "columns": ["*"], "columns_denied": []}
    unknown = {**STUDY, "study": {}, "algorithm": {"name": "whatever"}}
    assert against(everything, study=unknown, columns=["anything"]) == []


def test_epsilon_adds_up_and_a_study_without_any_is_told():
    """2.0 + 1.0 is the whole 3.0; a hair more is too much."""
    assert against(spent=2.0) == []
    assert "2.01 of 3 is already promised" in against(spent=2.01)[0]
    plain = {key: value for key, value in STUDY.items() if key != "privacy"}
    assert "no such guarantee" in against(study=plain)[0]
    assert against({"epsilon": None}, study=plain) == []
    for said in (float("nan"), float("inf"), -1, "1", True, None):
        assert epsilon_of({"privacy": {"epsilon": said}}) is None


def test_a_study_that_does_not_mind_cells_is_refused():
    careless = {**STUDY, "data": {"source": "csv"}}
    assert "groups of 1 patients or more" in against(study=careless)[0]


def test_every_component_of_a_real_study_is_seen():
    study = parse_study(
        {
            "study": {"name": "a"},
            "data": {"source": "triage"},
            "partners": {"name": "ndoye"},
            "transforms": [{"name": "clip"}, {"name": "noise"}],
        },
        where="test",
    ).model_dump(mode="json")
    assert components_of(study) == [
        "algorithm/fed_avg",
        "aggregator/weighted_mean",
        "model/logistic",
        "transform/clip",
        "transform/noise",
        "choice/ndoye",
    ]


def test_recipes_are_judged_by_names_columns_and_cells():
    policy = Policy(**ALLOWS)
    assert recipe_reasons(policy, [recipe_of(moments(columns=("age",), smallest_cell=10))]) == []
    # The default of the query is a cell of one patient.
    assert "the query moments reports groups of 1" in recipe_reasons(policy, [recipe_of(moments(columns=("age",)))])[0]
    assert recipe_reasons(policy, [recipe_of(moments(columns=("age", "name"), smallest_cell=10))]) == [
        "column 'name' is not allowed"
    ]
    assert recipe_reasons(policy, [recipe_of(cards(target="age", smallest_cell=10))]) == [
        "the component query/cards is not allowed"
    ]
    inner = Recipe("algorithm", "fed_avg", (), (Recipe("model", "from_torch"), Recipe("task", "task")))
    assert recipe_reasons(policy, [inner]) == ["the component model/from_torch is not allowed"]


def test_the_first_policy_names_what_is_installed_and_nothing_dangerous():
    names = installed_components()
    assert {"algorithm/fed_avg", "model/logistic", "query/moments", "transform/clip"} <= set(names)
    assert not {"algorithm/centralized", "model/from_torch", "model/from_flax"} & set(names)
    assert {name.partition("/")[0] for name in names}.isdisjoint({"source", "dataset", "partition"})
    for kind in ("algorithm", "aggregator", "transform"):
        assert len([name for name in names if name.startswith(f"{kind}/")]) >= len(registry.components(kind)) - 1
    first = first_policy(today=TODAY)
    assert (first.purposes, first.columns, first.smallest_cell, first.expires) == ([], [], 10, date(2032, 4, 30))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(first_policy(["a"], today=TODAY)))
    return path


def test_the_file_is_read_back_as_it_was_meant(path):
    assert read_policy(path) == first_policy(["a"], today=TODAY)
    capped = Policy(**{**ALLOWS, "epsilon": 0.5})
    path.write_text(policy_text(capped))
    assert read_policy(path) == capped


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("purposes", "triage, sepsis", ["triage", "sepsis"]),
        ("components", "*", ["*"]),
        ("columns", ",".join("abcdefghij"), list("abcdefghij")),
        ("columns_denied", "", []),
        ("smallest_cell", "25", 25),
        ("epsilon", "2.5", 2.5),
        ("epsilon", "none", None),
        ("expires", "2040-01-31", date(2040, 1, 31)),
    ],
)
def test_one_key_is_changed_and_comments_stay(path, key, value, meant):
    before, comments = read_policy(path), [line for line in path.read_text().splitlines() if line.startswith("# ")]
    path.write_text(path.read_text() + "# my own remark\n")
    after = set_policy(path, key, value)
    assert getattr(after, key) == meant
    assert read_policy(path) == after
    assert after.model_dump(exclude={key}) == before.model_dump(exclude={key})
    kept = path.read_text().splitlines()
    assert [line for line in comments if line not in kept and "epsilon =" not in line] == []
    assert "# my own remark" in kept


def test_a_key_is_changed_twice_and_one_that_was_deleted_comes_back(path):
    for value in ("3.0", "none", "1.5"):
        set_policy(path, "epsilon", value)
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("expires")))
    set_policy(path, "expires", "2033-01-01")
    assert (read_policy(path).epsilon, read_policy(path).expires) == (1.5, date(2033, 1, 1))
    assert path.read_text().count("epsilon =") == 1


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("purpose", "x", "did you mean 'purposes'"),
        ("smallest_cell", "0", "greater than or equal to 1"),
        ("smallest_cell", "few", "a whole number"),
        ("epsilon", "-1", "greater than or equal to 0"),
        ("epsilon", "nan", "cannot be"),
        ("expires", "soon", "write it like 2031-12-31"),
    ],
)
def test_what_would_be_no_policy_is_refused_and_nothing_changes(path, key, value, what):
    before = path.read_bytes()
    with pytest.raises(Refusal) as refused:
        set_policy(path, key, value)
    assert what in str(refused.value)
    assert path.read_bytes() == before


def test_a_broken_file_is_told(path):
    path.write_text(path.read_text().replace("smallest_cell", "smalest_cell"))
    with pytest.raises(Refusal, match="did you mean 'smallest_cell'"):
        read_policy(path)
    path.unlink()
    with pytest.raises(Refusal, match=r"there is no policy\.toml|There is no policy\.toml"):
        read_policy(path)
    assert tomllib.loads(policy_text(Policy(expires=TODAY)))["smallest_cell"] == 10
