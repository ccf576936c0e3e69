"""`wardround adapt`: recalibrate a model on a site's own patients and choose from which risk on it flags one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson, say
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.predict.adaptation import Adaptation
    from wardround.predict.operating_point import FlaggedPatients, PatientShare
    from wardround.predict.predictor import Predictor

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")]
ModelSite = Annotated[str | None, typer.Option("--site", help="The site whose patients these are.")]
ModelMethod = Annotated[str | None, typer.Option("--method", help="Whose model, where a run compared methods.")]
Outcome = Annotated[
    str | None, typer.Option("--outcome", metavar="COLUMN", help="Where outcomes stand (default: as in training).")
]


def adapt(
    run: Run,
    patients: Annotated[
        str,
        typer.Argument(metavar="PATIENTS", help="Own patients with outcomes: CSV, Parquet or - for standard input."),
    ],
    site: ModelSite = None,
    method: ModelMethod = None,
    outcome: Outcome = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="RULE",
            help="The operating point: sensitivity=0.9, specificity=0.9, cost=FP:FN, net-benefit=0.2 or youden.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Adapt a model to a site's own patients: recalibrate where that helps, and choose the operating point."""
    from wardround.predict.adaptation import adapt_risks, adapt_values, write_adaptation
    from wardround.predict.operating_point import parse_rule
    from wardround.predict.outcomes import event_of, is_known, outcomes_of
    from wardround.predict.patients import read_patients
    from wardround.predict.predictor import read_predictor
    from wardround.runs.models import find_model

    rule = None if by is None else parse_rule(by)
    path = find_model(run, method, site, common=lambda _: True)
    predictor = read_predictor(path, site)
    task = predictor.facts.task
    if task.classes and predictor.positive is None:
        raise Refusal(
            f"the model tells {len(task.classes)} classes apart, and only a risk or a quantity can be adapted",
            where=str(path),
            remedy="use the model as it is",
        )
    if rule is not None and not task.classes:
        raise Refusal(
            f"{task.target} is a quantity, so nobody is flagged",
            where="--by",
            remedy="leave --by out, or train on classes",
        )
    frame = read_patients(patients, predictor.facts)
    outcomes = outcomes_of(frame, predictor, outcome, where=patients)
    known = is_known(outcomes)
    predicted = predictor.predict(frame[known], where=patients)
    if task.classes:
        ill = event_of(predictor, outcomes[known])
        found = adapt_risks(predictor.facts, site, predicted[:, predictor.positive], ill, rule, where=patients)
    else:
        found = adapt_values(predictor.facts, site, predicted, outcomes[known], where=patients)
    written = write_adaptation(path, found)
    say({**found.model_dump(mode="json"), "file": str(written)}, lines(predictor, found, written), as_json)


def lines(predictor: "Predictor", found: "Adaptation", written: Path) -> list[str]:
    """What was found, for a person."""
    told = [cohort(predictor, found), calibration(found)]
    if found.flagged is not None:
        told.append(operating_point(found, found.flagged))
    return [*told, f"Written to {written}; `wardround predict` uses it."]


def cohort(predictor: "Predictor", found: "Adaptation") -> str:
    task = predictor.facts.task
    outcome = (
        "" if found.with_outcome is None else f", {found.with_outcome:,} of them with {task.target} = {task.positive}"
    )
    return f"{found.patients:,} patients with a known outcome{outcome}."


def calibration(found: "Adaptation") -> str:
    """Which map was taken, and by how much it is better."""
    risk_map, measure = found.risk_map, "log loss" if found.threshold is not None else "squared error"
    before, after = found.losses["none"].mean, found.losses[risk_map.kind].mean
    what = "risks" if found.threshold is not None else "predictions"
    if risk_map.kind == "none":
        return (
            f"Calibration: the model's {what} are left alone, since no change to them was better by more than one "
            f"standard error (10-fold cross-validation, {measure} {before:.3f})."
        )
    shift = f"{risk_map.intercept:+.2f}" + (" in log-odds" if risk_map.log_odds else "")
    words = {
        "in_the_large": f"shifted by {shift}",
        "slope": f"stretched by {risk_map.slope:.2f} and shifted by {shift}",
        "isotonic": f"mapped by a rising curve with {len(risk_map.knots)} knots",
    }[risk_map.kind]
    better = f"{measure} {after:.3f} instead of {before:.3f} (10-fold cross-validation)"
    return f"Calibration: the model's {what} are {words}; {better}."


RULES = {
    "youden": "so that sensitivity plus specificity is highest",
    "sensitivity": "for a sensitivity of {target:g}",
    "specificity": "for a specificity of {target:g}",
    "net_benefit": "for the highest net benefit to those who would act from a risk of {target:g} on",
    "threshold": "as given",
}


def operating_point(found: "Adaptation", flagged: "FlaggedPatients") -> str:
    rule = RULES[found.rule].format(target=found.target)
    return (
        f"Operating point: patients are flagged from a risk of {found.threshold:.3f} on, {rule}. Of 100 patients like "
        f"yours, {hundred(flagged.flagged)} are flagged, {hundred(flagged.flagged_rightly)} of them rightly. "
        f"Sensitivity {share(flagged.sensitivity)}, specificity {share(flagged.specificity)}, positive predictive "
        f"value {share(flagged.ppv)}, negative {share(flagged.npv)} (cross-validated, 95 % intervals)."
    )


def hundred(of: "PatientShare") -> str:
    """Patients of a hundred, with the interval."""
    assert of.value is not None
    assert of.low is not None
    assert of.high is not None
    return f"{100 * of.value:.0f} ({100 * of.low:.0f} to {100 * of.high:.0f})"


def share(of: "PatientShare") -> str:
    if of.value is None:
        return f"undefined ({of.undefined})"
    return f"{of.value:.2f} ({of.low:.2f} to {of.high:.2f})"
