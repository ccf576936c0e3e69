"""The adapted Ndoye factor: partners are ranked by how well what they learned holds for the asking site's patients.

Grimberg, "Incentivized, Privacy-preserving, and Personalized Distributed Machine Learning Framework for Medical Data",
EPFL 2020, section 4.3: the transfer loss of partner i is the loss of its own model on the asking site's rows, less the
cross-validated loss of that model at home, which takes out how large the partner is and how well it can predict at all.
The score is minus the transfer loss. Its standard error comes from both terms: the asking site's patients, on whom the
model is judged, and the partner's, on whom it was cross-validated.

Two exchanges: every site sends its own model and one loss; the asking site is sent all of them. Works before all sites
have answered: who has not has no score. Relies on the partners telling their loss at home honestly: one that is far
above what its model does at the asking site, by the measure of the others, is named in the result. All partners are
judged on the same few patients, so their scores rise and fall together: the ranking is surer than each score.

The cut allows for the asking site's own sampling error: a partner may lose up to `tolerance` standard errors of the
asking site's own cross-validated loss. On the data set triage (2 groups, 4 and 8 hospitals of 200 patients) that keeps
75 and 79 % of the right partners and 29 and 38 % of the wrong ones (tolerance 2: 80 and 91, 42 and 53), and 3 of 4
where all hospitals are alike. Right partners rank above wrong ones in 79 and 81 % of pairs; by the loss on the asking
site's rows alone they do in 83 and 91 % (`gap` in `wardround.partners.similarity.transfer`).
"""

import numpy as np

from wardround.core.bounds import Count, CountOrAll, Momentum, NotNegative, Positive
from wardround.core.contracts import Report, Tree
from wardround.core.errors import Refusal
from wardround.partners.choice import Choice, Evidence, Numbers, Question, SiteQuestions, probe
from wardround.partners.probes.own_models import USUAL, Folds, OwnTraining
from wardround.partners.similarity.transfer import implausible_home_losses, judge_at_sites, own_models_of

LABEL = "Transfer loss (adapted Ndoye factor)"


def ndoye(
    *,
    tolerance: NotNegative = 1.0,
    folds: Folds = USUAL.folds,
    epochs: Count = USUAL.epochs,
    learning_rate: Positive = USUAL.learning_rate,
    batch_size: CountOrAll = USUAL.batch_size,
    decay: NotNegative = USUAL.decay,
    momentum: Momentum = USUAL.momentum,
) -> Choice:
    """How well each partner's own model holds for the asking site's patients, beside how well it does at home."""
    recipe = OwnTraining(folds, epochs, learning_rate, batch_size, decay, momentum)

    def assess(question: Question) -> Evidence:
        own = own_models_of(question, recipe)
        said = judge_at_sites(question, own["models"], (question.user,), recipe)
        user = question.user
        if said["rows"][user] == 0:
            raise Refusal(
                "the asking site has no training rows on which partners could be judged",
                where=f"site {question.engine.sites[user]}",
                remedy="let it learn from some of its patients, or ask for another site",
            )
        partner = own["rows"] > 0
        partner[user] = False
        loss, error, cv, cv_error = (
            np.asarray(values, np.float64)
            for values in (said["loss"][user], said["error"][user], own["cv"], own["cv_error"])
        )
        score = np.where(partner, cv - loss, np.nan)
        # A single row of the asking site tells nothing about its spread.
        doubt = np.hypot(error, cv_error) if said["rows"][user] > 1 else np.full_like(error, np.nan)
        return Evidence(
            score=score,
            error=np.where(partner, doubt, np.nan),
            cut=-tolerance * float(cv_error[user]),
            details={
                **score_details(question, own, loss, score),
                **implausible_details(question, implausible_home_losses(cv, loss, error, own["rows"], user), cv, loss),
            },
        )

    return Choice(assess, SiteQuestions((probe("own_models", **recipe._asdict()), probe("losses"))))


def implausible_details(question: Question, found: dict[int, float], cv: Numbers, loss: Numbers) -> Report:
    """Sites that say of their model what the asking site does not see; nothing where there are none."""
    names, asking = question.engine.sites, question.engine.sites[question.user]
    told = {
        names[
            site
        ]: f"it tells a loss of {cv[site]:.3g} at home, and its model has {loss[site]:.3g} at {asking}, which is "
        f"{far:.1f} standard errors further apart than for the other sites"
        for site, far in sorted(found.items())
    }
    return {"implausible": told} if told else {}


def score_details(question: Question, own: Tree, loss: Numbers, score: Numbers) -> Report:
    """The figures behind the scores, by name."""
    names, user = question.engine.sites, question.user
    ranked = [int(index) for index in np.argsort(-score, kind="stable") if np.isfinite(score[index])]
    learned = [index for index in question.everyone if own["rows"][index] > 0]
    return {
        "asking": names[user],
        "losses": {names[index]: float(loss[index]) for index in sorted(ranked)},
        "cv": {names[index]: float(own["cv"][index]) for index in learned},
        "cv_error": {names[index]: float(own["cv_error"][index]) for index in learned},
        "ranking": [names[index] for index in ranked],
        "unanswered": [names[index] for index in question.candidates if own["rows"][index] == 0],
    }
