"""The loop of an analysis, the same over simulated and real sites: ask, add up, think, until nothing is left to ask."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from wardround.core.analysis import Agreed, Analysis
from wardround.core.contracts import Message, Report, Site, Tree
from wardround.core.errors import Refusal

Exchange = Callable[[int, Message], Message]
"""The number of the exchange and what is asked, to the sum of the answers (or their stack)."""


def analyse(analysis: Analysis, agreed: Agreed, exchange: Exchange) -> Report:
    """Ask until there is nothing left to ask; refused where the method does not come to an end."""
    state = analysis.begin(agreed)
    for number in range(1, analysis.most + 1):
        asked = analysis.message(state)
        if asked is None:
            return analysis.report(state)
        state = analysis.step(state, exchange(number, asked))
    if analysis.message(state) is None:
        return analysis.report(state)
    raise Refusal(
        f"no answer was found in {analysis.most} exchanges",
        remedy="allow more of them, or ask for less: fewer columns, or a penalty",
    )


def exchange_in_process(analysis: Analysis, agreed: Agreed, sites: Sequence[Site]) -> Exchange:
    """Sites on this machine: each is shown its own table only."""

    def exchange(number: int, asked: Message) -> Message:
        answers = [analysis.ask(agreed, asked, site) for site in sites]
        return combined(analysis, answers)

    return exchange


def combined(analysis: Analysis, answers: Sequence[Message]) -> Message:
    """The sum of the answers, or their stack, in the order of the sites."""

    def combine(*parts: Tree) -> Tree:
        stack = np.stack([np.asarray(part, np.float64) for part in parts])
        return stack.sum(axis=0) if analysis.sums else stack

    return Message(jax.tree.map(combine, *(answer.arrays for answer in answers)))
