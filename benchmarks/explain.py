"""Measures classifier selection: speed, planted regions, false rules, and the sepsis study of Caldas 2022, chapter 3.

python -m benchmarks.explain speed | planted | pruning | sepsis [--seeds 10] [--out FILE.jsonl] | one-seed | privacy
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.planted_region import planted
from wardround.classifiers.exchange import AskedTask
from wardround.data.datasets.sepsis import sepsis
from wardround.data.row_split import split
from wardround.selection.decision_list import decision_list
from wardround.selection.neighbours import nearest
from wardround.selection.permutation_test import prune
from wardround.selection.rule_columns import rule_columns
from wardround.selection.rules import first_rule
from wardround.selection.settings import SelectionSettings
from wardround.selection.site_choice import PointChoice
from wardround.study.sections.explain import ExplainSection
from wardround.workflows.explain.choices import ChosenSite, choose_for, selection_settings
from wardround.workflows.explain.rows import ExplainRows, SitePart, SiteParts
from wardround.workflows.explain.senders import SentClassifier, classifier_of, points_of

SHARES = (0.4, 0.3, 0.3)
PRINTED = SelectionSettings(
    k=100,
    prune=False,
    own_rows="counted",
    corrected=False,
    rules_from="neighbours",
    rules_by="bound",
    most_rules=12,
)
"""The thesis: 100 neighbours, rules by the lower bound on competence, tests as they are."""


def rows_of_tables(
    tables: dict[str, pd.DataFrame], target: str, positive: str, columns: Sequence[str], seed: int, by: str
) -> ExplainRows:
    """Every site's rows, split 40/30/30 by patient (`by` names the column) or by row."""
    kinds = {
        name: "number" if pd.api.types.is_numeric_dtype(next(iter(tables.values()))[name]) else "category"
        for name in columns
    }
    labels = sorted({str(one) for table in tables.values() for one in table[target].unique()})
    sites = []
    for name, table in tables.items():
        outcome = (table[target] == positive).to_numpy().astype(np.int64)
        who = pd.factorize(table[by])[0] if by else np.arange(len(table))
        parts = split(
            len(table), seed=seed, site=name, shares=SHARES, strata=outcome.astype(str), by=who if by else None
        )
        frame = table[list(columns)]
        sites.append(
            SiteParts(name, *(SitePart(frame.iloc[p].reset_index(drop=True), outcome[p], who[p]) for p in parts))
        )
    return ExplainRows(AskedTask(target, tuple(labels), positive, kinds), tuple(sites), None, "", (), {})  # type: ignore[arg-type]


def send_all(rows: ExplainRows, said: ExplainSection, seed: int) -> dict[str, SentClassifier]:
    points = points_of(said)
    return {site.name: classifier_of(site, said, rows, points, None, seed, 1) for site in rows.sites}


def fill_like(rows: ExplainRows, sent: dict[str, SentClassifier]) -> ExplainRows:
    """Gaps filled as the thesis does before rules are learned: with the site's own means."""
    sites = []
    for site in rows.sites:
        fills = {one.name: one.fill for one in sent[site.name].preparation.columns if one.fill is not None}
        parts = [part._replace(frame=part.frame.fillna(fills)) for part in site[1:]]
        sites.append(SiteParts(site.name, *parts))
    return rows._replace(sites=tuple(sites))


def cell_words(chosen: ChosenSite, cell: PointChoice) -> list[dict[str, Any]]:
    told = []
    for one in cell.strategies.values():
        test = one.test
        told.append(
            {
                "site": chosen.site.name,
                "point": cell.point.name,
                "keeps": cell.keeps,
                "strategy": one.name,
                "val_p": one.p_value,
                "corrected": one.corrected,
                "passes": one.passes,
                "confirmed": (cell.point.name, cell.keeps, one.name) in chosen.confirmed,
                "p": test.p_value,
                "by_patient": test.by_patient,
                "handled": test.rows,
                "share": test.share,
                "right": test.flips.right,
                "flips": test.flips.all,
                "local": test.local_accuracy,
                "other": test.other_accuracy,
                "rules": [found.rule.words() for found in chosen.choice.listed[: one.rules]],
                "explained": list(cell.explained),
            }
        )
    return told


