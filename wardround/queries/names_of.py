"""Names of categories that are not rare at a site, for histograms over the same cells everywhere.

With noise a name is told only when its noisy count is above 1 + ln(1 / 2 delta) / epsilon (Korolova et al. 2009).
"""

import math
from collections.abc import Sequence

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.codes.json_arrays import pack, unpack
from wardround.core.components.recipes import recorded
from wardround.core.components.terms import Settings, Terms
from wardround.core.contracts import Message, Query, Report, Site
from wardround.privacy.discrete_laplace import noise_source
from wardround.queries.values import words_of

MOST_NAMES = 50
DELTA = 1e-6


def epsilon_spent(settings: Settings, message: Message) -> float:
    """A patient is in one cell of every column, so each column costs."""
    return float(settings["epsilon"]) * len(unpack(message.arrays["columns"]))


TERMS = Terms(
    "the names of categories that at least {smallest_cell} of your training patients have",
    lambda of: MOST_NAMES * of.columns,
    rows="training",
    spends=epsilon_spent,
    in_part=("epsilon",),
)


@recorded("query", TERMS)
def names_of(*, epsilon: NotNegative, smallest_cell: Count, seed: int | None) -> Query:
    """Names of the categories that are not rare at a site; of a column with very many values, none."""
    least = max(float(smallest_cell), 1 + math.log(1 / (2 * DELTA)) / epsilon if epsilon else 0.0)

    def ask(message: Message, site: Site) -> Message:
        noise = noise_source(epsilon, seed, f"names {site.name}")
        told = {}
        for name in unpack(message.arrays["columns"]):
            values, times = np.unique(words_of(site, name), return_counts=True)
            kept = [str(v) for v, n in zip(values, times, strict=True) if int(n) + noise() >= least]
            told[name] = kept if len(kept) <= MOST_NAMES else []
        return Message({"names": pack(told)})

    def combine(answers: Sequence[Message]) -> Report:
        told = [unpack(answer.arrays["names"]) for answer in answers]
        return {"names": {name: sorted({label for one in told for label in one[name]}) for name in told[0]}}

    return Query(ask, combine)
