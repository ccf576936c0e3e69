"""Partners by their patients: who sees patients like those of the asking site, column by column.

Each site tells a histogram a column, noised if `epsilon` says so (see `wardround.partners.similarity.histograms`); no
model is trained. The score is minus the mean distance over the columns (0 alike, 1 nothing in common), less what chance
adds to it. The cut is where the true difference is as large as the chance of two such samples: up to there the bias
that another site's patients bring is smaller than the sampling error they take away (Mallows' rule), beyond it larger.
It says nothing about what findings mean: sites with like patients may still need different models, and a model may
serve unlike patients well.
"""

from typing import Any

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.partners.choice import Choice, Evidence, Question, SiteQuestions
from wardround.partners.similarity.histograms import (
    Differences,
    Histograms,
    ask_histograms,
    column_differences,
    count_queries,
    differences,
)
from wardround.partners.similarity.site_map import map_of

LABEL = "Partners by their patients"


def distribution_distance(*, epsilon: NotNegative = 0.0, smallest_cell: Count = 5) -> Choice:
    """Likeness of the patients, from histograms of every column (epsilon 0: no noise, small cells withheld)."""

    def assess(question: Question) -> Evidence:
        told = ask_histograms(question.engine, epsilon=epsilon, smallest_cell=smallest_cell)
        found = differences(told)
        mean, error, chance = (matrix[question.user] for matrix in found.overall)
        candidate = np.isin(np.arange(len(told.sites)), question.candidates)
        if not told.columns:
            mean = np.full(len(told.sites), np.nan)
        known = candidate & np.isfinite(mean)
        cut = -float(chance[known].mean()) if known.any() else 0.0
        return Evidence(
            score=np.where(known, -mean, np.nan),
            error=np.where(known, error, np.nan),
            cut=cut,
            details=details(question, told, found, np.flatnonzero(known)),
        )

    return Choice(assess, SiteQuestions(queries=count_queries(epsilon, smallest_cell)))


def details(question: Question, told: Histograms, found: Differences, known: Any) -> dict[str, Any]:
    """Per partner how much each column differs; and a map of all sites."""
    by_site = {
        told.sites[index]: {"columns": column_differences(told, found, question.user, int(index))} for index in known
    }
    return {"sites": by_site, "map": map_of(told.sites, np.sqrt(np.maximum(found.overall[0], 0.0)), question.everyone)}
