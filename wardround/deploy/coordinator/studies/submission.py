"""A study as it was submitted, and how long and for whom it waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wardround.core.errors import Refusal
from wardround.deploy.coordinator import privacy_plan
from wardround.deploy.coordinator.gather import WaitPolicy
from wardround.deploy.protocol.requests import OfferStudy
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.trust.pins import needs_pins, smallest_roster
from wardround.study.file import Study


@dataclass(frozen=True)
class Submission:
    """A study as it was submitted: to which sites, by whom; `known_rows` are training rows told in studies before."""

    study: Study
    sites: tuple[str, ...]
    submitter: str = ""
    known_rows: Mapping[str, int] = field(default_factory=dict)
    amends: str = ""
    """The study in whose place it is asked for, if any."""

    @property
    def id(self) -> str:
        return study_id(self.study)

    @property
    def parties(self) -> tuple[str, ...]:
        """All who are asked to approve it: its sites, and the second server where there is one."""
        second = self.study.deploy.second
        return (*sorted(self.sites), *([second] if second else []))

    def offer_to(self, site: str) -> OfferStudy:
        """With the rows of the other sites together, which tells none of them unless there are two."""
        others = [one for one in self.sites if one != site]
        known = site in self.sites and all(one in self.known_rows for one in others)
        return self.offer(sum(self.known_rows[one] for one in others) if known else None)

    def offer(self, others: int | None = None) -> OfferStudy:
        return OfferStudy(self.study.model_dump(mode="json"), self.submitter, others, self.amends)


def policy_of(submission: Submission) -> WaitPolicy:
    study, sites = submission.study, len(submission.sites)
    quorum = privacy_plan.quorum_of(study, sites)
    if quorum > sites:
        raise Refusal(
            f"{quorum} sites must answer each round, but only {sites} take part",
            where="[deploy] quorum",
            remedy="lower the quorum",
        )
    # Sites refuse a sum of fewer than they approved, so there is no use in asking.
    fewest = max(privacy_plan.fewest_of(study, sites), smallest_roster(study) if needs_pins(study) else 1)
    return WaitPolicy(quorum, floor=study.deploy.deadline, fewest=fewest)
