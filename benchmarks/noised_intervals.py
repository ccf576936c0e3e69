"""How often intervals under [privacy] hold the truth: patients and noise drawn anew, again and again.

    python -m benchmarks.noised_intervals --draws 400

Each draw makes patients of five sites from a known truth, noises the sums as a site would, and looks whether the 95 %
intervals hold the truth; `plain` is the same interval without the part of the noise. `docs/results/noised_analyses.md`
has what it gave.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from wardround.analyses.cross_table import cross_table
from wardround.analyses.glm import glm
from wardround.analyses.group_means import group_means
from wardround.analyses.survival.kaplan_meier import kaplan_meier
from wardround.core.analysis import NOISE, Agreed, AgreedColumn, Analysis
from wardround.core.contracts import Message, Report, Site
from wardround.core.errors import Refusal
from wardround.privacy.calibration import gaussian_noise
from wardround.privacy.noised_sums import with_gaussian_noise

SITES = 5
DELTA = 1e-5
KINDS = {"sex": ("f", "m"), "ward": ("icu", "low", "mid"), "died": ("no", "yes")}
Held = dict[str, tuple[bool, bool]]
"""By what is estimated: whether the interval holds the truth, and whether it would without the part of the noise."""


def patients(rows: int, draw: np.random.Generator) -> pd.DataFrame:
    age, sex = draw.normal(60, 12, rows), draw.choice(KINDS["sex"], rows)
    ward = draw.choice(KINDS["ward"], rows, p=(0.2, 0.5, 0.3))
    eta = -1.0 + 0.03 * (age - 60) + 0.5 * (sex == "m")
    died = np.where(draw.random(rows) < 1 / (1 + np.exp(-eta)), "yes", "no")
    falls = draw.poisson(np.exp(0.2 + 0.01 * (age - 60) + 0.3 * (sex == "m")))
    stay = 10 + 2.0 * (sex == "m") + draw.normal(0, 5, rows)
    event, leaves = draw.exponential(1000, rows), draw.uniform(200, 2000, rows)
    return pd.DataFrame(
        {"age": age, "sex": sex, "ward": ward, "died": died, "falls": falls.astype(float), "stay": stay,
         "days": np.minimum(event, leaves), "dead": (event <= leaves) * 1.0}
    )  # fmt: skip


def noised(analysis: Analysis, table: pd.DataFrame, bound: float, draw: np.random.Generator) -> Report:
    """The report of five sites, each of which adds noise for this epsilon."""
    kinds = {name: AgreedColumn("category", levels) for name, levels in KINDS.items()}
    agreed = Agreed(
        tuple(f"site {n}" for n in range(SITES)),
        {name: kinds.get(name, AgreedColumn("number")) for name in analysis.columns},
    )
    sites = [Site(name, table.iloc[n::SITES].reset_index(drop=True)) for n, name in enumerate(agreed.sites)]
    assert analysis.sensitivity is not None
    deviation = gaussian_noise(analysis.most, bound, DELTA) * analysis.sensitivity(agreed)
    state = analysis.begin(agreed)
    while (asked := analysis.message(state)) is not None:
        answers = [analysis.ask(agreed, asked, site).arrays for site in sites]
        total = {
            name: sum(with_gaussian_noise(np.asarray(one[name]), deviation, draw.bytes(32)) for one in answers)
            for name in answers[0]
        }
        state = analysis.step(state, Message({**total, NOISE: np.array(deviation * math.sqrt(SITES))}))
    return analysis.report(state)


def inside(value: float, error: float, truth: float) -> bool:
    return abs(value - truth) <= 1.959964 * error


@cache
def true_odds() -> float:
    large = patients(2_000_000, np.random.default_rng(1))
    (a, b), (c, d) = pd.crosstab(large["sex"], large["died"]).to_numpy()
    return math.log(a * d / (b * c))


def odds(table: pd.DataFrame, bound: float, draw: np.random.Generator) -> Held:
    """Of death by sex: the truth is that of two million patients."""
    found = noised(cross_table(rows="sex", columns="died", noised=True), table, bound, draw)["numbers"]
    counts = np.maximum(np.array(found["counts"]), 1.0)
    middle, plain = math.log(found["odds_ratio"]), math.sqrt((1 / counts).sum())
    far = math.log(found["high"] / found["low"]) / 2 / 1.959964
    return {"odds ratio": (inside(middle, far, true_odds()), inside(middle, plain, true_odds()))}


def means(table: pd.DataFrame, bound: float, draw: np.random.Generator) -> Held:
    made = group_means(column="stay", group="sex", ranges=("stay = -20 to 40",), noised=True)
    found = noised(made, table, bound, draw)["numbers"]
    errors = [math.hypot(*found[name]) for name in ("error", "plain")]
    held = [inside(found["difference"], error, 2.0) for error in errors]
    return {"difference of means": (held[0], held[1])}


def regression(family: str, formula: str, truth: dict[str, float]) -> Callable[..., Held]:
    ranges = ("age = 0 to 120", "falls = 0 to 6")
    event = "yes" if family == "binomial" else ""

    def held(table: pd.DataFrame, bound: float, draw: np.random.Generator) -> Held:
        made = glm(formula=formula, family=family, event=event, ranges=ranges)  # type: ignore[arg-type]
        report = noised(made, table, bound, draw)
        plain = {row[0]: row[6] for row in report["tables"][0]["rows"]}
        found, errors = report["numbers"]["coefficients"], report["numbers"]["errors"]
        return {
            f"{family} {name}": (inside(found[name], errors[name], own), inside(found[name], plain[name], own))
            for name, own in truth.items()
        }

    return held


def survival(table: pd.DataFrame, bound: float, draw: np.random.Generator) -> Held:
    edges = tuple(float(one) for one in range(100, 1201, 100))
    found = noised(kaplan_meier(time="days", event="dead", times=edges, noised=True), table, bound, draw)["numbers"]
    own, held = found["groups"]["all"], {}
    for time in (300.0, 800.0):
        place = edges.index(time)
        risk, events = np.array(own["at_risk"])[: place + 1], np.maximum(np.array(own["events"])[: place + 1], 0.0)
        greenwood = own["survival"][place] * math.sqrt((events / risk / np.maximum(risk - events, 1.0)).sum())
        truth = math.exp(-time / 1000)
        held[f"survival at {time:.0f}"] = (
            own["low"][place] <= truth <= own["high"][place],
            inside(own["survival"][place], greenwood, truth),
        )
    return held


STUDIES: dict[str, tuple[Callable[..., Held], int, tuple[float, ...]]] = {
    "cross_table": (odds, 2000, (0.5, 2.0)),
    "group_means": (means, 2000, (0.5, 2.0)),
    "logistic": (regression("binomial", "died ~ age + sex", {"age": 0.03, "sex=m": 0.5}), 5000, (3.0, 8.0)),
    "poisson": (regression("poisson", "falls ~ age + sex", {"age": 0.01, "sex=m": 0.3}), 20000, (4.0, 8.0)),
    "kaplan_meier": (survival, 2000, (0.5, 2.0)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--only", choices=tuple(STUDIES))
    words = parser.parse_args()
    found: dict[str, Any] = {}
    for name, (look, rows, bounds) in STUDIES.items():
        if words.only not in (None, name):
            continue
        for bound in bounds:
            draw = np.random.default_rng(7)
            held: list[Held] = []
            refused = 0
            for _ in range(words.draws):
                try:
                    held.append(look(patients(rows, draw), bound, draw))
                except (Refusal, KeyError):
                    refused += 1
            for what in held[0] if held else ():
                both = np.array([one[what] for one in held]).mean(axis=0)
                found[f"{what}, {rows} patients, epsilon {bound:g}"] = {
                    "held": float(both[0]), "plain": float(both[1]), "refused": refused
                }  # fmt: skip
            if not held:
                found[f"{name}, {rows} patients, epsilon {bound:g}"] = {"refused": refused}
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
