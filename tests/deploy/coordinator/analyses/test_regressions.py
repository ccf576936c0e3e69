"""A regression over real sites' homes is the pooled one, in the clear, under the secure sum, and among processes."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from tests.support.in_process import NAMES, Consortium
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.queue import enqueue
from wardround.deploy.demo import PURPOSE, free_port, make_coordinator, make_site, processes, watch, write_patients
from wardround.runs.read import require_result
from wardround.study.file import parse_study

FORMULA = "ebola ~ age + temperature"


def words(name="fever", formula=FORMULA, transforms=(), **settings):
    return parse_study(
        {
            "study": {"name": name, "purpose": PURPOSE},
            "data": {"source": "csv", "path": "x.csv", "preparation": {"smallest_cell": 10}},
            "analysis": {"name": "glm", "formula": formula, "family": "binomial", "event": "confirmed", **settings},
            **({"transforms": [{"name": one} for one in transforms]} if transforms else {}),
        },
        where="test",
    )


def pooled(tables):
    frame = pd.concat([pd.read_csv(path) for path in tables.values()])
    frame["ill"] = (frame["ebola"] == "confirmed").astype(float)
    return smf.glm("ill ~ age + temperature", frame, family=sm.families.Binomial()).fit(tol=1e-14)


def agrees(found, fit, rel=1e-8):
    pairs = {"(intercept)": "Intercept", "age": "age", "temperature": "temperature"}
    for ours, theirs in pairs.items():
        assert found["coefficients"][ours] == pytest.approx(fit.params[theirs], rel=rel)
        assert found["errors"][ours] == pytest.approx(fit.bse[theirs], rel=rel)


def test_the_fit_is_the_pooled_one_also_under_the_secure_sum(tmp_path):
    consortium = Consortium(tmp_path)
    plain = consortium.conduct(words())["numbers"]
    hidden = consortium.conduct(words(name="hidden", transforms=["secure_sum"]))["numbers"]
    fit = pooled(consortium.tables)
    agrees(plain, fit)
    agrees(hidden, fit)
    assert hidden["coefficients"] == pytest.approx(plain["coefficients"], rel=1e-12)


def test_a_column_without_a_fit_is_told_before_sums_are_asked_for(tmp_path):
    consortium = Consortium(tmp_path)
    with pytest.raises(Refusal, match="needs words, and the column holds numbers"):
        consortium.conduct(words(formula="age ~ category(temperature)"))
    assert {topic for _, topic, _ in consortium.asked} == {"offer", "query"}


@pytest.mark.slow
def test_twenty_sites_under_the_secure_sum_need_at_most_ten_exchanges(tmp_path):
    names = [f"site{number:02d}" for number in range(20)]
    consortium = Consortium(tmp_path, names)
    found = consortium.conduct(words(transforms=["secure_sum"]))
    assert found["exchanges"] <= 10
    assert len(found["sites"]) == 20
    if not found["numbers"]["silent"]:
        agrees(found["numbers"], pooled(consortium.tables))


@pytest.mark.slow
def test_among_processes_over_the_network(tmp_path):
    coordinator = make_coordinator(tmp_path / "coordinator", free_port())
    tables = write_patients(tmp_path, NAMES)
    homes = {name: make_site(tmp_path / name, name, coordinator, tables[name]) for name in NAMES}
    (tmp_path / "logs").mkdir()
    study = enqueue(coordinator, words(transforms=["secure_sum"]), "researcher")
    commands = {"coordinator": ["coordinator", "start", "--home", str(coordinator.path)]}
    commands |= {name: ["site", "start", "--home", str(home.path)] for name, home in homes.items()}
    with processes(commands, tmp_path / "logs") as running:
        watch(coordinator, homes, study, running, lambda kind, facts: None)
    found = require_result(coordinator.folder(study) / "run", "see the logs")
    assert found.deployed
    agrees(found.numbers, pooled(tables))
    assert np.isfinite(found.numbers["deviance"])
