"""What a search for rules found, in words, a table and charts: who was asked what, and what became of it."""

from collections.abc import Sequence

import numpy as np

from wardround.core.analysis import Findings, FoundChart, FoundTable
from wardround.core.contracts import Report, Tree
from wardround.core.text import counted
from wardround.weak_supervision.function import LabelingFunction, to_words
from wardround.weak_supervision.search.dialogue import (
    MOST_ANSWERS,
    DialoguePlan,
    accepted_rules,
    known_accuracy,
    rule_of,
)

COLUMNS = ("rule", "answer", "sites", "records", "coverage", "agreement", "accuracy")


def report_of(plan: DialoguePlan, state: Tree, seeds: Sequence[LabelingFunction]) -> Report:
    sums, answers = state["sums"], state["answers"]
    accepted = accepted_rules(plan, state)
    whole = max(float(sums["rows"]), 1.0) if sums is not None else 1.0
    rows: list[list[str | float | int | None]] = []
    for place, answer in answers:
        item, seen = place // len(plan.labels), state["seen"][place]
        rows.append(
            [
                rule_of(plan, state, place).sentence,
                answer,
                round(float(sums["sites"][item])),
                round(float(sums["covered"][item])),
                float(sums["covered"][item] / whole),
                float(seen["agree"] / seen["agree_of"]) if seen["agree_of"] > 0 else None,
                known_accuracy(plan, state, place),
            ]
        )
    sure = [answer for _, answer in answers if answer != "unsure"]
    judge = "An oracle" if plan.oracle is not None else "The expert"
    words = [
        f"{judge} accepted {counted(len(accepted), 'rule')} of {len(answers)} shown"
        + (f" ({100 * len(accepted) / len(sure):.0f} % of those judged)." if sure else "."),
        f"Of {counted(candidates_of(state), 'candidate')} that {plan.fewest} sites or more may propose, none was shown"
        " that fewer propose.",
    ]
    if len(answers) > len(sure):
        words.append(f"About {counted(len(answers) - len(sure), 'rule')} the expert was not sure.")
    kept = [*seeds, *accepted]
    words += [
        f"No rule votes for {label}, so nothing can be learned from the rules yet."
        for label in plan.labels
        if label not in {one.label for one in kept}
    ]
    if len(answers) < plan.questions and state["given"] >= MOST_ANSWERS * plan.questions:
        words.append(
            f"The dialogue ended after {counted(state['given'], 'answer')}, those included that were taken back: the"
            " sites answer no more."
        )
    if not answers:
        words.append("The expert answered nothing, so there is nothing to learn from but the seeds.")
    covered = [
        float(sums["covered"][place // len(plan.labels)] / whole) for place, answer in answers if answer == "yes"
    ]
    numbers = {
        "functions": [to_words(one) for one in kept],
        "shown": len(answers),
        "accepted": len(accepted),
        "unsure": len(answers) - len(sure),
        "share": len(accepted) / len(sure) if sure else None,
        "mean_coverage": float(np.mean(covered)) if covered else None,
        "answers": [[to_words(rule_of(plan, state, place)), answer] for place, answer in answers],
    }
    known = any(row[-1] is not None for row in rows)
    caption = "Rules that were shown (agreement: with rules accepted before"
    table = FoundTable(
        "rules",
        caption + ("; accuracy: by known labels)" if known else ")"),
        COLUMNS if known else COLUMNS[:-1],
        rows if known else [row[:-1] for row in rows],
    )
    return Findings(words, [table], charts_of(plan, state), numbers).report()


def candidates_of(state: Tree) -> int:
    return sum(len(one) for one in state.get("rules", {}).values())


def charts_of(plan: DialoguePlan, state: Tree) -> list[FoundChart]:
    """Of accepted templates what they look like; of other rules how many records each fires on."""
    accepted = [(place, rule_of(plan, state, place)) for place, answer in state["answers"] if answer == "yes"]
    if accepted and accepted[0][1].kind == "template":
        series = [
            {
                "name": f"{one.label}, rule {number}",
                "x": list(range(len(dict(one.given)["samples"]))),
                "y": list(dict(one.given)["samples"]),
            }
            for number, (_, one) in enumerate(accepted[:12], 1)
        ]
        return [FoundChart("templates", "Accepted templates (the first 12)", "lines", series, "sample", "z-score")]
    if not accepted:
        return []
    counts = [round(float(state["sums"]["covered"][place // len(plan.labels)])) for place, _ in accepted]
    names = [one.sentence for _, one in accepted]
    return [
        FoundChart(
            "coverage", "Records that accepted rules fire on", "bars", [{"name": "records", "x": names, "y": counts}]
        )
    ]