def sepsis_once(seed: int, by: str, tables: dict[str, pd.DataFrame], *, ours: bool) -> list[dict[str, Any]]:
    """All cells of one seed: as printed, and (`ours`) with the settings that `wardround explain` has by default."""
    columns = [name for name in tables["A"].columns if name not in ("patient", "sepsis")]
    rows = rows_of_tables(tables, "sepsis", "sepsis", columns, seed, by)
    said = ExplainSection(k=100, shuffles=19)
    sent = send_all(rows, said, seed)
    found = []
    filled = fill_like(rows, sent)
    ways: list[tuple[str, ExplainRows, SelectionSettings]] = [("printed", filled, PRINTED)]
    if ours:
        ways.append(("ours", rows, selection_settings(said)))
    for way, table, settings in ways:
        for site in table.sites:
            chosen = choose_for(site, sent, settings, seed)
            for cell in chosen.choice.cells:
                found += [{"seed": seed, "by": by or "row", "way": way, **one} for one in cell_words(chosen, cell)]
    return found


def run_sepsis(seeds: int, out: Path) -> None:
    """Ten draws and splits, by row as printed and by patient; one line a cell."""
    with out.open("a", encoding="utf-8") as file:
        for seed in range(seeds):
            tables = dict(sepsis(rows="balanced", draw=seed).sites)
            for by in ("", "patient"):
                started = time.perf_counter()
                for one in sepsis_once(seed, by, tables, ours=bool(by)):
                    file.write(json.dumps(one) + "\n")
                file.flush()
                print(f"seed {seed}, by {by or 'row'}: {time.perf_counter() - started:.1f} s", flush=True)


def one_seed() -> None:
    """The figure: one seed, all eight cells as printed, time and memory, reading and training included."""
    started, cpu = time.perf_counter(), time.process_time()
    tables = dict(sepsis(rows="balanced").sites)
    read, read_cpu = time.perf_counter() - started, time.process_time() - cpu
    cells = sepsis_once(0, "", tables, ours=False)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(cells)} strategies: {seconds:.1f} s ({read:.1f} s reading), processor {cpu_seconds:.1f} s "
        f"({read_cpu:.1f} s reading), {memory:.2f} GB"
    )


def best_of(action: Callable[[], Any], times: int = 3) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return min(found)


def speed() -> None:
    """Neighbours against scikit-learn's fastest, and a decision list; ratios are of the same run."""
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 40))
    single = x.astype(np.float32)
    peers = {
        "brute, double": lambda: NearestNeighbors(n_neighbors=100, algorithm="brute").fit(x).kneighbors(x),
        "brute, single": lambda: NearestNeighbors(n_neighbors=100, algorithm="brute").fit(single).kneighbors(single),
    }
    taken = {name: best_of(action) for name, action in peers.items()}
    who = np.arange(20_000)
    ours = best_of(lambda: nearest(x, x, 100, patients=(who, who)))
    fastest = min(taken, key=lambda name: taken[name])
    print(f"neighbours 20,000 x 20,000 x 40: ours {ours:.2f} s, scikit-learn ({fastest}) {taken[fastest]:.2f} s, "
          f"ratio {ours / taken[fastest]:.2f}")  # fmt: skip
    frame = pd.DataFrame(rng.normal(size=(10_000, 40)), columns=[f"column {place}" for place in range(40)])
    value = rng.normal(size=10_000) - 0.1
    value[(frame["column 3"] > 0.8) & (frame["column 7"] <= 0.2)] += 0.5
    for by in ("clearest", "bound"):

        def make(by: Any = by) -> Any:
            return decision_list(rule_columns(frame), value[None], ["B"], by=by)

        cpu = time.process_time()
        rules = len(make())
        cpu = time.process_time() - cpu
        print(
            f"decision list on 10,000 x 40, {by}: {best_of(make):.2f} s, {cpu:.2f} s of processor time, {rules} rules"
        )


