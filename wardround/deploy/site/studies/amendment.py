"""A study that is asked for in the place of an approved one: the approval moves where nothing changed for this site.

It moves only while nothing has left for the old study, and the old one is withdrawn with it: whatever a coordinator
amends, and how often, a site gives no answer more than its administrator approved. What may differ is who else is left
(fewer sites, with the keys they had), how many must answer, and how long they have, and this only where answers are not
hidden among those of others and noise is not shared with them. All else is a new question.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import (
    Decision,
    Offer,
    decision_path,
    offer_path,
    read_decision,
    read_offer,
    record_decision,
    refuse_own,
    study_of,
)
from wardround.deploy.protocol.status import Status
from wardround.deploy.roles import read_roles
from wardround.deploy.site.approvals import approval_status, columns_read, derive_releases, reasons_against
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release import release_list
from wardround.deploy.site.release.gate import ReleaseRecord
from wardround.deploy.trust.pins import needs_pins
from wardround.study.file import Study

FREE = ("quorum", "deadline")
"""Words of [deploy] that say how the coordinator waits."""


def changes(site: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The tables and keys in which two studies differ and which concern this site."""
    found = []
    for table in sorted({*old, *new} - {"deploy", "participation"}):
        before, after = old.get(table), new.get(table)
        if before != after:
            keys = differing_keys(before, after)
            found += [f"[{table}] {key}" for key in keys] or [f"[{table}]"]
    found += deploy_changes(site, old.get("deploy") or {}, new.get("deploy") or {})
    if presence_of(site, old) != presence_of(site, new):
        found.append("[participation]")
    return found


def differing_keys(before: Any, after: Any) -> list[str]:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return []
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def deploy_changes(site: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = list(old.get("sites") or ()), list(new.get("sites") or ())
    found = []
    if site not in after or not set(after) <= set(before):
        found.append("[deploy] sites")
    keys, kept = old.get("fingerprints") or {}, new.get("fingerprints") or {}
    if any(keys.get(name) != words for name, words in kept.items()):
        found.append("[deploy] fingerprints")
    ours = {"sites", "fingerprints", *FREE}
    return found + [f"[deploy] {key}" for key in differing_keys(old, new) if key not in ours]


def presence_of(site: str, study: Mapping[str, Any]) -> Any:
    """What [participation] says about this site and about all."""
    words = dict(study.get("participation") or {})
    present = words.pop("present", None)
    return words, present.get(site) if isinstance(present, Mapping) else None


def is_shared(study: Study) -> bool:
    """Whether it matters to a site who the others are: its answer hides among theirs, or its noise is a part of all."""
    return needs_pins(study) or (study.privacy is not None and study.privacy.level == "site")


def reasons_to_ask(home: SiteHome, old: str, offer: Offer) -> list[str]:
    """Why an amended study needs a decision of its own; none: the approval of the old one may move to it."""
    before, study = read_decision(home, old), study_of(offer)
    known = offer_path(home, old).exists() and old != offer.id
    if not known or before is None or approval_status(home, old)[0] is not Status.OK:
        return ["the study that it amends is not approved"]
    found = changes(home.own_name, read_offer(home, old).study, offer.study)
    if found:
        return [f"it says something else: {', '.join(found[:6])}{' and more' if len(found) > 6 else ''}"]
    roles = read_roles(home.path)
    signed = roles is not None and bool(roles.keys)
    if signed or is_shared(study):
        why = "whoever approves signs it" if signed else "answers hide among those of all sites, and these are others"
        return [why]
    if has_left(home, old):
        return ["answers to the study that it amends have been sent"]
    try:
        refuse_own(offer, before.by, "at this site")
        columns = columns_read(home, before.data, study, read_policy(home.policy_path))
        listed = derive_releases(home, study, columns, read_policy(home.policy_path))
        more = release_list.growth(release_list.from_json(before.releases), listed)
        against = reasons_against(home, offer, before.data)
    except Refusal as refusal:
        return [str(refusal)]
    return [*against, *(["more would leave than was approved"] if more or columns != before.columns else [])]


def has_left(home: SiteHome, study: str) -> bool:
    """Whether anything but a refusal was ever sent for a study, by the audit log."""
    record = ReleaseRecord()
    record.read(home.audit_path)
    return not record.has_approval(study) or any(one.kind != "refusal" for one in record.claims(study))


def move_approval(home: SiteHome, old: str, offer: Offer) -> Decision | None:
    """Approve an amended study as the old one was, which is withdrawn; none where somebody has to decide anew."""
    if decision_path(home, offer.id).exists() or reasons_to_ask(home, old, offer):
        return None
    before = read_decision(home, old)
    assert before is not None  # else there were a reason
    gone = {"state": "withdrawn", "why": f"replaced by {offer.id}", "epsilon": 0.0, "when": clock.timestamp()}
    record_decision(home, Decision(**{**asdict(before), **gone}))
    moved = {"id": offer.id, "hash": offer.hash, "when": clock.timestamp(), "why": f"moved from {old}"}
    return record_decision(home, Decision(**{**asdict(before), **moved}))
