"""What a new user gets wrong in [analysis]: one paragraph that says how to correct it, and no page that runs code."""

import re

import numpy as np
import pytest

from benchmarks.noised_intervals import patients
from wardround.api.commands import analyse
from wardround.core.errors import Refusal
from wardround.study.file import parse_study

SCRIPT, IMAGE = "<script>alert(1)</script>", "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = patients(300, np.random.default_rng(1))
    draw = np.random.default_rng(2)
    rows = rows.assign(
        hospital=np.array(["A", "B", "C"])[np.arange(300) % 3],
        percent=[f"{one:.0f}%" for one in draw.uniform(0, 100, 300)],
        comma=[f"{one:.1f}".replace(".", ",") for one in rows["stay"]],
        empty=np.nan,
        three=draw.choice(["x", "y", "z"], 300),
        same=1.0,
        twin=2 * rows["age"] + 1,
        sure=(rows["died"] == "yes") * 1.0,
        negative=rows["days"] - 500,
        units=np.where(np.arange(300) % 3 == 0, rows["days"], rows["days"] / 30.44),
        when="2021-03-04",
        evil=np.where(rows["sex"] == "f", IMAGE, "ok"),
        **{SCRIPT: rows["age"], "esc\x1b[31m": rows["age"]},
    )
    rows.loc[::7, "stay"] = np.nan
    path = tmp_path_factory.mktemp("mistakes") / "patients.csv"
    rows.to_csv(path, index=False)
    return path


def run(table, out, analysis, **more):
    words = {"source": "csv", "path": str(table), "site": more.pop("site", "hospital")}
    study = parse_study({"study": {"name": "new"}, "data": words, "analysis": analysis, **more}, where="test")
    return analyse(study, out=out)


def glm(formula, **more):
    return {"name": "glm", "formula": formula, **more}


def cox(**more):
    return {"name": "cox", "time": "days", "event": "dead", "columns": ["age"], **more}


MISTAKES = {
    "misspelt column": (glm("stay ~ agee"), "column 'agee' is missing; did you mean 'age'"),
    "words as a number": (glm("died ~ age"), "holds the words no, yes.*family = \"binomial\""),
    "percent signs": (glm("percent ~ age"), "kinds = {percent = \"percent\"}"),
    "decimal commas": (glm("comma ~ age"), "kinds = {comma = \"decimal_comma\"}"),
    "three classes": (glm("three ~ age", family="binomial"), "has 3 classes .x, y, z., and a binomial"),
    "nothing in it": (glm("stay ~ empty"), "'empty' has no value at any site"),
    "unknown function": (glm("stay ~ sqrt(age)"), "function 'sqrt', and there are only"),
    "code": (glm("stay ~ __import__('os').system('x')"), "cannot be read from >>>"),
    "no tilde": (glm("stay age"), "cannot be read"),
    "collinear": (glm("stay ~ age + twin"), "collinear.*age, twin"),
    "constant": (glm("stay ~ same"), "same value for all"),
    "separation": (glm("died ~ sure", family="binomial", event="yes"), "separated perfectly.*ridge"),
    "no such event": (glm("died ~ age", family="binomial", event="dead"), "choose one of no, yes"),
    "misspelt setting": (glm("stay ~ age", familly="poisson"), "did you mean 'family'"),
    "unknown family": (glm("stay ~ age", family="normal"), "must be one of 'gaussian'"),
    "unknown analysis": ({"name": "regression"}, "no analysis called 'regression'"),
    "negative times": (cox(time="negative"), "negative times"),
    "two units": (cox(time="units"), "times that of another: days and months"),
    "a date as time": (cox(time="when"), "holds dates or times"),
    "event in words": (cox(event="three"), "event_is = "),
    "swapped": ({"name": "kaplan_meier", "time": "dead", "event": "days"}, "does not hold 0 and 1"),
    "groups of numbers": (
        {"name": "kaplan_meier", "time": "days", "event": "dead", "group": "age"}, "where groups are needed",
    ),
    "no such cause": (
        {"name": "cumulative_incidence", "time": "days", "event": "three", "causes": ["x", "w"]}, "told of three = w",
    ),
    "a text for a list": ({"name": "boosted_trees", "target": "died", "columns": "age"}, "must be a list of texts"),
    "odd condition": ({"name": "cross_table", "rows": "sex", "columns": "died", "only": "age >> 3"}, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("analysis", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_paragraph(table, tmp_path, analysis, words):
    with pytest.raises(Refusal, match=f"(?is){words}") as refusal:
        run(table, tmp_path / "run", analysis)
    assert "\n" not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)


def test_two_sites_under_a_secure_sum_are_refused(table, tmp_path):
    with pytest.raises(Refusal, match="with fewer than 3 the answers of single sites would be revealed"):
        run(table, tmp_path / "run", glm("stay ~ age"), site="sex", transforms=[{"name": "secure_sum"}])


@pytest.mark.parametrize(
    "analysis",
    [
        glm(f"stay ~ `{SCRIPT}` + evil"),
        {"name": "cross_table", "rows": "evil", "columns": "died"},
        {"name": "correlations", "columns": [SCRIPT, "esc\x1b[31m", "days"]},
    ],
    ids=["regression", "table", "correlations"],
)
def test_names_and_words_of_a_table_do_not_run_in_the_page(table, tmp_path, analysis):
    run(table, tmp_path / "run", analysis)
    pages = list((tmp_path / "run").glob("**/*.html"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert SCRIPT not in text
        assert not re.search("<img[^>]*onerror", text)
        assert "\x1b" not in text


def test_rows_with_gaps_are_counted_site_by_site(table, tmp_path):
    # Every seventh of 300 rows lacks the stay: 43 of them, 14 or 15 at each of three sites.
    found = run(table, tmp_path / "run", {"name": "group_means", "column": "stay", "group": "sex"})
    said = " ".join(found.result.notes)
    assert re.search(r"Rows that are looked at: A 8[56] of 100; B 8[56] of 100; C 8[56] of 100\.", said)
    assert "nothing is filled in" in said