def private_study(epsilon: float | None, path: Path) -> Any:
    """The sepsis study with the study's own model, logistic regression, at each site alone; with or without noise."""
    from wardround.study.file import parse_study

    content: dict[str, Any] = {
        "study": {"name": "sepsis", "seed": 0, "rounds": 30},
        "data": {
            "source": "csv",
            "path": str(path),
            "site": "hospital",
            "target": "sepsis",
            "positive": "sepsis",
            "shares": list(SHARES),
        },
        "model": {"name": "logistic"},
        "algorithm": {"name": "fed_avg", "learning_rate": 0.5, "batch_size": 256},
    }
    if epsilon is not None:
        content["privacy"] = {"epsilon": epsilon, "delta": 1e-5, "clip": 1.0}
    return parse_study(content, where="benchmark")


def membership_area(scores: Any, outcome: Any, scores_out: Any, outcome_out: Any) -> float:
    """How well a patient's loss tells members from others: 0.5 is not at all (Yeom et al., CSF 2018)."""
    from sklearn.metrics import roc_auc_score

    from wardround.selection.competence import cross_entropy

    inside, outside = -cross_entropy(scores, outcome), -cross_entropy(scores_out, outcome_out)
    return float(roc_auc_score(np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])))


def measure_privacy() -> None:
    """What classifiers tell about their patients, with a control that tells a lot; and what noise does to the rules."""
    from sklearn.ensemble import RandomForestClassifier

    from wardround.classifiers.exchange import load_classifier
    from wardround.classifiers.onnx_file import with_thresholds
    from wardround.selection.operating_points import risk_threshold
    from wardround.workflows.explain.study_models import study_classifiers

    tables = dict(sepsis(rows="balanced").sites)
    columns = [name for name in tables["A"].columns if name not in ("patient", "sepsis")]
    rows = rows_of_tables(tables, "sepsis", "sepsis", columns, 0, "")
    said = ExplainSection(k=100, prune=False)
    settings = selection_settings(said)
    place = Path(mkdtemp()) / "sepsis.csv"
    pd.concat([table[[*columns, "sepsis"]].assign(hospital=name) for name, table in tables.items()]).to_csv(
        place, index=False
    )
    plain = send_all(rows, said, 0)
    makers: dict[str, dict[str, SentClassifier]] = {"ridge": plain}
    makers["random_forest"] = send_all(rows, ExplainSection(classifier="random_forest"), 0)
    for epsilon in (None, 3.0, 1.0):
        files = study_classifiers(private_study(epsilon, place), 0, list(tables))
        made = {}
        for site in rows.sites:
            asked = rows.asked
            loaded = load_classifier(files[site.name], asked, source=site.name)
            risk = loaded.scores(site.validation.frame)
            thresholds = {p.name: risk_threshold(p, risk, site.validation.outcome) for p in settings.points}
            content = with_thresholds(files[site.name], thresholds)
            made[site.name] = plain[site.name]._replace(content=content, loaded=loaded._replace(thresholds=thresholds))
        makers[f"study's model, epsilon {epsilon}"] = made
    site = rows.sites[0]
    x = [plain["A"].preparation.apply(part.frame) for part in (site.train, site.test)]
    control = RandomForestClassifier(50, random_state=0).fit(x[0], site.train.outcome)
    found = [control.predict_proba(one)[:, 1] for one in x]
    print(f"control (forest with leaves of one patient): membership "
          f"{membership_area(found[0], site.train.outcome, found[1], site.test.outcome):.3f}", flush=True)  # fmt: skip
    for name, sent in makers.items():
        for site in rows.sites:
            own = sent[site.name].loaded
            told = membership_area(
                own.scores(site.train.frame), site.train.outcome, own.scores(site.test.frame), site.test.outcome
            )
            chosen = choose_for(site, sent, settings, 0)
            done = [
                f"{cell.point.name} {by.name} {by.test.rows} rows {by.test.flips.right}/{by.test.flips.all}"
                f"{' confirmed' if (cell.point.name, cell.keeps, by.name) in chosen.confirmed else ''}"
                for cell in chosen.choice.cells
                if cell.keeps == "local"
                for by in cell.strategies.values()
                if by.passes
            ]
            rules = "; ".join(one.rule.words() for one in chosen.choice.listed[:2])
            print(
                f"{name}, {site.name}: membership {told:.3f}; {done or 'no benefit'}; first rules: {rules}", flush=True
            )


