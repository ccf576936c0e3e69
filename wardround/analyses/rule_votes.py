"""What labeling functions say together, over all sites: coverage, conflicts, estimated accuracies, the class balance.

One exchange of counts, in whole cells and noised on request. The accuracy of a rule is estimated without labels, as the
share of its records on which the other rules mostly vote for the same class; the balance of the classes as the shares
of records for which most rules vote, a tie as equal parts. Both are what the rules believe, and as good as they are. A
rule that fires on fewer records of a site than its smallest cell abstains there. Where an outcome is named, accuracies
and balance of the labelled records stand beside them.
"""

from typing import Any

import numpy as np

from wardround.core.analysis import Agreed, Analysis, Findings, FoundChart, FoundTable
from wardround.core.bounds import Count, NotNegative
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal
from wardround.core.text import counted
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.queries.cells import in_cells
from wardround.queries.columns import as_text
from wardround.weak_supervision.function import LabelingFunction, votes_of
from wardround.weak_supervision.rule_text import function_from_text
from wardround.weak_supervision.search.vote_groups import as_groups

LABEL = "Votes of rules"
Values = np.ndarray[Any, Any]
ASKED = "votes"


def told_in_words(settings: Settings) -> str:
    noise = f", with noise of a standard deviation of {settings['noise']:g} on every count" if settings["noise"] else ""
    return (
        "on how many of your records each rule of the study fires, alone, beside rules for another class and in"
        " agreement with the others, and for which classes most rules vote, in cells of"
        f" {settings['smallest_cell']}{noise}"
    )


TERMS = Terms(
    told_in_words,
    lambda of: (
        len(of.settings.get("rules", ())) * (4 + len(of.settings.get("labels", ())))
        + 2 * len(of.settings.get("labels", ()))
        + 2
    ),
    rows="table",
)


@recorded("analysis", TERMS)
def rule_votes(
    *,
    rules: tuple[str, ...],
    labels: tuple[str, ...],
    column: str = "",
    outcome: str = "",
    noise: NotNegative = 0.0,
    smallest_cell: Count = 1,
    noise_seed: int | None = None,
) -> Analysis:
    """Coverage, conflicts and estimated accuracies of rules, and the class balance ("worst -> bad", or JSON)."""
    where = "[analysis] rules"
    if len(set(labels)) < 2 or len(set(labels)) != len(labels):
        raise Refusal("rules need two different labels or more to vote for", where=where, remedy="name them in labels")
    if not rules:
        raise Refusal("there is no rule", where=where, remedy='write rules = ["worst -> negative"]')
    functions = [function_from_text(one, labels, column, where) for one in rules]
    places = np.array([[one.label == label for label in labels] for one in functions], float)

    def ask(agreed: Agreed, asked: Message, site: Site) -> Message:
        fired = as_groups(votes_of(functions, site.table), smallest_cell)
        counts = counts_of(fired, places)
        if outcome:
            truth = as_text(site.table[outcome])[:, None] == np.array(labels, object)
            counts["known"] = fired.T.astype(float) @ truth.astype(float)
            counts["classes"] = truth.sum(axis=0).astype(float)
        told = counts if smallest_cell <= 1 else {name: in_cells(part, smallest_cell) for name, part in counts.items()}
        if noise and len(site.table):
            told = {
                name: with_gaussian_noise(part, noise, noise_key(noise_seed, name, site.name))
                for name, part in told.items()
            }
        return Message({**told, "sites": np.array(float(len(site.table) > 0))})

    def report(state: Tree) -> Report:
        return told_of(functions, labels, state, bool(outcome))

    read = (name for one in functions for name in one.columns)
    texts = (name for one in functions if one.kind == "unigram" for name in one.columns)
    return Analysis(
        columns=tuple(dict.fromkeys((*read, *([outcome] if outcome else [])))),
        begin=lambda agreed: {},
        message=lambda state: None if state else Message({ASKED: np.zeros(())}),
        ask=ask,
        step=lambda state, told: {key: np.asarray(value, float) for key, value in told.arrays.items()},
        report=report,
        most=1,
        covers=lambda agreed, site: [np.ones(len(site.table), bool)],
        texts=tuple(dict.fromkeys(texts)),
    )


