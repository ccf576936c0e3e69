"""[deploy]: how a study goes over real sites."""

from typing import Literal

from pydantic import Field

from wardround.study.sections.section import Section


class DeploySection(Section):
    """How rounds go over real sites: how many must answer, and how long each is given."""

    sites: list[str] = Field(default_factory=list)
    """Who takes part; by default every site that has a certificate, written here when the study is queued."""
    fingerprints: dict[str, str] = Field(default_factory=dict)
    """The words of each party's key, written here when the study is queued; sites compare them with their own pins."""
    quorum: int | None = Field(default=None, ge=1)
    """Sites that must answer in a round; by default all, and the study waits for those that are away."""
    deadline: float = Field(default=60.0, gt=0)
    """Seconds that a site is given at least; slow sites are given more, by what they took before, up to ten times."""
    transcript: Literal["sums", "hashes"] | None = None
    """What is kept to replay the training: every round's sum, or hashes only; by default sums up to 64 MB in all."""
    second: str | None = None
    """The second server, run by another organisation, for the transform two_servers."""
    second_organisation: str = ""
    """Who runs it; filled in when the study is queued."""
    same_organisation_for_testing: bool = False
    """Both servers are run by the same organisation, so nothing is hidden: for trying it out."""
