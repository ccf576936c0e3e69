"""How close the personal model comes to that of an oracle who knows the right partners, on thousands of new patients.

    python -m benchmarks.personal [--seeds 10] [--hospitals 4 8]

Prints one JSON object. For each made-up federation (`triage`, 200 patients a site) and each asking site: ROC-AUC, in
points, on new patients of that site for the model of its own patients, of all sites, of the partners that `evidence`
chose, and of the partners that truly belong to its group (the oracle).
"""

import argparse
import json
from dataclasses import replace

import numpy as np

from wardround.core.federation import Federation, assemble
from wardround.data.datasets.triage import triage
from wardround.data.load import load
from wardround.data.site_rows import encode_labels
from wardround.evaluate.metrics import measure_sites
from wardround.study.assemble import Setting, training_tables
from wardround.study.file import Study, parse_study
from wardround.study.methods import method_of, with_choice
from wardround.workflows.run import train
from wardround.workflows.training_plan import plan_training

SETTINGS = {"learning_rate": 0.2, "local_epochs": 1, "batch_size": 32}
FRESH = 4000
SKIPPED = 1000
"""The first patients of a larger draw share random numbers with the small one, so they are not counted as new."""


def setting_of(seed: int, hospitals: int, clusters: int) -> tuple[Setting, dict[str, list[str]]]:
    """200 patients a site to learn from, and thousands of new ones to be tested on."""
    made = triage(hospitals=hospitals, clusters=clusters, seed=seed)
    loaded = load(made, seed=seed, shares=(0.8, 0.2, 0.0))
    fresh = triage(hospitals=hospitals, clusters=clusters, seed=seed, patients=FRESH).sites
    federation, classes = loaded.federation, loaded.federation.task.classes
    pieces = []
    for index, site in enumerate(federation.sites):
        own = []
        for part in ("train", "validation"):
            first, count = (int(column[index]) for column in federation.part(part))
            own.append((federation.x[first : first + count], federation.y[first : first + count]))
        rows = fresh[site].iloc[SKIPPED:].reset_index(drop=True)
        test = loaded.preparation.apply(rows), encode_labels(rows["ebola"], classes)
        pieces.append((site, [*own, test]))
    whole: Federation = replace(assemble(pieces, federation.task, federation.features))
    setting = Setting(whole, "fresh", positive=classes.index("confirmed"), tables=training_tables(loaded))
    return setting, made.truth["groups"]


def study_for(user: str, rounds: int) -> Study:
    words = {
        "study": {"name": "personal", "rounds": rounds, "user": user},
        "data": {"source": "triage"},
        "model": {"name": "logistic", "l2": 0.01},
        "algorithm": {"name": "fed_avg", **SETTINGS},
        "evaluation": {"every": rounds},
    }
    return parse_study(words, where="benchmarks.personal")


def points(seed: int, hospitals: int, clusters: int, rounds: int) -> list[dict[str, float]]:
    setting, groups = setting_of(seed, hospitals, clusters)
    sites = list(setting.federation.sites)
    common = method_of("global", "fed_avg", SETTINGS)
    shared = {
        "alone": train(
            plan_training(study_for(sites[0], rounds), setting, method_of("local", "local", SETTINGS)), None
        ),
        "everyone": train(plan_training(study_for(sites[0], rounds), setting, common), None),
    }
    found = []
    for index, user in enumerate(sites):
        right = next(group for group in groups.values() if user in group)
        chosen = with_choice(common, "evidence", {}, choosing_rule())
        oracle = with_choice(common, "gradient_distance", {}, choosing_rule([site for site in right if site != user]))
        ways = {
            **shared,
            "personal": train(plan_training(study_for(user, rounds), setting, chosen), None),
            "oracle": train(plan_training(study_for(user, rounds), setting, oracle), None),
        }
        task = setting.federation.task
        told = {}
        for name, one in ways.items():
            value = (
                measure_sites(one.scores, task, ["roc_auc"], positive=setting.positive).measure("roc_auc", index).value
            )
            told[name] = 100 * float(value if value is not None else np.nan)
        found.append(told)
    return found


def choosing_rule(by_hand: list[str] | None = None):  # type: ignore[no-untyped-def]
    from wardround.partners.choice import Rule

    return Rule(by_hand=None if by_hand is None else tuple(by_hand))


def summary(rows: list[dict[str, float]]) -> dict[str, object]:
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    behind = table["oracle"] - table["personal"]
    better = np.maximum(table["alone"], table["everyone"])
    short = better - table["personal"]
    return {
        "asking_sites": len(rows),
        "mean_auc_points": {name: round(float(values.mean()), 2) for name, values in table.items()},
        "behind_oracle": {
            "mean": round(float(behind.mean()), 2),
            "standard_error": round(float(behind.std(ddof=1) / np.sqrt(len(behind))), 2),
            "worst": round(float(behind.max()), 2),
        },
        "below_better_of_alone_and_everyone": {
            "mean": round(float(short.mean()), 2),
            "worst": round(float(short.max()), 2),
            "share_more_than_1_point": round(float((short > 1).mean()), 3),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--hospitals", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--clusters", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    print(
        json.dumps(
            {
                f"{hospitals} hospitals": summary(
                    [
                        row
                        for seed in range(given.seeds)
                        for row in points(seed, hospitals, given.clusters, given.rounds)
                    ]
                )
                for hospitals in given.hospitals
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
