"""The triage generator: what its docstring promises, and that choosing the right partners pays."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from wardround.core.errors import Refusal
from wardround.data.datasets.triage import COEFFICIENTS, _best_scores, triage

WORDS = {"yes": 1.0, "no": 0.0, "female": 1.0, "male": 0.0, "positive": 1.0, "negative": 0.0}


def numbers(rows: pd.DataFrame) -> tuple[pd.DataFrame, "pd.Series[int]"]:
    """Features in the units of the docstring, and the outcome."""
    x = rows.drop(columns="ebola")
    text = x.select_dtypes(exclude="number").columns
    x = x.assign(**{name: x[name].map(WORDS) for name in text})
    x = x.assign(
        age=(x["age"] - 30) / 15, days_since_symptoms=x["days_since_symptoms"] - 4, temperature=x["temperature"] - 38
    )
    return x.fillna(x.median()), (rows["ebola"] == "confirmed").astype(int)


def test_the_same_seed_gives_the_same_patients() -> None:
    once, again, other = triage(seed=3), triage(seed=3), triage(seed=4)
    assert all(once.sites[name].equals(again.sites[name]) for name in once.sites)
    assert not once.sites["Freetown"].equals(other.sites["Freetown"])


def test_hospitals_are_named_and_of_different_sizes() -> None:
    table = triage(hospitals=14, patients=100)
    assert list(table.sites)[:4] == ["Freetown", "Kenema", "Bo", "Port Loko"]
    assert list(table.sites)[-1] == "Hospital 14"
    sizes = [len(rows) for rows in table.sites.values()]
    assert np.mean(sizes) == pytest.approx(100, abs=1)
    assert max(sizes) > 1.5 * min(sizes)


def test_the_truth_says_who_resembles_whom() -> None:
    table = triage()
    assert table.truth["groups"] == {"urban": ["Freetown", "Bo"], "rural with malaria": ["Kenema", "Port Loko"]}
    own = table.truth["coefficients"]
    assert own["Freetown"] == own["Bo"] != own["Kenema"] == own["Port Loko"]
    # fever: common 0.5, urban 1.3, rural -0.5; degree 0.7 goes 7/10 of the way: 1.06 and -0.2.
    assert own["Freetown"]["fever"] == pytest.approx(1.06)
    assert own["Kenema"]["fever"] == pytest.approx(-0.2)
    assert set(table.truth["why"]) == set(table.truth["groups"])


def test_degree_zero_makes_all_hospitals_alike() -> None:
    table = triage(hospitals=4, patients=4000, degree=0.0, clusters=4)
    assert list(table.truth["groups"].values()) == [list(table.sites)]
    assert all(own == table.truth["coefficients"]["Bo"] for own in table.truth["coefficients"].values())
    # Four hospitals, some 4,000 patients each: standard error of a share at most 0.5 / sqrt(2000) = 0.011.
    for column in ("malaria_test", "contact", "ebola"):
        shares = [rows[column].value_counts(normalize=True).sort_index().iloc[0] for rows in table.sites.values()]
        assert max(shares) - min(shares) < 4 * 0.011 * np.sqrt(2)


@pytest.mark.slow
def test_logistic_regression_on_many_patients_finds_the_coefficients() -> None:
    table = triage(hospitals=2, patients=60_000, degree=1.0)
    for name, rows in table.sites.items():
        complete = rows.dropna()
        x, y = numbers(complete)
        fit = LogisticRegression(C=1e6, solver="newton-cholesky").fit(x, y)
        for column, value in zip(x.columns, fit.coef_[0], strict=True):
            # Standard errors are below 0.05 for flags at these sizes, 0.03 for numbers.
            assert value == pytest.approx(table.truth["coefficients"][name][column], abs=0.17), (name, column)
        assert fit.intercept_[0] == pytest.approx(table.truth["coefficients"][name]["intercept"], abs=0.2)
        assert roc_auc_score(y, fit.predict_proba(x)[:, 1]) == pytest.approx(table.truth["best_auc"][name], abs=0.01)


def test_the_best_area_and_accuracy_of_two_kinds_of_patients() -> None:
    # Half have p = 0.8, half p = 0.2. Accuracy 0.8. Pairs (ill, well), by weight: ill are 0.8 high / 0.2 low, well 0.2
    # high / 0.8 low: right 0.64, tied 0.16 + 0.16 (half), wrong 0.04: 0.64 + 0.16 = 0.8.
    best = _best_scores(np.repeat([0.8, 0.2], 5000))
    assert best["accuracy"] == pytest.approx(0.8)
    assert best["auc"] == pytest.approx(0.8, abs=1e-3)


def test_gaps_are_where_they_should_be() -> None:
    table = triage(hospitals=2, patients=20_000, degree=1.0)
    for name, share in (("Freetown", 0.04), ("Kenema", 0.08)):
        gaps = table.sites[name].isna()
        assert gaps["fever"].equals(gaps["temperature"])
        assert set(gaps.columns[gaps.any()]) == {"temperature", "fever", "days_since_symptoms", "dysphagia", "myalgia"}
        assert gaps["myalgia"].mean() == pytest.approx(share, abs=0.01)
    rows = table.sites["Freetown"].dropna()
    assert ((rows["temperature"] > 38.0) == (rows["fever"] == "yes")).all()


def test_partners_of_the_same_group_beat_everybody_and_everybody_beats_nobody() -> None:
    """Mean ROC area over the four hospitals and ten splits: alone < all together < the true group together."""
    table = triage()
    data = {name: numbers(rows) for name, rows in table.sites.items()}
    partners = {name: group for group in table.truth["groups"].values() for name in group}
    areas = []
    for repeat in range(10):
        rng = np.random.default_rng(repeat)
        order = {name: rng.permutation(len(y)) for name, (_, y) in data.items()}
        train = {name: order[name][: int(0.6 * len(y))] for name, (_, y) in data.items()}
        test = {name: order[name][int(0.8 * len(y)) :] for name, (_, y) in data.items()}

        def learn(names: list[str], train: dict[str, np.ndarray] = train) -> LogisticRegression:
            x = pd.concat([data[name][0].iloc[train[name]] for name in names])
            y = pd.concat([data[name][1].iloc[train[name]] for name in names])
            return LogisticRegression(solver="newton-cholesky").fit(x, y)

        everybody = learn(list(data))
        for name, (x, y) in data.items():
            models = (learn([name]), everybody, learn(partners[name]))
            areas.append([roc_auc_score(y.iloc[test[name]], m.predict_proba(x.iloc[test[name]])[:, 1]) for m in models])
    alone, together, group = np.mean(areas, axis=0)
    assert alone + 0.005 < together, (alone, together, group)
    assert together + 0.01 < group, (alone, together, group)
    assert group < max(table.truth["best_auc"].values())


def test_more_groups_than_hospitals_is_refused() -> None:
    with pytest.raises(Refusal, match="3 groups of hospitals need at least 3 hospitals, not 2"):
        triage(hospitals=2, clusters=3)


@pytest.mark.parametrize("clusters", [1, 2, 3, 4])
def test_both_outcomes_are_frequent_in_every_group(clusters: int) -> None:
    table = triage(hospitals=4, patients=2000, clusters=clusters, degree=1.0)
    for name, rows in table.sites.items():
        assert 0.2 < (rows["ebola"] == "confirmed").mean() < 0.7, name
    assert len(table.truth["groups"]) == clusters


def test_every_coefficient_belongs_to_a_column() -> None:
    assert set(COEFFICIENTS) - {"intercept"} == set(triage().sites["Bo"].columns) - {"ebola"}
