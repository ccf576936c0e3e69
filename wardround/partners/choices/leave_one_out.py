"""Leave-one-out: train without each candidate in turn and see how much worse the asking site's patients are served.

The ground truth that faster ways are held against (Koh and Liang, "Understanding black-box predictions via influence
functions", ICML 2017; for sites, Richardson et al., "Rewarding high-quality data via influence functions", 2019). Every
training starts from the same model and does the study's rounds. They must be enough to converge: otherwise the
difference between two half-trained models is noise, the more so with small batches. Costs one whole training for every
candidate and one more, and the models travel to the asking site once.
"""

import jax
import numpy as np

from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions, probe
from wardround.partners.similarity.held_out import HeldOut, loss_rises, stack_models

LABEL = "Leave-one-out"


def leave_one_out(*, part: HeldOut = "validation") -> Choice:
    """How much the asking site's loss rises when a site is left out of the training, by training anew each time."""

    def assess(question: Question) -> Evidence:
        # Everyone first: the program that is compiled for most rows serves all the smaller trainings too.
        whole = jax.tree.map(np.asarray, question.train(question.everyone))
        models = [whole] * len(question.engine.sites)
        for site in question.candidates:
            others = [one for one in question.everyone if one != site]
            models[site] = jax.tree.map(np.asarray, question.train(others))
        score, error = loss_rises(question, stack_models(models, len(models)), part)
        details = {"part": part, "trainings": 1 + len(question.candidates), "rounds": question.rounds}
        return Evidence(score, error, 0.0, details)

    trains = "once with all sites, and once without each possible partner"
    return Choice(assess, SiteQuestions((probe("losses", part=part),), trains, trainings=lambda sites: sites))
