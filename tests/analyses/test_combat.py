import contextlib
import io

import numpy as np
import pytest
from neuroCombat import neuroCombat

from tests.support.findings import agreed_on, found, patients, sites_of
from wardround.analyses.combat import combat
from wardround.core.errors import Refusal
from wardround.statistics.harmonisation.combat import harmonised, scale_from, site_shift, standardized

FRAME = patients()
LARGE = FRAME[FRAME.site != "west"].reset_index(drop=True)
"""Without the site of one patient, for which the oracle divides 0 by 0."""
COLUMNS = ("a", "b", "c")


def covariates_of(frame):
    return np.column_stack([frame.age, frame.sex == "male"]).astype(float)


def adjusted(frame, covariates, *, bayes=True):
    """Every site's own rows adjusted there, from what is common."""
    told = found(combat(columns=COLUMNS, covariates=covariates, bayes=bayes), sites_of(frame))["numbers"]
    common = scale_from(told)
    parts = []
    for _, own in frame.groupby("site", sort=False):
        y = own[list(COLUMNS)].to_numpy()
        z = covariates_of(own) if covariates else np.empty((len(y), 0))
        parts.append(harmonised(common, site_shift(standardized(common, y, z), bayes=bayes), y, z))
    return np.concatenate(parts)


@pytest.mark.parametrize("covariates", [(), ("age", "sex")])
@pytest.mark.parametrize("bayes", [True, False])
def test_it_is_neuro_combats_of_the_pooled_rows(covariates, bayes):
    with contextlib.redirect_stdout(io.StringIO()):
        oracle = neuroCombat(
            dat=LARGE[list(COLUMNS)].to_numpy().T,
            covars=LARGE[["site", "age", "sex"]],
            batch_col="site",
            categorical_cols=["sex"] if covariates else None,
            continuous_cols=["age"] if covariates else None,
            eb=bayes,
        )["data"].T
    np.testing.assert_allclose(adjusted(LARGE, covariates, bayes=bayes), oracle, atol=1e-9)


def test_a_site_of_one_patient_is_shifted_and_not_spread():
    # One patient at shifts (1, 3): their mean is 2 and variance 2, error variance 1, so the shift of each is
    # (2 * 1 + 2) / (2 + 1) = 4/3 and (2 * 3 + 2) / 3 = 8/3; the variance stays 1.
    own = site_shift(np.array([[1.0, 3.0]]))
    np.testing.assert_allclose(own.shift, [4 / 3, 8 / 3])
    np.testing.assert_allclose(own.variance, [1, 1])
    assert np.isfinite(adjusted(FRAME, ("age", "sex"))).all()


def test_differences_between_sites_go_and_those_of_age_stay():
    report = found(combat(columns=COLUMNS, covariates=("age", "sex")), sites_of(LARGE))
    told = report["numbers"]
    assert max(told["between_after"]) < 0.02 < min(told["between_before"][:1])
    after = adjusted(LARGE, ("age", "sex"))
    slope = np.linalg.lstsq(np.column_stack([np.ones(len(LARGE)), covariates_of(LARGE)]), after[:, 0], rcond=None)[0][1]
    assert abs(slope - told["effects"][0][0]) < 0.05  # 0.5 a year was put in
    assert "are preserved" in report["words"][0]


def test_what_leaves_does_not_depend_on_a_site_s_own_shift():
    # The first exchange holds products around the site's own means; only the totals move with a shift of the site.
    analysis, sites = combat(columns=COLUMNS), sites_of(LARGE)
    agreed = agreed_on(sites)
    asked = analysis.message(analysis.begin(agreed))
    moved = sites_of(LARGE.assign(a=LARGE.a + 1000.0))
    before, after = (analysis.ask(agreed, asked, one[0]).arrays for one in (sites, moved))
    np.testing.assert_allclose(before["yy"], after["yy"], rtol=1e-9)
    assert before["total_y"][0] != after["total_y"][0]


def test_what_cannot_be_computed_is_refused():
    by_site = sites_of(FRAME.assign(k=1.0, city=FRAME.site.map({"north": 1.0, "south": 2.0, "west": 3.0, "east": 4.0})))
    with pytest.raises(Refusal, match="The columns k do not vary within any site"):
        found(combat(columns=("a", "k")), by_site)
    with pytest.raises(Refusal, match="The covariates city follow from the site"):
        found(combat(columns=("a", "b"), covariates=("city",)), by_site)
    with pytest.raises(Refusal, match="There is one site"):
        found(combat(columns=("a", "b")), by_site[:1])
    with pytest.raises(Refusal, match="1 of 4 sites may tell"):
        found(combat(columns=("a", "b"), smallest_cell=70), by_site)
