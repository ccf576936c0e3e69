"""How often "joining helps you" is said wrongly: `python -m benchmarks.verdicts --seeds 50`.

Prints one JSON object. The twelve quick kinds of `benchmarks.federations` as in `benchmarks.advice`, but cheap, so that
there are many cases: the sites' scores and information in plain NumPy, models fitted to convergence, and on
these the platform's own posterior, choice, interval and verdict. The truth is the loss on fresh patients of the asking
site: the mean over the splits, since the verdict speaks of their mean, and (`of_first`) that of the first one's models.
Beside the partners that are advised, every case is asked about two sets that a user might name by hand: a random
one, and a single random site, so that there are many in which joining gains nothing.

- `yes_of_large`: how often "yes" is said where the true gain is 0.02 or more, of so many cases;
- `wrong_of_yes`: how often there is no gain where "yes" is said; `yes_of_none`: how often "yes" is said where there is
  none; both with 95 % intervals (Wilson);
- `z`: quantiles of (expected - true gain) / error: of a right interval 2.5 and 97.5 % are -1.96 and 1.96.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.advice import LARGE, fitted, loss
from benchmarks.federations import KINDS, PATIENTS, World, world
from wardround.partners.choices.evidence import judge
from wardround.partners.knowledge import Knowledge, expected_gain, pull_of
from wardround.partners.similarity.site_groups import directions_of, group_sites
from wardround.workflows.partners.gain import NEGLIGIBLE, WIDTH, Span, verdict_of

Numbers = np.ndarray[Any, Any]
Rows = tuple[Numbers, Numbers]
QUICK = [kind for kind in KINDS if not kind.startswith("giant")]
ASKING = 0


def numbers_of(frame: Any) -> Rows:
    return frame.drop(columns="ill").to_numpy(np.float64), frame["ill"].to_numpy(np.float64)


def told_at(weights: Numbers, rows: Rows) -> tuple[Numbers, Numbers]:
    """A site's score and information at a model."""
    full = np.concatenate([rows[0], np.ones((len(rows[0]), 1))], axis=1)
    risk = 1 / (1 + np.exp(-full @ weights))
    return full.T @ (rows[1] - risk), (full * (risk * (1 - risk))[:, None]).T @ full


def learn(sites: list[Rows]) -> Knowledge:
    """As `learn_from_sites` does: at the model of everybody, and again at the best guess of the asking site's own."""
    model = joined(sites)
    known = ask(sites, model, None)
    return ask(sites, model + known.told.basis @ known.groups.mean[ASKING], known.pull)


def ask(sites: list[Rows], model: Numbers, pull: float | None) -> Knowledge:
    scores, bends = (np.array(each) for each in zip(*(told_at(model, rows) for rows in sites), strict=True))
    counts = np.array([len(y) for _, y in sites], np.float64)
    seen = directions_of(scores, bends)
    held_back = pull_of(scores.sum(axis=0), model, float(counts.sum())) if pull is None else pull
    params = {"weights": model}
    return Knowledge(np.arange(len(sites)), counts, seen, group_sites(seen), params, held_back, model)


def joined(sites: list[Rows]) -> Numbers:
    return fitted(np.concatenate([x for x, _ in sites]), np.concatenate([y for _, y in sites]))


class Split(NamedTuple):
    """One split: training rows of all sites, the asking site's held-out patients, and what follows from both."""

    train: list[Rows]
    patients: Numbers
    held: Rows
    alone: Numbers
    known: Knowledge
    """With the held-out patients of the asking site."""


