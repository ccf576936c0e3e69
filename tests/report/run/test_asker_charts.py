"""Sites that ask in turn are told apart: their rounds, their weights, and the accuracy on their own test patients."""

from typing import Any

from wardround.report.run.asker_charts import asker_courses
from wardround.report.run.diagnostics_charts import by_hospital
from wardround.report.run.progress_charts import progress
from wardround.report.run.tables import MOST_COLUMNS, scores
from wardround.runs.courses import read_courses
from wardround.runs.fields import TOLERANT
from wardround.runs.result import MethodResult
from wardround.runs.run import Run
from wardround.runs.sites import SiteSummary

SITES = ("bo", "kenema")


def record(user: str, number: int, weight: float) -> dict[str, Any]:
    other = next(site for site in SITES if site != user)
    measures = {
        "validation_loss": {"weighted": 0.5, "sites": {user: 0.4}},
        "test_accuracy": {"weighted": 0.7, "sites": {user: 0.6 + number / 10}},
        "told": {"alpha": {user: 1.0, other: weight}},
    }
    return {"method": "weight_erosion", "repeat": 0, "round": number, "user": user, "measures": measures}


def method(name: str) -> MethodResult:
    figures = {"roc_auc": {"value": 0.8}}
    scores = {"sites": dict.fromkeys(SITES, figures), "weighted": figures, "pooled": figures}
    return MethodResult.model_validate({"name": name, "label": name, "scores": scores}, context=TOLERANT)


def run_of(*names: str) -> Run:
    records = [record(user, number, 1 - number / (4 if user == "bo" else 9)) for user in SITES for number in (1, 2)]
    sites = [
        SiteSummary(name=name, train=10, validation=0, test=10, prevalence=None, test_prevalence=0.3) for name in SITES
    ]
    return Run(
        "turns",
        metric="roc_auc",
        hospitals=tuple(sites),
        methods=tuple(method(name) for name in names),
        courses=tuple(read_courses(records)),
    )


def test_rounds_are_told_by_who_asked() -> None:
    run = run_of("weight_erosion")
    assert [(course.user, course.rounds) for course in run.courses] == [("bo", (1, 2)), ("kenema", (1, 2))]
    weights = [course.diagnostics.sites["alpha"] for course in run.courses]
    assert weights[0]["kenema"] == (0.75, 0.5)
    assert weights[1]["bo"] == (1 - 1 / 9, 1 - 2 / 9)
    assert [chart.title for chart in progress(run)] == ["weight_erosion, for bo", "weight_erosion, for kenema"]
    page = str(by_hospital(run))
    assert "weight_erosion, for bo" in page
    assert "weight_erosion, for kenema" in page


def test_an_asking_site_sees_its_accuracy_the_weights_and_the_same_answer_for_all() -> None:
    first, second = asker_courses(run_of("weight_erosion"))
    assert first.title.startswith("bo asks")
    lines = {trace["name"]: trace for trace in first.traces}
    assert lines["weight_erosion"]["y"] == [0.7, 0.8]
    assert lines["weight of kenema"]["y"] == [0.75, 0.5]
    # 3 of 10 test patients have the outcome.
    assert (lines["always yes"]["y"], lines["never yes"]["y"]) == ([0.3, 0.3], [0.7, 0.7])
    assert second.title.startswith("kenema asks")


def test_many_methods_stand_in_rows() -> None:
    few, many = (str(scores(run_of(*(f"m{n}" for n in range(count))))) for count in (2, MOST_COLUMNS + 1))
    assert ">Hospital<" in few
    assert ">Model<" not in few
    assert ">Model<" in many
    assert "All patients as one hospital" in many
