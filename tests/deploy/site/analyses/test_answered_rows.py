"""Tables and tests over sites with real homes: what simulation finds, also in a secure sum, and no near repetition."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.support.findings import agreed_on, found
from tests.support.in_process import NAMES, Consortium
from wardround.core.contracts import Site
from wardround.core.errors import Refusal
from wardround.deploy.demo import PURPOSE
from wardround.deploy.site.analyses.answered_rows import FILE, mask_of, remember_rows
from wardround.deploy.site.policy_file import set_policy
from wardround.engine import registry
from wardround.study.file import parse_study

CELL = 10


@pytest.fixture
def consortium(tmp_path):
    made = Consortium(tmp_path)
    for home in made.homes.values():
        set_policy(home.policy_path, "components", "*")
    return made


def study(name, settings, *, secure=False):
    words = {
        "study": {"name": f"{name}_{len(settings)}_{secure}", "purpose": PURPOSE},
        "data": {"source": "csv", "path": "x.csv", "site": "hospital", "preparation": {"smallest_cell": CELL}},
        "analysis": {"name": name, **settings},
        **({"transforms": [{"name": "secure_sum"}]} if secure else {}),
    }
    return parse_study(words, where="test")


def sites_of(consortium):
    return [Site(name, pd.read_csv(path)) for name, path in consortium.tables.items()]


ASKED = [
    ("group_means", {"column": "age", "group": "sex"}),
    ("cross_table", {"rows": "sex", "columns": "ebola"}),
    ("principal_components", {"columns": ["age", "temperature"], "covariates": ["sex"]}),
    ("combat", {"columns": ["age", "temperature"]}),
    ("distribution", {"columns": ["age"]}),
]


@pytest.mark.parametrize(("name", "settings"), ASKED)
def test_real_sites_find_what_simulation_finds(consortium, name, settings):
    told = consortium.conduct(study(name, settings))
    same = found(registry.find("analysis", name).build(**settings, smallest_cell=CELL), sites_of(consortium))
    assert told["words"] == same["words"]
    np.testing.assert_equal(told["numbers"], json.loads(json.dumps(same["numbers"])))


def test_a_secure_sum_finds_the_same(consortium):
    name, settings = ASKED[0]
    told = consortium.conduct(study(name, settings, secure=True))
    same = found(registry.find("analysis", name).build(**settings, smallest_cell=CELL), sites_of(consortium))
    np.testing.assert_allclose(told["numbers"]["mean"], same["numbers"]["mean"], rtol=1e-9)
    np.testing.assert_allclose(told["numbers"]["sd"], same["numbers"]["sd"], rtol=1e-9)
    assert told["words"] == same["words"]


def test_estimates_by_site_are_refused_under_a_secure_sum(consortium):
    with pytest.raises(Refusal, match="needs the answer of each site by itself"):
        consortium.conduct(study("meta_analysis", {"measure": "mean", "outcome": "age"}, secure=True))


def test_a_site_remembers_whom_it_answered_about(consortium):
    consortium.conduct(study("group_means", {"column": "age", "group": "sex"}))
    for name in NAMES:
        table = pd.read_csv(consortium.tables[name])
        entries = json.loads((consortium.homes[name].path / FILE).read_bytes())
        assert len(entries) == 1  # two exchanges about the same patients
        np.testing.assert_array_equal(mask_of(entries[0]), (table.age.notna() & table.sex.notna()).to_numpy())


def test_almost_the_same_patients_are_refused_in_a_later_study(consortium):
    settings = {"column": "age", "group": "sex"}
    consortium.conduct(study("group_means", settings))
    # One more is known at one site: the difference of two answers would be that patient's.
    name = NAMES[0]
    table = pd.read_csv(consortium.tables[name])
    table.loc[len(table)] = table.iloc[0]
    table.to_csv(consortium.tables[name], index=False)
    with pytest.raises(Refusal, match="covers the patients of an earlier one but for fewer than 10"):
        consortium.conduct(study("group_means", {**settings, "most_levels": 19}))


def test_questions_without_a_common_number_do_not_meet(tmp_path):
    table = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50.0), "c": np.arange(50.0), "g": ["x", "y"] * 25})
    table.loc[0, "c"] = np.nan
    site = Site("A", table)
    agreed = agreed_on([site])

    def ask(*columns):
        analysis = registry.find("analysis", "distribution").build(columns=columns)
        remember_rows(tmp_path / FILE, analysis, agreed, site, CELL)

    ask("a")
    ask("c")
    ask("a")
    with pytest.raises(Refusal, match="covers the patients of an earlier one"):
        ask("b", "c")
    for column in ("a", "b"):  # a first table: the same group in every line
        analysis = registry.find("analysis", "group_means").build(column=column, group="g")
        remember_rows(tmp_path / "first", analysis, agreed, site, CELL)
    analysis = registry.find("analysis", "group_means").build(column="c", group="g")
    remember_rows(tmp_path / "first", analysis, agreed, site, CELL)
