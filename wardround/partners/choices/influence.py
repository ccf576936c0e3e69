"""Influence functions: what leaving a site out would change, told from one trained model instead of many.

Koh and Liang, "Understanding black-box predictions via influence functions", ICML 2017; for rewards, Richardson et al.,
"Rewarding high-quality data via influence functions", 2019. A whole hospital is no small change, so each candidate's
absence is one full Newton step with the gradient and the Hessian of those who remain, not the first-order product with
the Hessian of all; the asking site's patients then judge the models that result. The systems are solved by conjugate
gradients with Hessian-vector products, for all candidates at once. Exact for least squares; for logistic regression the
order of the sites is nearly that of leave-one-out. No promise for neural networks, where damping must be raised.
Compares optima: where training stops early, it says what leaving out would change in the end. Needs the study to
minimise the mean loss (FedAvg with one pass, FedSGD), a model that JAX can differentiate twice, and every site's
gradient by itself. Costs one training, one exchange of gradients, and `iterations` rounds of the probe "curvature".
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.answers import Weights
from wardround.core.bounds import Count, NotNegative, Positive
from wardround.core.contracts import Params, Report, Tree
from wardround.core.errors import Diverged, Refusal
from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions, probe
from wardround.partners.probes.curvature import NOBODY, curvature
from wardround.partners.probes.slopes import slopes
from wardround.partners.similarity.held_out import HeldOut, loss_rises

LABEL = "Influence functions"

Numbers = np.ndarray[Any, Any]


def influence(
    *,
    part: HeldOut = "validation",
    weights: Weights = "samples",
    damping: NotNegative = 1e-4,
    iterations: Count = 30,
    tolerance: Positive = 1e-3,
) -> Choice:
    """How much the asking site's loss would rise without a site, by Newton steps from the model of all (quick)."""

    def assess(question: Question) -> Evidence:
        whole = question.train(question.everyone)
        solver = Solver(weights, damping, iterations, tolerance)
        return influence_at(question, whole, part=part, solver=solver)

    system = probe("curvature", weights=weights, damping=damping, tolerance=tolerance)
    system = system._replace(times=f"{iterations} times", most=lambda sites: iterations)
    return Choice(assess, SiteQuestions((probe("slopes"), system, probe("losses", part=part)), "once with all sites"))


class Solver(NamedTuple):
    """How the steps are found: whose rows count how much, and how exactly the systems are solved."""

    weights: Weights = "samples"
    damping: float = 1e-4
    iterations: int = 30
    tolerance: float = 1e-3


def influence_at(
    question: Question, whole: Params, *, part: HeldOut = "validation", solver: Solver | None = None
) -> Evidence:
    """The same at a model that everyone has trained already."""
    solver = solver or Solver()
    try:
        stack, details = models_without_each(question, whole, solver)
        score, error = loss_rises(question, stack, part)
    except Diverged as astray:
        raise Refusal(
            "the model without one of the sites diverged: its numbers are not finite",
            where="choice influence",
            remedy="raise the damping, or choose leave_one_out",
        ) from astray
    except (TypeError, ValueError, NotImplementedError) as failure:
        if "JVP" not in str(failure) and "forward-mode" not in str(failure):
            raise
        raise Refusal(
            "influence functions need second derivatives, which this model does not give (is it from PyTorch?)",
            where="choice influence",
            remedy="choose leave_one_out, or a model written for JAX",
        ) from failure
    score[details.undefined], error[details.undefined] = np.nan, np.nan
    return Evidence(score, error, 0.0, {"part": part, **details.report})


class Steps(NamedTuple):
    """What is to be known about the steps: for which sites there is none, and plain values for the record."""

    undefined: Numbers
    report: Report


def models_without_each(question: Question, whole: Params, solver: Solver) -> tuple[Params, Steps]:
    """One model a site: what the others would have learned without it; in the asking site's row, what all would have.

    The asking site's row moves by the Newton step that leaves nobody out. It is next to nothing where training has
    converged, and where it has not, each candidate is compared with the optimum that its absence would change.
    """
    found = question.probe(slopes(question.model), whole)
    rows = np.asarray(found["rows"], np.float64)
    counts = rows if solver.weights == "samples" else np.minimum(rows, 1.0)
    without = np.full(len(rows), NOBODY, np.int32)
    without[list(question.candidates)] = question.candidates
    wanted = np.isin(np.arange(len(rows)), question.everyone)
    remaining = counts.sum() - np.where(without == NOBODY, 0.0, counts)
    undefined = wanted & (remaining == 0)

    def descent_direction(slopes: Tree) -> Numbers:
        """Minus the gradient over the sites of each column; 0 for columns that nobody asks for."""
        sums = np.asarray(slopes, np.float64) * as_row_factors(counts, slopes)
        left_out = sums * as_row_factors((without != NOBODY).astype(float), slopes)
        share = np.where(wanted & ~undefined, 1 / np.where(remaining > 0, remaining, 1.0), 0.0)
        right: Numbers = ((left_out - sums.sum(axis=0)) * as_row_factors(share, slopes)).astype(np.float32)
        return right

    right = jax.tree.map(descent_direction, found["slopes"])
    system = curvature(question.model, weights=solver.weights, damping=solver.damping, tolerance=solver.tolerance)
    solved = question.probe(system, {"model": whole, "right": right, "without": without}, rounds=solver.iterations)
    steps = jax.tree.map(np.asarray, solved["solution"])
    gain = sum(float(np.vdot(right[name][question.user], steps[name][question.user])) for name in right) / 2
    unsolved = wanted & ((np.asarray(solved["left"]) > solver.tolerance) | np.asarray(solved["level"]))
    report = {
        "iterations": solver.iterations,
        "residual": float(np.asarray(solved["left"])[wanted].max()),
        # Training has converged when this is small beside the scores.
        "training_loss_still_to_gain": gain,
        "unsolved": [question.engine.sites[int(site)] for site in np.flatnonzero(unsolved)],
    }
    stack = jax.tree.map(lambda model, step: np.asarray(model) + step, whole, steps)
    return stack, Steps(undefined, report)


def as_row_factors(factors: Numbers, like: Tree) -> Numbers:
    """One factor a row, in a shape that multiplies the rows of `like`."""
    return factors.reshape(-1, *(1,) * (np.ndim(like) - 1))
