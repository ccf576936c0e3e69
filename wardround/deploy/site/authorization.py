"""A site's home for its request handler: what is approved, what the policy allows, where the rows are, what left.

A withdrawal or another policy counts at once: what was concluded from the home's files holds only as long as none of
them changes, which is looked at for every request.
"""

import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate

from wardround.core.clock import today
from wardround.core.components.recipes import Recipe, hashable
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import stamp
from wardround.data.table import Table
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import (
    Decision,
    check_id,
    decisions,
    offer_path,
    read_decision,
    read_offer,
    store_offer,
    study_of,
)
from wardround.deploy.party.enrolment import refuse_distrusted
from wardround.deploy.party.own_questions import answer_about_itself
from wardround.deploy.party.study_ends import forget_end
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.roles import FILE as ROLES
from wardround.deploy.site.analyses.releases import releases_of
from wardround.deploy.site.approvals import approval_status, refuse_differencing
from wardround.deploy.site.datasets import table_for
from wardround.deploy.site.monitor.watched_rows import watched_table
from wardround.deploy.site.policy import recipe_reasons
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release.gate import ReleaseClaim, ReleaseRecord
from wardround.deploy.site.release.partner_questions import probe_departures, query_departures
from wardround.deploy.site.release.privacy_budget import LEDGER_HEAD, anchor, budget_of
from wardround.deploy.site.release.release_list import Releases, from_json, growth
from wardround.deploy.site.studies.amendment import move_approval
from wardround.deploy.site.studies.data_check import columns_lacking
from wardround.deploy.site.transcript_check import OwnFindings, receive_transcript
from wardround.deploy.trust.audit_log import event_entry, sent_entry
from wardround.deploy.trust.certificates import Key, read_certificate
from wardround.deploy.trust.membership_witness import require_membership
from wardround.deploy.trust.pins import check_roster, pinned_key, read_partners
from wardround.privacy.budget import Budget
from wardround.queries.columns import list_some
from wardround.study.analyses.analysis import analysis_recipe
from wardround.study.file import Named, Study
from wardround.study.methods import numbers_by_site
from wardround.study.sections.votes import model_said

MOST_KNOWN = 1000
MOMENT_NS = 50_000_000
"""A file changed this short a time ago could be changed again without its stamp telling: clocks of disks are coarse."""
T = TypeVar("T")


