"""The coordinator's half of the search: the pool of candidates, what the expert said, what is shown next.

A candidate is a rule of the pool with a label. The state is plain values: a dialogue that was broken off is run through
again from the expert's answers, in their order, and comes to the same state.
"""

import json
from typing import Any, NamedTuple

import numpy as np

from wardround.core.analysis import ExpertQuestion
from wardround.core.contracts import Tree
from wardround.core.errors import Refusal
from wardround.weak_supervision.function import LabelingFunction, to_words
from wardround.weak_supervision.search.selection import Strategy, choose

Values = np.ndarray[Any, Any]
ANSWERS = ("yes", "no", "unsure", "back", "done")
MOST_ANSWERS = 2
"""Answers for each question, those included that are taken back; then the dialogue is over."""


class DialoguePlan(NamedTuple):
    """What the study says about the dialogue."""

    labels: tuple[str, ...]
    questions: int
    strategy: Strategy
    delta: float
    fewest: int
    oracle: float | None
    """The accuracy from which an oracle accepts a rule; none: an expert is asked."""
    seed: int
    in_turn: bool = True
    """Whether rules for the labels are shown in turn."""


def rule_of(plan: DialoguePlan, state: Tree, place: int) -> LabelingFunction:
    found: LabelingFunction = state["rules"][plan.labels[place % len(plan.labels)]][place // len(plan.labels)]
    return found


def with_sums(plan: DialoguePlan, state: Tree, told: Tree) -> Tree:
    """After an exchange: the candidate to be shown; an oracle answers at once."""
    sums = {key: np.asarray(value, np.float64) for key, value in told.items()}
    sites = np.repeat(sums["sites"], len(plan.labels))
    open_ = np.ones(len(sites), bool)
    open_[[place for place, _ in state["answers"]]] = False
    accepted = [place // len(plan.labels) for place, answer in state["answers"] if answer == "yes"]
    for item in (*accepted, *state["seeded"]):  # the same rule for another label would be mostly wrong
        open_[item * len(plan.labels) : (item + 1) * len(plan.labels)] = False
    turn = open_ & (np.arange(len(open_)) % len(plan.labels) == len(state["answers"]) % len(plan.labels))
    if plan.in_turn and (turn & (sites >= plan.fewest - 0.5)).any():
        open_ = turn
    place = choose(
        plan.strategy,
        sums["useful"].reshape(-1),
        sites,
        open_,
        delta=plan.delta,
        fewest=plan.fewest,
        seed=plan.seed + len(state["answers"]),
    )
    made = {**state, "sums": sums, "shown": place, "finished": place is None}
    if place is None:
        return made
    made["seen"] = {**state["seen"], place: facts_of(plan, sums, place)}
    if plan.oracle is None:
        return made
    accuracy = known_accuracy(plan, made, place)
    return after_answer(plan, made, "yes" if accuracy is not None and accuracy >= plan.oracle else "no")


def facts_of(plan: DialoguePlan, sums: Tree, place: int) -> dict[str, int]:
    """What the sites tell of a candidate by the rules accepted before it: later its own votes would be among them."""
    item, label = divmod(place, len(plan.labels))
    agree = sums["agree"][item]
    return {
        "sites": round(float(sums["sites"][item])),
        "records": round(float(sums["covered"][item])),
        "of": round(float(sums["rows"])),
        "agree": round(float(agree[label])),
        "agree_of": round(float(agree.sum())),
    }


def known_accuracy(plan: DialoguePlan, state: Tree, place: int) -> float | None:
    """How often a rule is right where labels are known; none where there are none."""
    counts = state["sums"]["known"][place // len(plan.labels)]
    return float(counts[place % len(plan.labels)] / counts.sum()) if counts.sum() > 0 else None


def after_answer(plan: DialoguePlan, state: Tree, answer: str) -> Tree:
    """What the expert said of the rule that is shown; "back" takes the answer before away and shows its rule again."""
    answers = list(state["answers"])
    if answer == "done":
        return {**state, "shown": None, "finished": True}
    if answer == "back":
        if not answers:
            return state
        place, _ = answers.pop()
        return {**state, "answers": answers, "shown": place}
    if answer not in ANSWERS:
        raise Refusal(f"{answer!r} is no answer", where="expert", remedy=f"say one of {', '.join(ANSWERS)}")
    answers.append((state["shown"], answer))
    given = state["given"] + 1  # each is an exchange, also one that is taken back later, and sites allow for so many
    finished = len(answers) >= plan.questions or given >= MOST_ANSWERS * plan.questions
    return {**state, "answers": answers, "shown": None, "finished": finished, "given": given}


def question_of(plan: DialoguePlan, state: Tree) -> ExpertQuestion | None:
    """What the expert sees of the rule that is shown: counts over all sites, never one site's."""
    place = state.get("shown")
    if place is None or plan.oracle is not None:
        return None
    rule = rule_of(plan, state, place)
    facts = {**state["seen"][place], "rule": to_words(rule), "label": rule.label}
    return ExpertQuestion(
        json.dumps(to_words(rule), sort_keys=True), len(state["answers"]) + 1, plan.questions, rule.sentence, facts
    )


def accepted_rules(plan: DialoguePlan, state: Tree) -> list[LabelingFunction]:
    return [rule_of(plan, state, place) for place, answer in state["answers"] if answer == "yes"]
