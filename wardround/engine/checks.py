"""What every engine refuses in the same words: transforms that cannot hide what they promise, answers past a bound."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Algorithm, Transform
from wardround.core.errors import Diverged, Refusal


def refuse_unseen(transform: Transform, algorithm: Algorithm) -> None:
    """Refuse an aggregator, or an algorithm, that must see what a transform hides."""
    aggregator = algorithm.aggregator
    if algorithm.tailoring is not None and transform.must_be_last:
        raise Refusal(
            "every site trains a part of the model of its own, so its answer must be put in its place before it is "
            "added, and the study hides single answers (secure_sum, two_servers)",
            where="[algorithm], [[transforms]]",
            remedy='let all sites train the same part: selection = "rolling" or "ordered", and one width for all',
        )
    if algorithm.tailoring is not None and transform.init_carried is not None:
        raise Refusal(
            "every site trains another part of the model in each round, so what a transform did not send of one part "
            "(top_k with error feedback) would be added to another",
            where="[algorithm], [[transforms]]",
            remedy="take quantize, eden or a preset of compression instead",
        )
    if transform.sum_only and not aggregator.is_plain_sum:
        raise Refusal(
            "a transform that reveals only the sum of the answers was combined with an aggregator "
            "that must see each of them",
            remedy="choose the aggregator weighted_mean, or leave the transform out",
        )
    if transform.products_only and not aggregator.products:
        raise Refusal(
            "two servers reveal only the distances between the answers and one weighted sum, which is not what this "
            "aggregator or algorithm needs",
            where="[[transforms]] two_servers",
            remedy="choose the aggregator krum or multi_krum, or the algorithm weight_erosion; for a plain mean take "
            "the transform secure_sum instead",
        )


def refuse_few(transform: Transform, sites: int, where: str) -> None:
    """Refuse a round in which too few sites have patients to hide each other."""
    if sites < transform.fewest:
        raise Refusal(
            f"{sites} {'site with patients takes' if sites == 1 else 'sites with patients take'} part, and with fewer "
            f"than {transform.fewest} the answers of single sites would be revealed (secure_sum, two_servers)",
            where=where,
            remedy=f"let at least {transform.fewest} sites take part in every round, or leave the transform out",
        )


def refuse_many(transform: Transform, sites: int, where: str) -> None:
    """Refuse more answers than a sum has room for."""
    if transform.most is not None and sites > transform.most:
        raise Refusal(
            f"{sites} sites take part, and the sum of more than {transform.most} answers would not fit into the bits "
            "of the secure sum",
            where=where,
            remedy="give secure_sum more bits, a smaller bound or fewer fraction_bits, or let fewer sites take part",
        )


def refuse_over_network(transform: Transform, sites: int, second: str | None = None) -> None:
    """Refuse, before a study is even offered, transforms that cannot do what they promise over real sites."""
    if transform.products_only and second is None:
        raise Refusal(
            "two servers that do not trust each other are needed, and the study names no second one",
            where="[[transforms]] two_servers, [deploy]",
            remedy='name a second server, run by another organisation, as second = "NAME" in [deploy]; or take '
            "secure_sum with weighted_mean",
        )
    if second is not None and not transform.products_only:
        raise Refusal(
            f"the study names the second server {second}, and has nothing for it to do",
            where="[deploy] second",
            remedy="add the transform two_servers, or leave second out",
        )
    if sites:
        refuse_few(transform, sites, "[[transforms]]")
        refuse_many(transform, sites, "[[transforms]]")


def divergence(number: int, names: Sequence[str], limit: str = "") -> Diverged:
    """Whose answers cannot be used; `limit` is what the study's transforms ask of an answer."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    whose = f"the answer of {', '.join(names[:5])}{more}"
    if not limit:
        return Diverged(f"training diverged in round {number}: {whose} is not a finite number", number, tuple(names))
    return Diverged(
        f"round {number} cannot be added up: {whose} is not finite or goes past {limit}, so training diverged there or "
        "the bound is too small",
        number,
        tuple(names),
        also="raise the bound in [[transforms]]",
    )


def stop_if_diverged(sites: Sequence[str], astray: Iterable[tuple[int, Any, Any]], limit: str) -> None:
    """Of rounds: who sat where, and whether each answer was finite."""
    for number, site, finite in astray:
        if not finite.all():
            raise divergence(int(number), [sites[int(one)] for one in np.sort(site[~finite])], limit)