@dataclass(frozen=True)
class HomeAccess:
    """Fulfils `site_access.SiteAccess` over a home."""

    home: SiteHome
    _known: dict[Hashable, tuple[Hashable, Any]] = field(default_factory=dict, compare=False)
    _left: ReleaseRecord = field(default_factory=ReleaseRecord, compare=False)
    _ids: set[str] = field(default_factory=set, compare=False)
    """Names of studies that were found to be names: they are parts of paths."""

    @property
    def name(self) -> str:
        return self.home.settings.name

    def refuse_distrusted(self) -> None:
        """Refuse everything after the site left its consortium or revoked its coordinator; looked at every time."""
        if self.home.distrust_path.exists():
            refuse_distrusted(self.home)

    def store_offer(
        self, study: str, content: Mapping[str, Any], submitter: str, others: int | None = None, amends: str = ""
    ) -> bool:
        known = offer_path(self.home, study).exists()
        offer = store_offer(self.home, study, content, submitter, others, amends)
        if known:
            forget_end(self.home, study)
        moved = not known and offer.amends and move_approval(self.home, offer.amends, offer)
        return not known and not moved

    def state(self, study: str) -> tuple[Status, str]:
        return self._while_unchanged(study, "state", lambda: self._state(study))

    def _state(self, study: str) -> tuple[Status, str]:
        status, why = approval_status(self.home, study)
        if status is Status.WAITING and read_policy(self.home.policy_path).mismatches == "told":
            why = f"{why}{self._missing_words(study)}"
        if status is not Status.OK:
            return status, why
        self._left.read(self.home.audit_path)
        if self._left.has_withdrawal(study):  # an approval that was put back from a copy
            return Status.WITHDRAWN, f"{self.name} withdrew from it, by its audit log"
        decision = self._decision(study)
        grown = growth(from_json(decision.releases), self._derive(study))
        if not grown:
            return status, why
        some = "; ".join(grown[:3]) + ("; and more" if len(grown) > 3 else "")
        return Status.DENIED, (
            f"{self.name} approved a shorter list of what may leave than its policy and its version of wardround give "
            f"today ({some}); its administrator has to approve the study again"
        )

    def _missing_words(self, study: str) -> str:
        """Columns that the study names and the data lack, as the policy lets the coordinator be told."""
        try:
            missing = columns_lacking(self.home, study_of(read_offer(self.home, study)))
        except Refusal:  # why data cannot be read is the administrator's to know
            return ""
        names = list_some(missing, 20)
        return f"; its data have no column, or none that may be read, called {names}" if missing else ""

    def releases(self, study: str) -> Releases:
        """All that may leave for a study, as it follows from the approved words now."""
        return self._while_unchanged(study, "releases", lambda: self._derive(study))

    def _derive(self, study: str) -> Releases:
        decision, policy = self._decision(study), read_policy(self.home.policy_path)
        return releases_of(study_of(read_offer(self.home, study)), decision.columns, policy.smallest_cell)

    def _decision(self, study: str) -> Decision:
        decision = read_decision(self.home, study)
        assert decision is not None  # else it would not stand
        return decision

    def claims(self, study: str) -> tuple[ReleaseClaim, ...]:
        """The places on a study's list that were used, by the audit log."""
        self._left.read(self.home.audit_path)
        if study and not self._left.has_approval(study):
            raise Refusal(
                "the audit log of this site does not go back to the approval, so what has left is not known",
                where=study,
                remedy="restore the log, or ask for a changed study",
            )
        return self._left.claims(study)

    def check_statistics(self, study: str) -> None:
        """Refuse one more statistic about a dataset of which the policy's number has been told."""
        data, most = self._decision(study).data, read_policy(self.home.policy_path).statistics
        self._left.read(self.home.audit_path)
        used = self._left.statistics(one for one, other in decisions(self.home).items() if other.data == data)
        if used >= most:
            raise Refusal(
                f"all {most} statistics that this site tells about one dataset have been told",
                where=study,
                remedy="ask the site's administrator",
            )

    def approved_study(self, study: str) -> Study:
        self._require_approval(study)
        return study_of(read_offer(self.home, study))

    def table(self, study: Study) -> Table:
        self._require_approval(study_id(study))
        decision = self._decision(study_id(study))
        read, policy = table_for if study.monitor is None else watched_table, read_policy(self.home.policy_path)
        refuse_differencing(self.home, study, decision.data, policy, decision.columns)
        return read(self.home, decision.data, study, policy, decision.columns)

    def folder(self, study: str) -> Path:
        return self.home.folder(self._id(study))

    def allow(self, study: str, recipe: Recipe) -> None:
        """Raise a refusal for what the policy forbids, and for what the approved study does not say."""
        self._while_unchanged(study, recipe, lambda: self._allow(study, recipe))

    def _allow(self, study: str, recipe: Recipe) -> None:
        policy, words = read_policy(self.home.policy_path), self.approved_study(study)
        # Where missing columns are filled in, one that is not read here is nothing that a policy could allow.
        read = self._decision(study).columns if words.data.missing_columns == "fill" else None
        reasons = recipe_reasons(policy, [recipe], read) + departures(words, recipe)
        if reasons:
            raise Refusal(
                f"{self.name} does not allow this: {'; '.join(reasons)}",
                where=study,
                remedy="ask for what was approved, or ask the site to change its policy",
            )

    def smallest_cell(self, study: str) -> int:
        return self._while_unchanged(study, "smallest cell", lambda: read_policy(self.home.policy_path).smallest_cell)

    def smallest_sum(self, study: str) -> int:
        return self._while_unchanged(study, "smallest sum", lambda: read_policy(self.home.policy_path).smallest_sum)

    def words_denied(self, study: str) -> tuple[str, ...]:
        return self._while_unchanged(
            study, "words denied", lambda: tuple(read_policy(self.home.policy_path).words_denied)
        )

    def answer_about_itself(self, topic: str, header: Mapping[str, Any]) -> dict[str, Any]:
        return answer_about_itself(self.home, topic, header)

    def signing_keys(self) -> tuple[Key, Certificate]:
        return self.home.key, read_certificate(self.home.authority_path)

    def roster_keys(
        self, study: str, roster: Sequence[str], certificates: Mapping[str, Any]
    ) -> dict[str, ec.EllipticCurvePublicKey]:
        """The keys of a round's sites, if they are the approved study's and those that are pinned here."""
        own, authority = self.signing_keys()
        require_membership(self.home, roster)
        return check_roster(
            self.approved_study(study),
            roster,
            certificates,
            authority,
            own=(self.name, own.public_key()),
            partners=read_partners(self.home),
        )

    def second_key(self, study: str, roster: Sequence[str], certificate: str) -> ec.EllipticCurvePublicKey:
        """The second server's key, if it is the approved study's and the one that is pinned here."""
        approved, (_, authority) = self.approved_study(study), self.signing_keys()
        name = str(approved.deploy.second)
        require_membership(self.home, [*roster, name])
        partners = read_partners(self.home)
        return pinned_key(approved, name, {name: certificate}, authority, role="second", partners=partners)

    def budget(self) -> Budget:
        return budget_of(self.home)

    def receive_transcript(self, study: str, message: Message) -> tuple[dict[str, Any], OwnFindings]:
        return receive_transcript(self.home, self._id(study), message)

    def record_sent(self, entry: Mapping[str, Any]) -> None:
        debited = (self.home.path / LEDGER_HEAD).exists()
        self.home.log().append(sent_entry({**entry, **(anchor(self.home) if debited else {})}))

    def record_refusal(self, words: Mapping[str, Any]) -> None:
        self.home.log().append(event_entry("refused", **words))

    def has_sent(self, sha256: str) -> bool:
        self._left.read(self.home.audit_path)
        return self._left.has_hash(sha256)

    def _id(self, study: str) -> str:
        if study not in self._ids:
            if len(self._ids) >= MOST_KNOWN:
                self._ids.clear()
            self._ids.add(check_id(study))
        return study

    def _while_unchanged(self, study: str, what: Hashable, look: Callable[[], T]) -> T:
        """What `look` finds, as long as no file changes that decides about this study, and the day is the same."""
        seen, newest = self._stamps(study)
        known = self._known.get((study, what))
        if known is not None and known[0] == seen:
            found: T = known[1]
            return found
        began = time.time_ns()
        found = look()
        if newest < began - MOMENT_NS and self._stamps(study)[0] == seen:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[study, what] = seen, found
        return found

    def _stamps(self, study: str) -> tuple[Hashable, int]:
        """The stamps of offer, policy, pins, persons' keys and all decisions (they count together), and the newest."""
        found, home = [], str(self.home.path)
        for path in (
            f"{home}/offers/{self._id(study)}.json",
            str(self.home.policy_path),
            str(self.home.partners_path),
            str(self.home.restored_path),
            f"{home}/{ROLES}",
            *files_in(f"{home}/decisions"),
        ):
            try:
                found.append((path, *stamp(os.stat(path))))
            except OSError:
                found.append((path, 0, 0, 0, 0))
        return (today(), *found), max(max(one[1], one[2]) for one in found)

    def _require_approval(self, study: str) -> None:
        state, why = approval_status(self.home, study)
        if state is not Status.OK:
            raise Refusal(f"this study is not approved: {why}", where=study, remedy="ask the site's administrator")


