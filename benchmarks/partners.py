"""How well each measure finds the right partners, where the truth is known: `python -m benchmarks.partners`.

Prints one JSON object. Of every federation (some seeds each) some sites ask in turn; `auc` is how often a right partner
is ranked above a wrong one, averaged over the asking sites; `right` and `wrong` are the shares of right and of wrong
partners above the measure's own cut. Federations:

- made-up hospitals of 2 to 4 groups, 50 to 400 patients each on average (60 % of them to learn from);
- `alike`: all hospitals alike, where every site is a right partner;
- `meaning`: the same patients everywhere, but at every second site a finding means the opposite: p(y|x) differs only;
- `patients`: sites differ by malaria test result and by nothing else: p(x) differs, p(y|x) does not, so that every site
  is a right partner.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.aggregators.weighted_mean import weighted_mean
from wardround.algorithms.fed_avg import fed_avg
from wardround.core.contracts import Algorithm, Model, Site, Task
from wardround.data.datasets.triage import triage
from wardround.data.load import LoadedData, load
from wardround.data.partitions.by_feature import by_feature
from wardround.data.partitions.shift_labels import shift_labels
from wardround.engine.simulate import Simulation
from wardround.models.logistic import logistic
from wardround.partners.choice import Choice, Question
from wardround.partners.choices.distribution_distance import distribution_distance
from wardround.partners.choices.evidence import evidence
from wardround.partners.choices.gradient_distance import gradient_distance
from wardround.partners.choices.ndoye import ndoye

ROUNDS = 30
MEASURES: Mapping[str, Callable[[], Choice]] = {
    "ndoye": ndoye,
    "gradient_distance": gradient_distance,
    "distribution_distance": distribution_distance,
    "evidence": evidence,
}


class Case(NamedTuple):
    """A federation for every seed, and the group of each of its sites."""

    make: Callable[[int], LoadedData]
    groups: tuple[int, ...]


def hospitals(count: int, clusters: int, patients: int, degree: float = 0.7) -> Case:
    def make(seed: int) -> LoadedData:
        table = triage(hospitals=count, clusters=clusters, patients=patients, degree=degree, seed=seed)
        return load(table, seed=seed)

    return Case(make, tuple(i % clusters if degree else 0 for i in range(count)))


def shifted(partition: Any, groups: tuple[int, ...]) -> Case:
    """One kind of patient, dealt out over as many sites of 200 patients as there are groups told."""

    def make(seed: int) -> LoadedData:
        table = triage(hospitals=1, clusters=1, patients=200 * len(groups), degree=0.0, seed=seed)
        return load(table, seed=seed, partition=partition)

    return Case(make, groups)


CASES: Mapping[str, Case] = {
    **{
        f"{count} hospitals, {clusters} groups, {patients} patients": hospitals(count, clusters, patients)
        for count, clusters, patients in (
            *((4, 2, 200), (8, 2, 200), (4, 3, 200), (8, 3, 200), (8, 4, 200)),
            *((8, 2, 50), (8, 2, 100), (8, 2, 400)),
        )
    },
    "alike": hospitals(8, 1, 200, degree=0.0),
    "meaning": shifted(shift_labels(column="contact", sites=8, degree=1.0), (0, 1) * 4),
    "patients": shifted(by_feature(column="malaria_test", sites=8, degree=1.0), (0,) * 8),
}


@cache
def learner(task: Task) -> tuple[Model, Algorithm]:
    model = logistic(task)
    return model, fed_avg(model, weighted_mean())


def tables(loaded: LoadedData) -> list[Site]:
    """Each site's raw training rows, as a query sees them."""
    training = loaded.federation.counts[:, 0]
    return [
        Site(name, rows.iloc[order[:count]])
        for (name, rows), order, count in zip(loaded.table.sites.items(), loaded.order, training, strict=True)
    ]


def auc(score: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    above = score[right][:, None] - score[~right][None]
    return float(np.mean((above > 0) + (above == 0) / 2))


def measured(case: Case, measures: Mapping[str, Choice], seeds: range, asking: int) -> dict[str, Any]:
    """Every measure on the same federations, asked by the same sites."""
    found: dict[str, dict[str, list[float]]] = {name: {"auc": [], "right": [], "wrong": []} for name in measures}
    groups = np.array(case.groups)
    for seed in seeds:
        loaded = case.make(seed)
        model, algorithm = learner(loaded.federation.task)
        engine = Simulation(loaded.federation, seed=seed, tables=tables(loaded))
        for turn in range(min(asking, len(groups))):
            user = (seed + turn) % len(groups)
            others = tuple(i for i in range(len(groups)) if i != user)
            right = groups[list(others)] == groups[user]
            params = model.init(jax.random.key(seed))
            for name, choice in measures.items():
                question = Question(engine, model, algorithm, params, ROUNDS, user, others, seed)
                said = choice.assess(question)
                score = said.score[list(others)]
                if right.any() and not right.all():
                    found[name]["auc"].append(auc(score, right))
                found[name]["right"] += (score[right] > said.cut).tolist()
                found[name]["wrong"] += (score[~right] > said.cut).tolist()
    return {
        name: {key: round(float(np.mean(values)), 4) for key, values in figures.items() if values}
        for name, figures in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="How well each measure finds the right partners.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--asking", type=int, default=4, help="sites that ask, of every federation")
    parser.add_argument("--measures", nargs="*", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    chosen = parser.parse_args()
    measures = {name: MEASURES[name]() for name in chosen.measures}
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    report: dict[str, Any] = {"seeds": [seeds.start, seeds.stop], "asking": chosen.asking, "cases": {}}
    for name in chosen.cases:
        begun = time.perf_counter()
        report["cases"][name] = measured(CASES[name], measures, seeds, chosen.asking)
        print(f"{name}: {time.perf_counter() - begun:.0f} s, {json.dumps(report['cases'][name])}", file=sys.stderr)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
