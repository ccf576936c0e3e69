"""Privacy, uneven data and fairness, from a study file to the verdicts: these follow from the figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support import tiny_study as tiny
from wardround.report.fairness.poster import claims_of, poster_summary, read_grid
from wardround.runs.read import require_result

LEVELS = {"none": None, "loose": 3.0, "strict": 0.3}
ROWS, SHARES = 240, [0.7, 0.0, 0.3]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three privacy levels, two repeats each, on four tiny hospitals with sex told by the pulse."""
    folder = tmp_path_factory.mktemp("poster")
    frame = tiny.patients(rows=ROWS // 4, seed=3)
    frame = frame.assign(sex=np.where(frame["pulse"] > 0, "f", "m"))
    path = tiny.write_study(
        folder,
        frame,
        study={"rounds": 3, "metric": "f1"},
        data={"groups": ["sex"], "drop": ["sex"], "shares": SHARES},
        evaluation={"every": 3, "resamples": 0},
        compare={"methods": ["global"], "repeats": 2},
    )
    blocks = []
    for name, epsilon in LEVELS.items():
        case = {"name": name, "data": {"partition": {"name": "iid", "sites": 4}}}
        if epsilon is not None:
            case["privacy"] = {"level": "sample", "epsilon": epsilon, "delta": 1e-3, "seeded": True}
        blocks.append("\n".join(["[[compare.cases]]", *(f"{key} = {tiny.toml(value)}" for key, value in case.items())]))
    path.write_text("\n\n".join([path.read_text(encoding="utf-8"), *blocks]) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        tiny.main(["compare", str(path), "--out", str(folder / "out"), "--json"])
    assert not left.value.code
    return folder / "out"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def figures(done: Path, name: str) -> np.ndarray[Any, Any]:
    """One measure from the results of the cases themselves: a row a level, a column a repeat."""
    return np.array(
        [
            [
                repeat[name]
                for repeat in read(done / "cases" / case / "result.json")["methods"][0]["fairness"]["repeats"]
            ]
            for case in LEVELS
        ]
    )


@pytest.mark.slow
def test_the_verdict_on_performance_is_that_of_the_figures_by_hand(done: Path) -> None:
    grid = read_grid(done, require_result(done))
    claim = next(one for one in claims_of(grid) if one.words.startswith("Performance drops"))
    assert [(test.what, test.partition) for test in claim.tests] == [("f1", "iid"), ("roc_auc", "iid")]
    raw = []
    for test in claim.tests:
        values = figures(done, test.what)
        # The least-squares slope over three equal steps is half of last less first; a fall counts as above 0.
        falls = (values[0] - values[2]) / 2
        # Nadeau and Bengio: the variance of the mean is (1/2 + 0.3/0.7) times that of a repeat; t has 1 degree.
        sites = read(done / "cases" / "none" / "result.json")["sites"]
        share = sum(one["test"] for one in sites) / ROWS
        error = falls.std(ddof=1) * np.sqrt(1 / 2 + share / (1 - share))
        assert test.found.value == pytest.approx(falls.mean())
        assert (test.before, test.after) == pytest.approx((values[0].mean(), values[2].mean()))
        raw.append(2 * stats.t.sf(abs(falls.mean()) / error, 1))
    # Each test by its own interval: that half of them must speak for a claim is the correction for their number.
    expected = raw
    assert [test.found.p_value for test in claim.tests] == pytest.approx(expected, rel=1e-6)
    standings = [
        ("for" if test.found.value > 0 else "against") if p < 0.05 else "open"
        for test, p in zip(claim.tests, expected, strict=True)
        if test.found.value is not None
    ]
    assert [test.standing for test in claim.tests] == standings
    for_it, against = standings.count("for"), standings.count("against")
    verdict = "borne out" if for_it and not against else "contradicted" if against and not for_it else "cannot be told"
    assert claim.verdict.startswith(verdict)


@pytest.mark.slow
def test_gaps_between_groups_are_those_of_the_recalls(done: Path) -> None:
    women, men = (figures(done, f"sex/recall/{sex}").astype(float) for sex in "fm")
    gap = figures(done, "sex/equal_opportunity_gap").astype(float)
    known = np.isfinite(women) & np.isfinite(men)  # a group of few patients has no recall
    assert known.any()
    assert np.isnan(gap[~known]).all()
    assert gap[known] == pytest.approx(np.abs(women - men)[known])
    whole = known.all(axis=0)  # a level without a value costs the repeat
    assert whole.any()
    women, men = women[:, whole], men[:, whole]
    claim = next(one for one in claims_of(read_grid(done, require_result(done))) if "underprivileged" in one.words)
    largest = max("fm", key=lambda sex: read_grid(done, require_result(done)).cells[0].sizes["sex"][sex])
    own, other = (men, women) if largest == "m" else (women, men)
    # How much more the smaller group loses from the first to the last level, over both repeats.
    assert [test.found.value for test in claim.tests] == pytest.approx(
        [((own[2] - own[0]) - (other[2] - other[0])).mean()]
    )


@pytest.mark.slow
def test_epsilon_is_kept_at_every_level_and_the_page_tells_what_was_found(done: Path) -> None:
    for case, epsilon in LEVELS.items():
        spent = read(done / "cases" / case / "result.json")["methods"][0]["meters"]["privacy"]["sample_epsilon"]
        if epsilon is None:
            assert spent is None
        else:
            assert 0.98 * epsilon < spent <= epsilon
    text = (done / "report.html").read_text(encoding="utf-8")
    for claim in claims_of(read_grid(done, require_result(done))):
        assert claim.words in text
        assert f"<strong>{claim.verdict.capitalize()}</strong>" in text
    assert poster_summary(done, require_result(done)) in text
    # One way to train: no table of ways to train, and nothing at equal cost.
    assert 'id="budgets"' not in text
    assert 'id="table"' not in text
