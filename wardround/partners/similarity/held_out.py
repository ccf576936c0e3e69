"""What the asking site's held-out patients say about several models at once: each one's loss, and paired differences.

All models are judged by the asking site alone, in one exchange, so that nobody else sees them. A difference between two
models is taken patient by patient, which makes its standard error far smaller than that of either loss.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Model, Params
from wardround.core.errors import Refusal
from wardround.partners.choice import Question
from wardround.partners.probes.losses import difference_errors, losses

Numbers = np.ndarray[Any, Any]
HeldOut = Literal["validation", "test"]
"""Choosing partners by the test patients would spoil the comparison that they are kept for; rewards may use them."""


class Verdict(NamedTuple):
    """Of K models: the mean loss of each, and what the errors of their differences follow from."""

    loss: Numbers
    covariance: Numbers
    """(K, K), of the mean losses, up to what cancels in differences; NaN where a single patient judges."""

    def error(self, combination: Numbers) -> Numbers:
        """The standard error of sums of losses; the coefficients in the last axis must add up to 0."""
        return np.sqrt(np.maximum(np.einsum("...i,ij,...j", combination, self.covariance, combination), 0.0))


def judge_models(question: Question, stack: Params, part: HeldOut) -> Verdict:
    """The models of a stack (first axis K) on the held-out patients of the asking site."""
    state = question.probe(loss_probe(question.model, part), stack, (question.user,))
    if not float(state["rows"][question.user]):
        raise Refusal(
            f"the asking site has no {part} patients to judge by",
            where=f"site {question.engine.sites[question.user]}",
            remedy=f"give it a share of {part} rows, or judge by another part",
        )
    loss = np.asarray(state["loss"], np.float64)[question.user]
    # Any combination whose coefficients add up to 0 has the variance -1/2 c' D c, with D those of the differences.
    return Verdict(loss, -0.5 * np.square(difference_errors(state)[question.user]))


@lru_cache(maxsize=16)
def loss_probe(model: Model, part: HeldOut) -> Algorithm:
    """One and the same probe for a model, so that its program is compiled once."""
    return losses(model, part=part)


def stack_models(models: Sequence[Params], room: int) -> Params:
    """Models as one stack of `room` rows, the last model repeated: a fixed shape, so that nothing is compiled anew."""
    rows = [*models, *[models[-1]] * (room - len(models))]
    stack: Params = jax.tree.map(lambda *arrays: np.stack([np.asarray(array) for array in arrays]), *rows)
    return stack


def loss_rises(question: Question, stack: Params, part: HeldOut) -> tuple[Numbers, Numbers]:
    """How much the loss rises from the model in the asking site's row to every other, with its standard error.

    The stack has one row a site; what stands in the rows of sites that are no candidates does not matter.
    """
    verdict = judge_models(question, stack, part)
    sites = len(verdict.loss)
    chosen = list(question.candidates)
    score, error = np.full(sites, np.nan), np.full(sites, np.nan)
    score[chosen] = (verdict.loss - verdict.loss[question.user])[chosen]
    to_others = np.eye(sites) - np.eye(sites)[question.user]
    error[chosen] = verdict.error(to_others)[chosen]
    return score, error
