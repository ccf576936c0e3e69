"""How well what each site learned holds for the patients of every other: the matrix of transfer losses.

Grimberg, "Incentivized, Privacy-preserving, and Personalized Distributed Machine Learning Framework for Medical Data",
EPFL 2020, section 4.3. Two exchanges for all pairs at once: every site sends its own model with its cross-validated
loss (probe `own_models`), and then every site is sent all models and answers how well each does on its patients (probe
`losses`). Costs as many models down, at each site, as there are sites. Standard errors are those of the patients that
were seen, the models taken as they are.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Model, Params, Tree
from wardround.partners.choice import Numbers, Question
from wardround.partners.probes.losses import losses
from wardround.partners.probes.own_models import USUAL, OwnTraining, own_models

DOUBT = 4.0
"""Standard errors from which a told loss at home is worth a look."""


class Transfer(NamedTuple):
    """For S sites, in the order of the engine's; a site that has not answered, or has fewer than two rows, has NaN."""

    models: Params
    """Every array with a first axis of S: each site's own model."""
    spread: Params
    """The standard errors of their weights."""
    rows: Numbers
    cv: Numbers
    """(S,): the cross-validated loss of every site's own model at home."""
    cv_error: Numbers
    loss: Numbers
    """(j, i): the loss of site i's model at site j; at home the cross-validated one, which chance does not flatter."""
    error: Numbers
    transfer: Numbers
    """(j, i): how much worse site i's model does at site j than at home: loss[j, i] - cv[i]."""
    transfer_error: Numbers
    gap: Numbers
    """(j, i): how much worse site i's model does at site j than j's own: loss[j, i] - cv[j]."""
    gap_error: Numbers
    """Paired over the patients of site j, on whom both models are judged."""


@lru_cache(maxsize=16)
def probes(model: Model, recipe: OwnTraining) -> tuple[Algorithm, Algorithm]:
    """Always the same objects for the same settings, so that compiled programs are found again."""
    return own_models(model, **recipe._asdict()), losses(model)


def own_models_of(question: Question, recipe: OwnTraining = USUAL) -> Tree:
    """The state of `own_models` after everybody was asked, as NumPy arrays."""
    return jax.device_get(question.probe(probes(question.model, recipe)[0], question.params))


def judge_at_sites(question: Question, models: Params, sites: tuple[int, ...], recipe: OwnTraining = USUAL) -> Tree:
    """The state of `losses` after these sites judged the models on their training rows, as NumPy arrays."""
    return jax.device_get(question.probe(probes(question.model, recipe)[1], models, sites))


def transfer_matrix(question: Question, recipe: OwnTraining = USUAL) -> Transfer:
    """Every site's own model at every site."""
    own = own_models_of(question, recipe)
    said = judge_at_sites(question, own["models"], question.everyone, recipe)
    answered = own["rows"] > 0
    both = answered[:, None] & answered[None, :]

    def known(values: Numbers) -> Numbers:
        there = answered.reshape(-1, *(1,) * (values.ndim - 1))
        return np.where(there, np.asarray(values, np.float64), np.nan)

    cv, cv_error = known(own["cv"]), known(own["cv_error"])
    at_home = np.eye(len(cv), dtype=bool)
    loss = np.where(at_home, cv, np.where(both, np.asarray(said["loss"], np.float64), np.nan))
    error = np.where(at_home, cv_error, np.where(both, np.asarray(said["error"], np.float64), np.nan))
    return Transfer(
        models=jax.tree.map(known, own["models"]),
        spread=jax.tree.map(known, own["spread"]),
        rows=np.asarray(own["rows"], np.int64),
        cv=cv,
        cv_error=cv_error,
        loss=loss,
        error=error,
        transfer=loss - cv,
        transfer_error=np.where(at_home, 0 * loss, np.hypot(error, cv_error)),
        gap=loss - cv[:, None],
        gap_error=np.where(at_home, 0 * loss, paired_error(error, cv_error[:, None], correlations(said))),
    )


def implausible_home_losses(cv: Numbers, loss: Numbers, error: Numbers, rows: Numbers, judge: int) -> dict[int, float]:
    """Sites whose told loss at home is far above what the judging site measures of the same models, and how far.

    A choice by transfer losses rewards a partner for doing badly at home, and nobody else can measure that. But others
    measure the model itself: where a site says that its model does much worse at home than at the judge's, and much
    worse by that measure than the other sites' models, by more than `DOUBT` standard errors, it is named. The errors
    are those of the judge's patients, and the same scatter over as many patients as the site told, not its own word.
    """
    told = [site for site in range(len(cv)) if site != judge and rows[site] > 0 and np.isfinite(cv[site])]
    excess = {site: float(cv[site] - loss[site]) for site in told}
    found = {}
    for site in told:
        others = [excess[other] for other in told if other != site]
        if len(others) < 2 or excess[site] <= 0:
            continue
        doubt = float(np.hypot(error[site], error[site] * np.sqrt(rows[judge] / rows[site])))
        above = excess[site] - float(np.median(others))
        if above > DOUBT * doubt:
            found[site] = above / doubt if doubt else np.inf
    return found


def correlations(said: Tree) -> Numbers:
    """(j, i): how the losses of site i's model go with those of j's own, over the patients of site j.

    The own model is judged on rows it learned from here. That flatters its mean, but hardly changes on which patients
    it errs; the rows' losses under cross-validation do not leave the site, so they cannot be paired themselves.
    """
    loss, products = (np.asarray(said[name], np.float64) for name in ("loss", "products"))
    index = np.arange(len(loss))
    covariance = products[index, :, index] - loss * loss[index, index][:, None]
    variance = np.diagonal(products, axis1=1, axis2=2) - np.square(loss)
    scale = np.sqrt(np.maximum(variance * variance[index, index][:, None], 0.0))
    return np.clip(np.where(scale > 0, covariance / np.where(scale > 0, scale, 1.0), 0.0), -1.0, 1.0)


def paired_error(error: Numbers, other: Numbers, correlation: Numbers) -> Numbers:
    """The standard error of a difference of two means over the same rows."""
    return np.sqrt(np.maximum(np.square(error) + np.square(other) - 2 * correlation * error * other, 0.0))
