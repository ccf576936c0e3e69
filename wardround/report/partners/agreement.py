"""What a reader must know before trusting how well two ways of judging partners agree."""

import math

from wardround.partners.similarity.rank_agreement import RankCorrelation

FEWEST = 5
"""Sites below which even a perfect agreement comes about by chance in more than one of 100 cases."""


def note_on(found: RankCorrelation) -> str:
    """Empty where there is nothing to add.

    >>> note_on(RankCorrelation(1.0, 3, 1.0, 1 / 6))
    'Only 3 sites: of the 6 orders there are, one agrees perfectly by chance.'
    """
    if not found.sites:
        return "No site has been judged in both ways."
    if math.isnan(found.spearman):
        why = "Only one site: there is no order." if found.sites == 1 else "One of the two scores all sites alike."
        return f"{why} Nothing can be said about the order."
    if found.sites < FEWEST:
        orders = math.factorial(found.sites)
        return f"Only {found.sites} sites: of the {orders} orders there are, one agrees perfectly by chance."
    return ""
