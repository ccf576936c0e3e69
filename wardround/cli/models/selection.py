"""`predict` with the folder of `explain`: follow the site's rules, and say for each patient whose model decided."""

import json
import sys
from pathlib import Path

import pandas as pd
import typer

from wardround.cli.models.predict import Wanted, parquet_content, print_table, refuse_folder, write_file
from wardround.core.errors import Refusal
from wardround.predict.patients import open_patients
from wardround.predict.selection import DECIDED, OWN_RULE, RULE, SelectionPredictor, predict_selection
from wardround.runs.explain.selection_file import find_selection, read_selection


def predict_by_rules(run: Path, site: str | None, wanted: Wanted) -> None:
    """Predict a table by a site's rules."""
    if wanted.explain or wanted.page:
        raise Refusal(
            "--explain and --page are about one model, and here rules choose among several",
            where=str(run),
            remedy="leave them out; whose model decided, and by which rule, is said for each patient anyway",
        )
    if wanted.out is not None:
        refuse_folder(wanted.out)
    folder = find_selection(run, site)
    predictor = SelectionPredictor(read_selection(folder), folder)
    patients = open_patients(
        wanted.patients, predictor.selection.facts, query=wanted.query, settings=dict(wanted.settings)
    )
    table = predict_selection(predictor, patients, list(dict.fromkeys(wanted.keep)))
    deliver(predictor, table, wanted)


def deliver(predictor: SelectionPredictor, table: pd.DataFrame, wanted: Wanted) -> None:
    facts = {
        "study": predictor.selection.study,
        "site": predictor.selection.site,
        "target": predictor.selection.facts.task.target,
        "strategy": predictor.selection.strategy,
        "rules": list(predictor.selection.words),
        **({"unfollowed": predictor.selection.unfollowed} if predictor.selection.unfollowed else {}),
        "patients": json.loads(table.to_json(orient="records", double_precision=15)),
    }
    if wanted.out is not None:
        suffix = wanted.out.suffix.lower()
        if suffix in (".parquet", ".pq"):
            content = parquet_content(table, wanted.out)
        else:
            content = json.dumps(facts, indent=1).encode() if suffix == ".json" else table.to_csv(index=False).encode()
        write_file(wanted.out, content)
    if wanted.as_json:
        typer.echo(json.dumps(facts))
    elif wanted.out is not None:
        typer.echo(f"{summary(predictor, table)} Written to {wanted.out}.")
    elif sys.stdout.isatty():
        print_table(table)
        typer.echo(summary(predictor, table))
    else:
        typer.echo(table.to_csv(index=False), nl=False)


def summary(predictor: SelectionPredictor, table: pd.DataFrame) -> str:
    """How many, and for whom another site's model decided."""
    site = predictor.selection.site
    others = table[table[RULE] != OWN_RULE]
    why = predictor.selection.unfollowed
    unfollowed = f" Not followed: {why}." if why else ""
    many = f"{len(table):,} patient{'' if len(table) == 1 else 's'}"
    if not len(others):
        return f"{many}: {site}'s own model decided for all of them.{unfollowed}"
    how = {"threshold": "competence", "hybrid": "rules and competence"}.get(predictor.selection.strategy, "rules")
    by = ", ".join(f"{name}'s for {count:,}" for name, count in others[DECIDED].value_counts().items())
    return f"{many}: {site}'s own model decided for {len(table) - len(others):,}, {by} (by {how}).{unfollowed}"
