"""The loop of an analysis, the same over simulated and real sites: ask, add up, think, until nothing is left to ask."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Agreed, Analysis, FoundModel
from wardround.core.contracts import Aggregator, Algorithm, Message, Report, Site, Tree
from wardround.core.errors import Refusal

Exchange = Callable[[int, Message], Message]
"""The number of the exchange and what is asked, to the answers, combined."""


def analyse(
    analysis: Analysis, agreed: Agreed, exchange: Exchange, keep: Callable[[FoundModel], None] = lambda model: None
) -> Report:
    """Ask until there is nothing left to ask; refused where the method does not come to an end.

    `keep` is given the model, where the method finds one.
    """

    def finish(state: Tree) -> Report:
        if analysis.model is not None:
            keep(analysis.model(state))
        return analysis.report(state)

    state = analysis.begin(agreed)
    for number in range(1, analysis.most + 1):
        asked = analysis.message(state)
        if asked is None:
            return finish(state)
        state = analysis.step(state, exchange(number, asked))
    if analysis.message(state) is None:
        return finish(state)
    raise Refusal(
        f"no answer was found in {analysis.most} exchanges",
        remedy="allow more of them, or ask for less: fewer columns, or a penalty",
    )


def exchange_in_process(analysis: Analysis, agreed: Agreed, sites: Sequence[Site]) -> Exchange:
    """Sites on this machine: each is shown its own table only."""

    def exchange(number: int, asked: Message) -> Message:
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
