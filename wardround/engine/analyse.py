"""The loop of an analysis, the same over simulated and real sites: ask, add up, think, until nothing is left to ask."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Agreed, Analysis, ExpertQuestion, FoundModel
from wardround.core.contracts import Aggregator, Algorithm, Message, Report, Site, Tree
from wardround.core.errors import Refusal

Exchange = Callable[[int, Message], Message]
"""The number of the exchange and what is asked, to the answers, combined."""
Expert = Callable[[ExpertQuestion], str]
"""Whoever judges what an analysis asks between its exchanges."""


def no_expert(asked: ExpertQuestion) -> str:
    raise Refusal(
        "this analysis asks an expert, and nobody is here to answer",
        where="[analysis]",
        remedy='run it with `wardround label`, or say expert = "oracle" where labels exist',
    )


def analyse(
    analysis: Analysis,
    agreed: Agreed,
    exchange: Exchange,
    keep: Callable[[FoundModel], None] = lambda model: None,
    expert: Expert = no_expert,
) -> Report:
    """Ask until there is nothing left to ask; refused where the method does not come to an end.

    `keep` is given the model, where the method finds one; the `expert` is asked between two exchanges.
    """

    def consult(state: Tree) -> Tree:
        if analysis.question is None or analysis.told is None:
            return state
        while (asked := analysis.question(state)) is not None:
            state = analysis.told(state, expert(asked))
        return state

    def finish(state: Tree) -> Report:
        with refused_nonsense():
            found = None if analysis.model is None else analysis.model(state)
            report = analysis.report(state)
        if found is not None:
            keep(found)
        return report

    state = analysis.begin(agreed)
    for number in range(1, analysis.most + 1):
        asked = analysis.message(state)
        if asked is None:
            return finish(state)
        answers = exchange(number, asked)
        with refused_nonsense():
            state = analysis.step(state, answers)
        state = consult(state)
    if analysis.message(state) is None:
        return finish(state)
    raise Refusal(
        f"no answer was found in {analysis.most} exchanges",
        remedy="allow more of them, or ask for less: fewer columns, or a penalty",
    )


@contextmanager
def refused_nonsense() -> Iterator[None]:
    """No answer of a site ends the process: counts below 0 or without end give a sentence, not a root of -1."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, ValueError, LookupError) as error:
        raise Refusal(
            f"the answers of the sites do not fit together, so nothing can be computed from them ({error})",
            remedy="let each site run the study on its own rows; one of them may answer what no patients could give",
        ) from error


def exchange_in_process(analysis: Analysis, agreed: Agreed, sites: Sequence[Site]) -> Exchange:
    """Sites on this machine: each is shown its own table only."""

    def exchange(number: int, asked: Message) -> Message:
        if analysis.together is not None:
            return analysis.together(agreed, asked, sites)
        return combine_answers(analysis, {site.name: analysis.ask(agreed, asked, site) for site in sites})

    return exchange


def combine_answers(analysis: Analysis, answers: Mapping[str, Message]) -> Message:
    """The sum of the answers; or, where a sum is not enough, the arrays of each site by its name."""
    if not analysis.sums:
        return Message({site: answer.arrays for site, answer in answers.items()})
    arrays = [answer.arrays for answer in answers.values()]
    return Message(jax.tree.map(lambda *parts: np.sum([np.asarray(one, np.float64) for one in parts], axis=0), *arrays))


def as_algorithm(analysis: Analysis) -> Algorithm:
    """The model of an analysis for whoever predicts with an algorithm's; it cannot be trained in rounds."""
    if analysis.predict is None:
        raise Refusal("this analysis finds no model, so there is nothing to predict with")

    def nothing(*_: object) -> Any:
        raise Refusal("an analysis is not trained in rounds", remedy="run its study again")

    return Algorithm(
        init=nothing,
        init_client=nothing,
        broadcast=nothing,
        client=nothing,
        aggregator=Aggregator(init=nothing, reduce=nothing, linear=True),
        server=nothing,
        params=nothing,
        predict=analysis.predict,
    )