def counts_of(fired: Values, places: Values) -> dict[str, Any]:
    """What a site counts: per rule where it fires, where rules of other classes do, and where the others lead."""
    cast = fired.astype(float) @ places
    voted = cast.max(axis=1, initial=0.0) > 0
    others = cast[:, None, :] - fired[:, :, None] * places[None]  # (records, rules, classes): without the rule itself
    most = others.max(axis=2, keepdims=True)
    leads = (others == most) & (most > 0)
    alone = leads & (leads.sum(axis=2, keepdims=True) == 1)
    against = (others * (1 - places[None])).sum(axis=2) > 0
    first = (cast == cast.max(axis=1, keepdims=True, initial=0.0)) & voted[:, None]
    shares = first / np.maximum(first.sum(axis=1, keepdims=True), 1)
    return {
        "rows": np.array(float(len(fired))),
        "voted": np.array(float(voted.sum())),
        "fires": fired.sum(axis=0).astype(float),
        "conflicts": (fired & against).sum(axis=0).astype(float),
        "judged": (fired & alone.any(axis=2)).sum(axis=0).astype(float),
        "agrees": (fired & (alone * places[None]).any(axis=2)).sum(axis=0).astype(float),
        "leads": shares.sum(axis=0),
    }


def told_of(functions: list[LabelingFunction], labels: tuple[str, ...], sums: Tree, known: bool) -> Report:
    rows, fires = max(float(sums["rows"]), 1.0), sums["fires"]
    leads = np.maximum(sums["leads"], 0.0)
    balance = (leads / leads.sum()).tolist() if leads.sum() > 0 else None
    estimated = [ratio(one, of) for one, of in zip(sums["agrees"], sums["judged"], strict=True)]
    accuracy = [
        ratio(counts[labels.index(one.label)], counts.sum()) if known else None
        for one, counts in zip(functions, sums.get("known", np.zeros((len(functions), 1))), strict=True)
    ]
    words = [
        f"{counted(len(functions), 'rule')} vote on {100 * min(1.0, float(sums['voted']) / rows):.0f} % of"
        f" {rows:,.0f} records at {counted(round(float(sums['sites'])), 'site')}.",
        "No rule fires anywhere, so nothing is known of the balance of the classes."
        if balance is None
        else "By the majority of the rules, the balance of the classes is "
        + ", ".join(f"{label} {100 * share:.0f} %" for label, share in zip(labels, balance, strict=True))
        + f" (for a model: balance = {[round(one, 3) for one in balance]}).",
    ]
    for one, count in zip(functions, fires, strict=True):
        if count < 0.5:
            words.append(f"The rule {one.sentence} never fires: drop it.")
        elif count > 0.95 * rows:
            words.append(
                f"The rule {one.sentence} fires on {100 * count / rows:.0f} % of all records: it tells little."
            )
    silent = [label for label in labels if label not in {one.label for one in functions}]
    words += [f"No rule votes for {label}, so no model can learn it from these rules." for label in silent]
    table = [
        [one.sentence, round(float(count)), float(count / rows), ratio(against, count), guess, right]
        for one, count, against, guess, right in zip(
            functions, fires, sums["conflicts"], estimated, accuracy, strict=True
        )
    ]
    numbers = {
        "rows": float(sums["rows"]),
        "covered": float(sums["voted"]),
        "balance": balance,
        "coverage": [float(one / rows) for one in fires],
        "conflicts": [ratio(one, of) for one, of in zip(sums["conflicts"], fires, strict=True)],
        "estimated_accuracy": estimated,
        "accuracy": accuracy if known else None,
        "known_balance": (sums["classes"] / max(sums["classes"].sum(), 1.0)).tolist() if known else None,
    }
    caption = "Rules (conflicts: share of its records with a vote for another class; estimated: by the other rules)"
    columns = ("rule", "records", "coverage", "conflicts", "estimated accuracy", "accuracy")
    names = [one.sentence for one in functions]
    chart = FoundChart(
        "coverage", "Records that rules fire on", "bars", [{"name": "records", "x": names, "y": fires.tolist()}]
    )
    return Findings(words, [FoundTable("rules", caption, columns, table)], [chart], numbers).report()


def ratio(part: float, whole: float) -> float | None:
    """A share between 0 and 1, whatever noise made of its counts; none of nothing."""
    return float(np.clip(part / whole, 0.0, 1.0)) if whole >= 0.5 else None
