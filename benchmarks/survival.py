"""The figures of docs/results/survival.md: analyses over sites against the same fits on all rows in one place.

`python -m benchmarks.survival`; needs lifelines, statsmodels and WARDROUND_DATA.
"""

import time
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.analysis import Agreed, AgreedColumn, Analysis
from wardround.core.contracts import Report, Site
from wardround.data.datasets.survival.datashield_survival import datashield_survival
from wardround.data.datasets.survival.lung import lung
from wardround.data.datasets.survival.rotterdam_gbsg import rotterdam_gbsg
from wardround.data.datasets.survival.tcga_brca import tcga_brca
from wardround.data.table import Table
from wardround.engine import registry
from wardround.engine.analyse import analyse, exchange_in_process
from wardround.statistics.survival.concordance import comparable_pairs

SHARED = ["age", "menopause", "size=20-50", "size=>50", "grade_3", "nodes", "pgr", "er", "hormones"]


def agreed_on(table: Table) -> Agreed:
    rows = pd.concat(table.sites.values())
    kinds = {
        str(name): AgreedColumn("number")
        if pd.api.types.is_numeric_dtype(rows[name])
        else AgreedColumn("category", tuple(sorted(rows[name].dropna().unique())))
        for name in rows.columns
    }
    return Agreed(tuple(table.sites), kinds)


def found(name: str, table: Table, **settings: Any) -> tuple[Report, float]:
    """The report of an analysis over the table's sites, and its seconds."""
    analysis: Analysis = registry.find("analysis", name).build(**settings)
    agreed = agreed_on(table)
    sites = [Site(site, rows) for site, rows in table.sites.items()]
    begun = time.perf_counter()
    return analyse(analysis, agreed, exchange_in_process(analysis, agreed, sites)), time.perf_counter() - begun


def whole(table: Table) -> pd.DataFrame:
    """All rows in one place, with a column that names the site."""
    return pd.concat([rows.assign(site=site) for site, rows in table.sites.items()], ignore_index=True)


def phreg(rows: pd.DataFrame, time_: str, event: str, columns: list[str], strata: Any = None) -> tuple[Any, float]:
    PHReg = import_module("statsmodels.duration.api").PHReg  # it has no types

    begun = time.perf_counter()
    model = PHReg(rows[time_], rows[columns].astype(float), rows[event], strata=strata, ties="efron")
    return model.fit(), time.perf_counter() - begun


def apart(report: Report, other: Any) -> str:
    numbers = report["numbers"]
    first = np.abs(np.array(numbers["coefficients"]) - other.params).max()
    second = np.abs(np.array(numbers["standard_errors"]) - other.bse).max()
    return f"coefficients {first:.1e}, standard errors {second:.1e}"


def cox_against_pooled() -> None:
    """Within sites and across them, against statsmodels on all rows."""
    cases: list[tuple[str, Table, str, str, list[str], list[str]]] = [
        ("datashield", datashield_survival(), "years", "failed", ["age", "female", "noise", "pm10", "bmi"], []),
        ("lung", lung(), "days", "died", ["age", "sex", "ecog"], ["sex=woman"]),
        ("rotterdam and gbsg", rotterdam_gbsg(), "days", "recurred", [], SHARED),
    ]
    for name, table, clock, event, columns, design in cases:
        rows = whole(table)
        rows = rows.assign(**{f"size={one}": rows["size"] == one for one in ("20-50", ">50")} if "size" in rows else {})
        rows = rows.assign(**{"sex=woman": rows["sex"] == "woman"} if "sex" in rows else {})
        names = design if len(design) > 1 else [one if one != "sex" else "sex=woman" for one in columns]
        asked = columns or ["age", "menopause", "size", "grade_3", "nodes", "pgr", "er", "hormones"]
        rows = rows.dropna(subset=names)
        settings = {"time": clock, "event": event, "columns": tuple(asked)}
        if name.startswith("rotterdam"):
            settings["references"] = ("size = <=20",)
        report, ours = found("cox", table, **settings)
        other, theirs = phreg(rows, clock, event, names, rows["site"])
        steps = report["numbers"]["steps"]
        print(f"{name}, within sites: {apart(report, other)}; {steps + 2} exchanges, {ours / theirs:.2f} x statsmodels")
        pooled, _ = phreg(rows, clock, event, names)
        for bins in (50, 100, 400, 16_000):
            report, ours = found("cox", table, **settings, by_site=False, bins=bins)
            off = np.abs(np.array(report["numbers"]["coefficients"]) - pooled.params) / pooled.bse
            told = max(report["numbers"]["rounding"]["in_standard_errors"])
            print(f"  across sites, bins {bins}: off {off.max():.1e} standard errors, told {told:.1e}; {ours:.2f} s")


def tcga() -> None:
    """FLamby's split: the C-index on its test patients, over all pairs and within regions."""
    table = tcga_brca()
    columns = tuple(one for one in next(iter(table.sites.values())).columns if one not in ("days", "died", "split"))
    test = whole(table).query("split == 'test'")
    for penalty in (0.01, 0.1):
        for by_site in (True, False):
            report, seconds = found(
                "cox",
                table,
                time="days",
                event="died",
                columns=columns,
                hold_out="split = test",
                penalty=penalty,
                by_site=by_site,
                bins=1000,
                site_by_site=True,
            )
            numbers = report["numbers"]
            risk = test[list(columns)].to_numpy(float) @ np.array(numbers["coefficients"])
            pairs = comparable_pairs(test["days"].to_numpy(float), test["died"].to_numpy(), risk)
            held = numbers["concordance"]["held_out"]
            each = {site: round(one, 3) for site, one in held["by_site"].items()}
            where = "within regions" if by_site else "across regions"
            print(
                f"tcga, penalty {penalty}, fitted {where}: C {pairs.c_index:.3f} over all test pairs,"
                f" {held['c_index']:.3f} within regions, {np.mean(list(each.values())):.3f} mean of {each};"
                f" {numbers['steps'] + 2} exchanges, {seconds:.1f} s"
            )


def curves() -> None:
    """Lung by sex: medians, and what cells of 5 and 10 at 18 tiny sites do to them."""
    table = lung()
    for cell in (1, 5, 10):
        report, _ = found(
            "kaplan_meier",
            table,
            time="days",
            event="died",
            group="sex",
            bins=2000,
            horizons=(365.0,),
            smallest_cell=cell,
        )
        medians = [(row[0], row[1], round(row[3], 3)) for row in report["tables"][0]["rows"] if row[3] is not None]
        horizons = [one["rows"] for one in report["tables"] if one["name"] == "horizons"]
        later = [(row[0], round(row[3], 3)) for rows in horizons for row in rows]
        print(f"lung, smallest cell {cell}: {medians} after a year {later}")
    pair = rotterdam_gbsg()
    exact, _ = found("kaplan_meier", pair, time="days", event="recurred", bins=8000)
    for cell in (1, 10):
        for bins in (50, 200):
            report, _ = found("kaplan_meier", pair, time="days", event="recurred", bins=bins, smallest_cell=cell)
            steps = np.array([1.0, *exact["numbers"]["groups"]["all"]["survival"]])
            at = steps[np.searchsorted(exact["numbers"]["edges"], report["numbers"]["edges"], side="right")]
            curve = report["numbers"]["groups"]["all"]["survival"]
            off = np.abs(at[: len(curve)] - curve).max()
            told = report["numbers"]["rounding"]
            print(f"rotterdam and gbsg, {bins} intervals, cell {cell}: off at most {off:.4f}, told {told:.4f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    cox_against_pooled()
    tcga()
    curves()
