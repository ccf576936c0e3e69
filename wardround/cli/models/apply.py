"""`wardround apply`: what a finished analysis gives a site's own patients."""

import json
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.output import AsJson


def apply(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a combat, principal_components or propensity run.")
    ],
    patients: Annotated[Path, typer.Argument(metavar="PATIENTS", help="A CSV or Parquet file of your own patients.")],
    out: Annotated[Path, typer.Option("--out", help="Write the table with its new columns, .csv or .parquet.")],
    shift: Annotated[
        Path | None,
        typer.Option("--shift", help="Your own shift in ComBat: found and written the first time, used from then on."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Apply a finished analysis to your own patients: harmonised columns, component scores, propensities."""
    from wardround.api.finished_analysis import FinishedAnalysis
    from wardround.core.errors import Refusal
    from wardround.core.files import write_whole
    from wardround.predict.analysis_columns import analysis_columns, read_patients, read_shift, refuse_unfit

    result = FinishedAnalysis(run).result
    refuse_unfit(result.analysis, str(run))
    if out.suffix not in (".csv", ".parquet"):
        raise Refusal("the table is written as .csv or .parquet", where=f"--out {out}", remedy="name such a file")
    if shift is not None and result.analysis != "combat":
        raise Refusal(f"{result.analysis} has no shift of a site", where="--shift", remedy="leave it out")
    table = read_patients(patients)
    kept = read_shift(shift) if shift is not None and shift.is_file() else None
    found, own = analysis_columns(result.analysis, result.numbers, table, shift=kept, where=str(patients))
    names = [str(name) for name in found.columns]
    whole = table.assign(**{name: found[name].to_numpy() for name in names})
    if out.suffix == ".parquet":
        whole.to_parquet(out)
    else:
        write_whole(out, whole.to_csv(index=False).encode())
    if shift is not None and kept is None:
        write_whole(shift, json.dumps(own, indent=2).encode())
    rows = int(found.notna().all(axis=1).sum())
    if as_json:
        told = {"written": str(out), "columns": names, "rows": len(table), "applied": rows}
        print(json.dumps({**told, "shift": str(shift) if shift else None}))
        return
    typer.echo(f"{', '.join(names)}, complete for {rows} of {len(table)} patients, written to {out}.")
    if result.analysis == "combat":
        how = f"as kept in {shift}" if kept else f"found from these rows{f', kept in {shift}' if shift else ''}"
        typer.echo(f"Your shift and spread: {how}. They stay with you.")
