"""`wardround adapt`: recalibrate a model on a site's own patients and choose from which risk on it flags one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson, say

if TYPE_CHECKING:
    from wardround.predict.adaptation import Adaptation
    from wardround.predict.operating_point import FlaggedPatients, PatientShare

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
    from wardround.predict.patients import read_patients
    from wardround.predict.site_adaptation import adapt_model

    written, found = adapt_model(
        run,
        lambda facts: read_patients(patients, facts),
        site=site,
        method=method,
        outcome=outcome,
        by=by,
        where=patients,
    )
    say({**found.model_dump(mode="json"), "file": str(written)}, lines(found, written), as_json)


def lines(found: "Adaptation", written: Path) -> list[str]:
    """What was found, for a person."""
    told = [cohort(found), calibration(found)]
    if found.flagged is not None:
        told.append(operating_point(found, found.flagged))
    return [*told, f"Written to {written}; `wardround predict` uses it."]


def cohort(found: "Adaptation") -> str:
    ill = "" if found.with_outcome is None else f", {found.with_outcome:,} of them with {found.outcome}"
    return f"{found.patients:,} patients with a known outcome{ill}."


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