def files_in(folder: str) -> list[str]:
    """Their paths, none where there is no such folder yet."""
    try:
        return sorted(f"{folder}/{name}" for name in os.listdir(folder))
    except FileNotFoundError:
        return []


def departures(study: Study, recipe: Recipe) -> list[str]:
    """Where a recipe is not what the approved study says; what a choice of partners asks follows from its name."""
    if recipe.kind == "transform":
        said = [one for one in study.transforms if is_same(study, one, recipe)]
        return [] if said else [f"the study does not include the transform {recipe.name} with these settings"]
    if recipe.kind == "query":
        return query_departures(study, recipe)
    if study.analysis is not None or recipe.kind == "analysis":
        known = study.analysis is not None and recipe == analysis_recipe(study)
        return [] if known else [f"the study does not use the {recipe.kind} {recipe.name} with these settings"]
    if recipe.kind == "private":  # its noise is looked at where it is made
        return [reason for part in recipe.parts for reason in departures(study, part)]
    own = probe_departures(study, recipe) if recipe.kind == "probe" else []
    expected = {"algorithm": study.algorithm, "model": model_said(study), "aggregator": study.aggregator}
    return own + [
        f"the study does not include the {one.kind} {one.name} with these settings"
        for one in (recipe, *recipe.parts)
        if one.kind not in ("probe", "task") and not (one.kind in expected and is_same(study, expected[one.kind], one))
    ]


def is_same(study: Study, said: Named, recipe: Recipe) -> bool:
    """Whether a recipe is what a table of the study says; the asking site's number is added by the coordinator.

    What is said by the sites' names travels as one number a site, in the order of the names that the study lists.
    """
    sites = sorted(study.deploy.sites)
    words = {key: value for key, value in recipe.settings if key != "user"}
    meant = {
        key: numbers_by_site(value, sites) if isinstance(value, dict) else hashable(value)
        for key, value in said.settings.items()
        if key != "user"
    }
    return (said.name, meant) == (recipe.name, words)
