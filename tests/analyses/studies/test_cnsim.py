"""DataSHIELD's own test models: its deviances and degrees of freedom, and statsmodels' coefficients on pooled rows."""

import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from tests.support.analyses.patients import answer_of
from wardround.analyses.glm import glm
from wardround.data.folder import data_folder

FOLDER = data_folder() / "datashield_cnsim"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs WARDROUND_DATA")


def read(name):
    return pd.read_csv(FOLDER / name)


def by_study(frame, site="study"):
    return {f"study-{name}": rows.reset_index(drop=True) for name, rows in frame.groupby(site)}


def close(found, fit, names):
    for ours, theirs in names.items():
        assert found["coefficients"][ours] == pytest.approx(fit.params[theirs], rel=1e-8)
        assert found["errors"][ours] == pytest.approx(fit.bse[theirs], rel=1e-8)


def test_gaussian():
    frame = read("cnsim.csv")
    found = answer_of(glm(formula="LAB_TSC ~ LAB_TRIG", by_site=True), by_study(frame))
    numbers = found["numbers"]
    assert (numbers["rows"], numbers["dropped"], numbers["df"]) == (7800, 1579, 7798)
    assert numbers["deviance"] == pytest.approx(8936.32, abs=1e-2)
    assert numbers["deviance"] == pytest.approx(8936.31974, abs=1e-5)
    fit = smf.glm("LAB_TSC ~ LAB_TRIG", frame.dropna(subset=["LAB_TSC", "LAB_TRIG"])).fit()
    close(numbers, fit, {"(intercept)": "Intercept", "LAB_TRIG": "LAB_TRIG"})
    # Of ds.glmSLMA: dispersion and slope study by study.
    own = [numbers["sites"][f"study-{number}"] for number in (1, 2, 3)]
    assert [one["rows"] for one in own] == [1801, 2526, 3473]
    assert [one["dispersion"] for one in own] == pytest.approx([1.211496, 1.134140, 1.120921], abs=1e-6)
    assert [one["coefficients"]["LAB_TRIG"] for one in own] == pytest.approx([0.087635, 0.058091, 0.081461], abs=1e-6)


def test_binomial():
    frame = read("cnsim.csv")
    formula = "DIS_DIAB ~ GENDER * PM_BMI_CONTINUOUS + LAB_HDL"
    found = answer_of(glm(formula=formula, family="binomial"), by_study(frame))
    numbers = found["numbers"]
    assert (numbers["rows"], numbers["df"]) == (7485, 7480)
    assert numbers["deviance"] == pytest.approx(1036.03136, abs=1e-5)
    assert found["exchanges"] <= 9
    kept = frame.dropna(subset=["DIS_DIAB", "GENDER", "PM_BMI_CONTINUOUS", "LAB_HDL"])
    fit = smf.glm(formula, kept, family=sm.families.Binomial()).fit(tol=1e-14)
    names = {name: "Intercept" if name == "(intercept)" else name for name in numbers["coefficients"]}
    close(numbers, fit, names)


def test_poisson():
    frame = read("survival_expand_missing.csv.gz")
    found = answer_of(glm(formula="survtime ~ time.id + female", family="poisson"), by_study(frame))["numbers"]
    assert (found["rows"], found["dropped"], found["df"]) == (6299, 89, 6296)
    assert found["deviance"] == pytest.approx(3522.59809, abs=1e-5)
    values = [found["coefficients"][name] for name in ("(intercept)", "time.id", "female")]
    assert values == pytest.approx([0.209429, 0.017673, 0.079461], abs=1e-6)