def split_of(sites: list[Rows], generator: np.random.Generator) -> Split:
    train, held = [], []
    for x, y in sites:
        cuts = np.split(generator.permutation(len(y)), [len(y) * 6 // 10, len(y) * 8 // 10])
        train.append((x[cuts[0]], y[cuts[0]]))
        held.append((cuts[1], (x[cuts[1]], y[cuts[1]])))
    patients, own = held[ASKING]
    both = (np.concatenate([train[ASKING][0], own[0]]), np.concatenate([train[ASKING][1], own[1]]))
    return Split(train, patients, own, fitted(*train[ASKING]), learn([both, *train[1:]]))


def together_of(split: Split, taken: list[int]) -> Numbers:
    return joined([split.train[ASKING], *(split.train[site] for site in taken)])


def measured(splits: Sequence[Split], models: Sequence[Numbers]) -> Span:
    """The difference in loss of held-out patients and its interval, each patient once however often held out."""
    total, times = np.zeros(PATIENTS), np.zeros(PATIENTS)
    for split, together in zip(splits, models, strict=True):
        x, y = split.held
        each = [np.logaddexp(0, score) - y * score for score in (x @ w[:-1] + w[-1] for w in (together, split.alone))]
        np.add.at(total, split.patients, each[0] - each[1])
        np.add.at(times, split.patients, 1)
    gap = total[times > 0] / times[times > 0]
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    return float(gap.mean()), float(gap.mean()) - WIDTH * error, float(gap.mean()) + WIDTH * error


def cases_of(made: World, kind: str, seed: int, count: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng([11, list(KINDS).index(kind), seed])
    names = list(made.frames)
    others = list(range(1, len(names)))
    sites = [numbers_of(frame) for frame in made.frames.values()]
    splits = [split_of(sites, generator) for _ in range(count)]
    score = np.mean([judge(learn(one.train), ASKING, others, names)[0] for one in splits], axis=0)
    sets = {
        "advised": [site for site in others if score[site] > 0],
        "named": [site for site in others if generator.random() < 0.5] or [1],
        "single": [int(generator.integers(1, len(names)))],
    }
    fresh, found = numbers_of(made.fresh), []
    for asked, taken in sets.items():
        if not taken:
            found.append({"asked": asked, "kind": kind, "helps": "nobody", "gain": 0.0, "first": 0.0, "z": None})
            continue
        models = [together_of(one, taken) for one in splits]
        each = [expected_of(one, together) for one, together in zip(splits, models, strict=True)]
        gain, error = np.mean([one for one, _ in each]), np.sqrt(np.mean([one**2 for _, one in each]))
        span = (-float(gain), -float(gain + WIDTH * error), -float(gain - WIDTH * error))
        checked = measured(splits, models)
        gains = [loss(one.alone, *fresh) - loss(model, *fresh) for one, model in zip(splits, models, strict=True)]
        truth = float(np.mean(gains))
        helps = verdict_of(span, checked, True, NEGLIGIBLE)
        row = {"asked": asked, "kind": kind, "helps": helps, "gain": truth, "z": (gain - truth) / max(error, 1e-12)}
        found.append({**row, "first": gains[0], "expected": float(gain), "error": float(error), "measured": checked})
    return found


def expected_of(split: Split, together: Numbers) -> tuple[float, float]:
    changes = [split.known.told.dual @ (model - split.known.model["weights"]) for model in (split.alone, together)]
    return expected_gain(split.known, ASKING, changes[0], changes[1])


def wilson(count: int, total: int) -> list[float] | None:
    """The share and its 95 % interval."""
    if not total:
        return None
    share, z = count / total, 1.96
    middle, width = share + z * z / 2 / total, z * np.sqrt(share * (1 - share) / total + z * z / 4 / total**2)
    low, high = (middle - width) / (1 + z * z / total), (middle + width) / (1 + z * z / total)
    return [round(share, 4), round(float(low), 4), round(float(high), 4)]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    yes, none = [row for row in rows if row["helps"] == "yes"], [row for row in rows if row["gain"] <= 0]
    large = [row for row in rows if row["gain"] >= LARGE]
    off = [row["z"] for row in rows if row["z"] is not None]
    return {
        "cases": len(rows),
        "yes": len(yes),
        "yes_of_large": wilson(sum(row["helps"] == "yes" for row in large), len(large)),
        "large": len(large),
        "wrong_of_yes": wilson(sum(row["gain"] <= 0 for row in yes), len(yes)),
        "yes_of_none": wilson(sum(row["helps"] == "yes" for row in none), len(none)),
        "none": len(none),
        "no_wrong": wilson(
            sum(row["gain"] >= 0.005 for row in rows if row["helps"] == "no"), sum(row["helps"] == "no" for row in rows)
        ),
        "z": [round(float(one), 2) for one in np.quantile(off, [0.025, 0.5, 0.975])] if off else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="How often it is said wrongly that joining helps.")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=QUICK)
    parser.add_argument("--raw", help="a file for every case")
    said = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(said.first, said.first + said.seeds):
        for kind in said.kinds:
            rows += cases_of(world(kind, seed, fresh=20_000), kind, seed, said.splits)
    if said.raw:
        with open(said.raw, "w", encoding="utf-8") as file:
            json.dump(rows, file)
    ways = {name: [row for row in rows if row["asked"] == name] for name in ("advised", "named", "single")}
    print(
        json.dumps(
            {
                "seeds": [said.first, said.first + said.seeds],
                "splits": said.splits,
                **{name: summary(of) for name, of in ways.items()},
                "of_first": {
                    name: summary([{**row, "gain": row["first"], "z": None} for row in of]) for name, of in ways.items()
                },
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