PLANTED_COLUMNS = ("lactate", "age", "pulse", "sodium", "sex")


def choose_planted(seed: int, *, region: bool, patients: int = 2000) -> ChosenSite:
    tables = planted(patients, seed, region=region)
    rows = rows_of_tables(tables, "died", "yes", PLANTED_COLUMNS, seed, "")
    said = ExplainSection(points=["youden"])
    sent = send_all(rows, said, seed)
    return choose_for(rows.sites[0], sent, selection_settings(said), seed)


def measure_planted(seeds: int) -> None:
    """Precision and recall of the rules that are followed, on new patients; and how often the tool declines."""
    precision, recall, followed = [], [], 0
    for seed in range(seeds):
        chosen = choose_planted(seed, region=True)
        cell = chosen.choice.cells[0]
        used = cell.strategies["rules"].rules if (cell.point.name, cell.keeps, "rules") in chosen.confirmed else 0
        followed += used > 0
        new = planted(20_000, 10_000 + seed)["A"]
        taken = first_rule(tuple(one.rule for one in chosen.choice.listed[:used]), new) >= 0
        inside = new["inside"].to_numpy()
        precision.append((taken & inside).sum() / max(1, taken.sum()))
        recall.append((taken & inside).sum() / inside.sum())
    print(f"planted, {seeds} seeds, 2,000 patients a site: rules followed in {followed}; precision median "
          f"{np.median(precision):.3f} (least {min(precision):.3f}), recall median {np.median(recall):.3f} "
          f"(least {min(recall):.3f})")  # fmt: skip
    declined = sum(not choose_planted(seed, region=False).confirmed for seed in range(seeds))
    print(f"no region, {seeds} seeds: declined in {declined} ({100 * declined / seeds:.0f} %)")


def measure_pruning(shuffles: int = 200) -> None:
    """How often a rule passes where outcomes were shuffled: at the level 0.05, about 10 of 200."""
    rng = np.random.default_rng(0)
    rows = 400
    frame = pd.DataFrame(rng.normal(size=(rows, 8)), columns=[f"column {place}" for place in range(8)])
    columns = rule_columns(frame)
    near = nearest(frame.to_numpy(), frame.to_numpy(), 15, patients=(np.arange(rows), np.arange(rows)))
    from wardround.selection.competence import competence, loss_nearby, own_difference

    ways: dict[str, Callable[[Any], Any]] = {
        "each patient's own loss": own_difference,
        "competence among neighbours": lambda losses: competence(loss_nearby(losses, near)),
    }
    for name, values_of in ways.items():
        kept = 0
        for number in range(shuffles):
            draw = np.random.default_rng((7, number))
            losses = draw.exponential(0.5, (2, rows))
            listed = decision_list(columns, values_of(losses), ["B"], most=1)
            kept += prune(listed, columns, losses, values_of, np.arange(rows), draw, shuffles=99).kept > 0
        print(f"false rules, {name}: {kept} of {shuffles} ({100 * kept / shuffles:.1f} %)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "planted", "pruning", "sepsis", "one-seed", "privacy"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("sepsis_cells.jsonl"))
    given = parser.parse_args()
    actions: dict[str, Callable[[], None]] = {
        "speed": speed,
        "planted": lambda: measure_planted(given.seeds),
        "pruning": measure_pruning,
        "sepsis": lambda: run_sepsis(given.seeds, given.out),
        "one-seed": one_seed,
        "privacy": measure_privacy,
    }
    actions[given.what]()


if __name__ == "__main__":
    main()
