"""Whether the advice of `wardround partners` is right, where the truth is known: `python -m benchmarks.advice`.

Prints one JSON object. For every kind of federation in `benchmarks.federations` and every seed, site 0 asks, and the
advice is made as the command makes it: on training and validation patients, over several splits. Then the truth, on
40,000 fresh patients of the asking site, for every possible set of partners: the loss of the model of its training
patients, trained as the study trains it (30 rounds, which is what the user gets) or, with `--truth fitted`, fitted to
convergence in plain NumPy, with nothing of ours.

- `ideal`: the set with the smallest true loss in the mean over the seeds of the kind (of `triage` that which it was
  made with, since another hospital asks with every seed). `exact`: the set advised is that of the making;
  `harmless`: its true loss is at most 0.005 above the ideal set's on the same patients;
  `hindsight`: at most 0.005 above the best of all 32 sets on these very patients, which nobody can know beforehand;
  `harms`: its true loss is more than 0.005 above that of the asking site alone;
- `wrong_in`, `right_in`: shares of wrong and of right partners taken; `auc`: right ones ranked above wrong ones;
- `yes_of_large`: how often "yes" is said where the true gain of the advised set is 0.02 or more; `yes_wrong`: how often
  where there is none; `no_wrong`: how often "no" is said where there is a gain of 0.005 or more.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.federations import KINDS, TRIAGE, World, world
from wardround.api.studies import build_study
from wardround.engine.fit import Schedule, fit
from wardround.engine.participation import everyone, restrict
from wardround.engine.simulate import Simulation
from wardround.study.assemble import load_setting
from wardround.study.file import Study
from wardround.workflows.partners.recommend import advise, check_partners
from wardround.workflows.training_plan import TrainingPlan

Numbers = np.ndarray[Any, Any]
HARMLESS = 0.005
LARGE = 0.02


def study_of(made: World, seed: int, choice: str, splits: int) -> Study:
    return build_study(
        made.frames, target="ill", rounds=30, seed=seed, user="site-0", partners={"name": choice, "repeats": splits}
    )


def fitted(x: Numbers, y: Numbers) -> Numbers:
    """A logistic regression by Newton's method, with the slightest pull towards 0 (1 in all) so that it exists."""
    full = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float64)
    weights = np.zeros(full.shape[1])
    pull = np.eye(len(weights))
    pull[-1, -1] = 1e-6
    for _ in range(25):
        risk = 1 / (1 + np.exp(-full @ weights))
        slope = full.T @ (risk - y) + pull @ weights
        step = np.linalg.solve((full * (risk * (1 - risk))[:, None]).T @ full + pull, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def loss(weights: Numbers, x: Numbers, y: Numbers) -> float:
    score = x @ weights[:-1] + weights[-1]
    return float(np.mean(np.logaddexp(0, score) - y * score))


def true_losses(made: World, plan: TrainingPlan, how: str) -> dict[frozenset[int], float]:
    """Of every set of partners: what the model of its training patients loses on the asking site's fresh ones."""
    setting, federation = plan.setting, plan.setting.federation
    assert setting.preparation is not None
    ready, y = setting.preparation.apply(made.fresh), made.fresh["ill"].to_numpy()
    first, count = federation.part("train")
    parts = [slice(a, a + b) for a, b in zip(first, count, strict=True)]
    others = range(1, len(parts))
    found, engine = {}, plan.engine()
    for size in range(len(parts)):
        for taken in itertools.combinations(others, size):
            if how == "fitted":
                rows = np.concatenate([np.arange(parts[site].start, parts[site].stop) for site in (0, *taken)])
                weights = fitted(federation.x[rows], federation.y[rows])
            else:
                weights = trained(plan, engine, (0, *taken))
            found[frozenset(taken)] = loss(weights, ready, y)
    return found


def trained(plan: TrainingPlan, engine: Simulation, sites: Sequence[int]) -> Numbers:
    """The study's own model of these sites, as the weights of a single score and its intercept."""
    participation = restrict(everyone(len(engine.sites)), sites)
    done = fit(plan.algorithm, engine, plan.first_params(), participation, Schedule(plan.study.study.rounds))
    params = plan.algorithm.params(done.progress.server)
    kernel, bias = (np.asarray(params[f"dense_0/{name}"], np.float64) for name in ("kernel", "bias"))
    return np.append(kernel[:, 1] - kernel[:, 0], bias[1] - bias[0])


def one_case(kind: str, seed: int, choices: Sequence[str], splits: int, how: str) -> dict[str, dict[str, Any]]:
    made = world(kind, seed)
    truth: dict[frozenset[int], float] = {}
    found = {}
    for choice in choices:
        study = study_of(made, seed, choice, splits)
        plan = check_partners(study, load_setting(study, seed))
        truth = truth or true_losses(made, plan, how)
        advice = advise(plan)
        names = list(plan.federation.sites)
        taken = frozenset(names.index(name) for name in advice.settlement.partners)
        right, wrong = sorted(made.right), sorted(set(range(1, len(names))) - made.right)
        score = advice.evidence.score
        pairs = [(score[a] > score[b]) + (score[a] == score[b]) / 2 for a in right for b in wrong]
        found[choice] = {
            "helps": advice.gain["helps"],
            "exact": taken == made.right,
            "gain": truth[frozenset()] - truth[taken],
            "truth": truth,
            "told_gain": None if advice.gain["difference"] is None else -advice.gain["difference"],
            "right_in": [site in taken for site in right],
            "wrong_in": [site in taken for site in wrong],
            "auc": float(np.mean(pairs)) if pairs else None,
            "taken": taken,
            "ideal_made": made.right if kind in TRIAGE else None,
        }
    return found


def ideal_set(rows: Sequence[dict[str, Any]]) -> frozenset[int]:
    if rows[0]["ideal_made"] is not None:
        found: frozenset[int] = rows[0]["ideal_made"]
        return found
    sets: list[frozenset[int]] = list(rows[0]["truth"])
    return min(sets, key=lambda one: float(np.mean([row["truth"][one] for row in rows])))


def judged(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of one kind: every advice beside the ideal set."""
    ideal = ideal_set(rows)
    return [
        {
            **row,
            "ideal": sorted(ideal),
            "regret": row["truth"][row["taken"]] - row["truth"][ideal],
            "hindsight": row["truth"][row["taken"]] - min(row["truth"].values()),
        }
        for row in rows
    ]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def share(values: Sequence[Any]) -> float | None:
        known = [float(value) for value in values if value is not None]
        return round(float(np.mean(known)), 3) if known else None

    return {
        "cases": len(rows),
        "exact": share([row["exact"] for row in rows]),
        "harmless": share([row["regret"] <= HARMLESS for row in rows]),
        "hindsight": share([row["hindsight"] <= HARMLESS for row in rows]),
        "harms": share([row["gain"] < -HARMLESS for row in rows]),
        "right_in": share([value for row in rows for value in row["right_in"]]),
        "wrong_in": share([value for row in rows for value in row["wrong_in"]]),
        "auc": share([row["auc"] for row in rows]),
        "gain": share([row["gain"] for row in rows]),
        "told_gain": share([row["told_gain"] for row in rows]),
        "yes_of_large": share([row["helps"] == "yes" for row in rows if row["gain"] >= LARGE]),
        "large": sum(row["gain"] >= LARGE for row in rows),
        "yes_wrong": share([row["helps"] == "yes" for row in rows if row["gain"] <= 0]),
        "none": sum(row["gain"] <= 0 for row in rows),
        "no_wrong": share([row["helps"] == "no" for row in rows if row["gain"] >= HARMLESS]),
        "said": {word: sum(row["helps"] == word for row in rows) for word in ("yes", "no", "unclear")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Whether the advice about partners is right, where the truth is known."
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--truth", choices=["trained", "fitted"], default="trained")
    parser.add_argument("--choices", nargs="*", default=["evidence"])
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS, *TRIAGE], default=list(KINDS))
    said = parser.parse_args()
    rows: dict[str, dict[str, list[Any]]] = {choice: {kind: [] for kind in said.kinds} for choice in said.choices}
    for kind in said.kinds:
        begun = time.perf_counter()
        for seed in range(said.first, said.first + said.seeds):
            for choice, row in one_case(kind, seed, said.choices, said.splits, said.truth).items():
                rows[choice][kind].append(row)
        for choice in said.choices:
            short = json.dumps(summary(judged(rows[choice][kind])))
            print(f"{kind}, {choice}: {time.perf_counter() - begun:.0f} s, {short}", file=sys.stderr, flush=True)
    report = {
        choice: {
            "all": summary([row for kind in found.values() for row in judged(kind)]),
            **{kind: {"ideal": sorted(ideal_set(found[kind])), **summary(judged(found[kind]))} for kind in found},
        }
        for choice, found in rows.items()
    }
    print(json.dumps({"seeds": [said.first, said.first + said.seeds], "splits": said.splits, "choices": report}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
