import json

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from tests.support.findings import found, patients, sites_of
from wardround.analyses.combat import combat
from wardround.analyses.principal_components import principal_components
from wardround.analyses.propensity import propensity
from wardround.cli.app import main
from wardround.core.errors import Refusal
from wardround.predict.analysis_columns import analysis_columns, read_shift
from wardround.statistics.harmonisation.combat import harmonised, scale_from, site_shift, standardized

FRAME = patients()
SITES = sites_of(FRAME)
COLUMNS = ("a", "b", "c")


def test_harmonised_columns_are_those_of_the_site_and_later_patients_are_adjusted_alike():
    numbers = found(combat(columns=COLUMNS, covariates=("age", "sex")), SITES)["numbers"]
    own = SITES[0].table
    y, z = own[list(COLUMNS)].to_numpy(), np.column_stack([own.age, own.sex == "male"]).astype(float)
    common = scale_from(numbers)
    expected = harmonised(common, site_shift(standardized(common, y, z)), y, z)
    told, shift = analysis_columns("combat", numbers, own)
    np.testing.assert_allclose(told, expected)
    later, kept = analysis_columns("combat", numbers, own.iloc[:3], shift=shift)
    np.testing.assert_allclose(later, expected[:3])
    assert kept == shift


def test_a_gap_in_one_measurement_leaves_the_others_adjusted():
    numbers = found(combat(columns=COLUMNS), SITES)["numbers"]
    gap = SITES[0].table.assign(a=SITES[0].table.a.where(np.arange(60) > 0))
    told, shift = analysis_columns("combat", numbers, gap)
    assert told.isna().sum().tolist() == [1, 0, 0]
    assert shift["patients"] == 59


def test_scores_are_scikit_learns_of_the_pooled_rows():
    numbers = found(principal_components(columns=COLUMNS, covariates=("age",)), SITES)["numbers"]
    told, _ = analysis_columns("principal_components", numbers, FRAME)
    y = FRAME[list(COLUMNS)].to_numpy()
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    z = np.column_stack([np.ones(len(y)), FRAME.age])
    left = y - z @ np.linalg.lstsq(z, y, rcond=None)[0]
    np.testing.assert_allclose(told, PCA().fit_transform(left), atol=1e-9)


def test_propensities_are_those_of_the_pooled_regression():
    numbers = found(propensity(treatment="treated", outcome="outcome", covariates=("age", "sex")), SITES)["numbers"]
    told, _ = analysis_columns("propensity", numbers, FRAME)
    x = np.column_stack([FRAME.age, FRAME.sex == "male"]).astype(float)
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, FRAME.treated)
    np.testing.assert_allclose(told.propensity, oracle.predict_proba(x)[:, 1], atol=1e-4)


def test_what_cannot_be_applied_is_refused():
    numbers = found(combat(columns=COLUMNS, covariates=("sex",)), SITES)["numbers"]
    own = SITES[0].table
    for frame, words in (
        (own.drop(columns="b"), "The table lacks b"),
        (own.assign(b="high"), "B should hold numbers"),
        (own.assign(sex="unknown"), "not among its agreed categories"),
        (own.assign(a=np.nan), "The table has no complete row"),
    ):
        with pytest.raises(Refusal, match=words):
            analysis_columns("combat", numbers, frame)
    with pytest.raises(Refusal, match="for other columns"):
        analysis_columns("combat", numbers, own, shift={"columns": ["x"], "shift": [0], "variance": [1]})
    with pytest.raises(Refusal, match="has nothing to apply"):
        analysis_columns("cross_table", {}, own)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"columns": ["a"], "shift": [1], "variance": [-1]}'])
def test_a_file_that_holds_no_shift_is_refused(tmp_path, content):
    (tmp_path / "shift.json").write_text(content)
    with pytest.raises(Refusal, match="holds no shift of a site"):
        read_shift(tmp_path / "shift.json")


def test_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("patients.csv", index=False)
    study = '[study]\nname = "scale"\n[data]\nsource = "csv"\npath = "patients.csv"\nsite = "site"\n[analysis]\n'
    (tmp_path / "scale.toml").write_text(f'{study}name = "combat"\ncolumns = ["a", "b", "c"]\ncovariates = ["age"]\n')
    SITES[1].table.to_csv("own.csv", index=False)

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 0
        return capsys.readouterr().out

    run("run", "scale.toml", "--out", "run")
    for how in ("found from these rows", "as kept in own.json"):
        assert how in run("apply", "run", "own.csv", "--out", "own_new.csv", "--shift", "own.json")
    numbers = found(combat(columns=COLUMNS, covariates=("age",)), SITES)["numbers"]
    expected, shift = analysis_columns("combat", numbers, SITES[1].table)
    np.testing.assert_allclose(pd.read_csv("own_new.csv")[list(COLUMNS)], expected, rtol=1e-9)
    assert json.loads((tmp_path / "own.json").read_text())["patients"] == shift["patients"] == 45
