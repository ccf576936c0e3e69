"""When a site's administrator may approve a study, and whether it may ask anything now.

The policy is asked when a study is approved and again for every request. An approval lists all that may leave.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import date

import pandas as pd

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import (
    Decision,
    Offer,
    check_person,
    current_login,
    decision_status,
    decisions,
    read_decision,
    read_offer,
    record_decision,
    refuse_after,
    refuse_own,
    study_of,
)
from wardround.deploy.person_keys import PersonKey
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.analyses.releases import releases_of
from wardround.deploy.site.datasets import (
    find,
    frame_of,
    names_in,
    patient_reasons,
    read_datasets,
    required_columns,
    summarize_table,
)
from wardround.deploy.site.monitor.approval import monitor_reasons
from wardround.deploy.site.monitor.watched_rows import study_columns
from wardround.deploy.site.policy import Policy, decide, epsilon_of
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release import release_list
from wardround.deploy.site.release.cleaning_review import cleaning_reasons
from wardround.deploy.site.release.gate import ReleaseRecord
from wardround.deploy.site.release.release_list import Releases
from wardround.deploy.trust.pins import partner_problems, pin_first_use, refuse_other_partners, uncompared_reasons
from wardround.deploy.trust.restoration import refuse_restored, restored_status
from wardround.study.file import Study


def promised_epsilon(home: SiteHome, *, beside: str = "") -> float:
    """Epsilon of every study that was ever approved; nothing is given back after a withdrawal."""
    return sum(decision.epsilon for study, decision in decisions(home).items() if study != beside)


def reasons_against(home: SiteHome, offer: Offer, data: str | None, *, today: date | None = None) -> list[str]:
    """What the policy has against a study on these data; none: it may be approved."""
    policy, study = read_policy(home.policy_path), study_of(offer)
    name = find(home, data)
    frame = frame_of(name, read_datasets(home)[name], study)
    columns = dict.fromkeys(frame.columns)
    read, withheld = study_columns(home, study, policy, columns)
    # A monitor cannot do without a column that its model needs; other studies go on with those that they may read.
    names = dict.fromkeys([*read, *(withheld if study.monitor is not None else ()), *required_columns(study)])
    reasons = decide(policy, offer.study, names, spent=promised_epsilon(home, beside=offer.id), today=today)
    reasons += partner_problems(home, study)
    reasons += uncompared_reasons(home, study) if policy.partners == "compared" else []
    missing = [column for column in required_columns(study) if column not in columns]
    reasons += [f"the dataset {name} has no column '{column}', which the study needs" for column in missing]
    if not set(read) - {*names_in(study.data.settings.get("target")), *names_in(study.data.time)}:
        reasons.append(f"the policy allows no input column of the dataset {name}")
    reasons += patient_reasons(study, read_datasets(home)[name], frame)
    reasons += [] if missing else differencing_reasons(home, study, name, policy, frame, read)
    return reasons or monitor_reasons(home, study, name, policy)


def differencing_reasons(
    home: SiteHome, study: Study, name: str, policy: Policy, frame: pd.DataFrame, read: Collection[str]
) -> list[str]:
    """Why what the study does to values would single out patients, alone or beside studies that were told before."""
    if study.monitor is not None:
        return []
    told = studies_told(home, name, beside=study_id(study))
    return cleaning_reasons(study, told, frame, read, policy.smallest_cell, policy.smallest_difference)


def refuse_differencing(home: SiteHome, study: Study, name: str, policy: Policy, approved: Collection[str]) -> None:
    """The same when the rows are read: they may be others than at the approval."""
    said = study.data.cleaning
    others = studies_told(home, name, beside=study_id(study)).values()
    same = all(one.data.cleaning == said and one.data.survival == study.data.survival for one, _ in others)
    if study.monitor is not None or (not said.recode and same):
        return  # nothing that the rows could decide
    frame = frame_of(name, read_datasets(home)[find(home, name)], study)
    read = [column for column in study_columns(home, study, policy, frame.columns).read if column in approved]
    reasons = differencing_reasons(home, study, name, policy, frame, read)
    if reasons:
        raise Refusal("; ".join(reasons), where=name, remedy="withdraw the study, or ask for a changed one")


def studies_told(home: SiteHome, data: str, *, beside: str) -> dict[str, tuple[Study, Collection[str]]]:
    """Studies that the site ever approved on a dataset and that may have been told of its rows, but one.

    Each with the columns that it reads.
    """
    known = {one: found for one, found in decisions(home).items() if found.data == data and one != beside}
    found: dict[str, tuple[Study, Collection[str]]] = {}
    for one, decision in known.items():
        with suppress(Refusal):  # an offer of an old version, or one that was taken away, is compared with nothing
            study = study_of(read_offer(home, one))
            if study.monitor is None:
                found[one] = study, decision.columns
    return found


def approve(
    home: SiteHome,
    study: str,
    *,
    by: str,
    data: str | None = None,
    until: date | None = None,
    today: date | None = None,
    key: PersonKey | None = None,
) -> Decision:
    """Allow a study on registered data; refused where the policy forbids it, or where it is one's own."""
    offer, before = read_offer(home, study), read_decision(home, study)
    refuse_after(before, study, ("withdrawn",))
    refuse_restored(home, study)
    if before is not None and before.state == "approved":
        refuse_unlogged(home, study)
    refuse_own(offer, by, "at this site")
    refuse_stranger(home, study)
    refuse_other_partners(home, study_of(offer), study)
    reasons = reasons_against(home, offer, data, today=today)
    policy = read_policy(home.policy_path)
    if until is not None and policy.expires is not None and until > policy.expires:
        reasons.append(f"the policy expires on {policy.expires}, before {until}")
    if reasons:
        raise Refusal(
            f"the policy of this site does not allow it: {'; '.join(reasons)}",
            where=f"{study}, {home.policy_path}",
            remedy="deny the study, ask for a changed one, or change the policy with `wardround site policy set`",
        )
    last, name = until or policy.expires, find(home, data)
    columns = columns_read(home, name, study_of(offer), policy)
    listed = derive_releases(home, study_of(offer), columns, policy)
    refuse_statistics(home, name, listed, policy, study)
    pin_first_use(home, study_of(offer), by=check_person(by))
    return record_decision(
        home,
        Decision(
            *(study, offer.hash, "approved", check_person(by), clock.timestamp()),
            data=name,
            until=str(last) if last else "",
            epsilon=epsilon_of(offer.study) or 0.0,
            columns=columns,
            releases=release_list.to_json(listed),
            releases_hash=release_list.hash_of(listed),
        ),
        key,
    )


def refuse_stranger(home: SiteHome, study: str) -> None:
    """Refuse somebody whose login the policy does not name, where it names any."""
    allowed, login = read_policy(home.policy_path).approvers, current_login()
    if allowed and login not in allowed:
        raise Refusal(
            f"{login} may not approve studies here; the policy names {', '.join(allowed)}",
            where=study,
            remedy="ask one of them, each with a login of their own",
        )


def columns_read(home: SiteHome, name: str, study: Study, policy: Policy) -> dict[str, str]:
    """The columns that the study reads of a dataset, each with its kind."""
    kinds = summarize_table(frame_of(name, read_datasets(home)[name], study)).kinds
    return {column: kinds[column] for column in study_columns(home, study, policy, kinds).read}


def derive_releases(home: SiteHome, study: Study, columns: Mapping[str, str], policy: Policy) -> Releases:
    """All that would leave; a study of which that cannot be told is not approved."""
    try:
        return releases_of(study, columns, policy.smallest_cell)
    except Refusal as refusal:
        raise Refusal(
            f"what would leave cannot be worked out: {refusal.what}", where=home.settings.name, remedy=refusal.remedy
        ) from None


def statistics_used(home: SiteHome, data: str, *, beside: str = "") -> int:
    """Answers to queries about a dataset that all studies, or all but one, were given."""
    record = ReleaseRecord()
    record.read(home.audit_path)
    return record.statistics(study for study, one in decisions(home).items() if one.data == data and study != beside)


def refuse_unlogged(home: SiteHome, study: str) -> None:
    """Refuse to approve again what was approved in a log that is gone: it would be answered from the beginning."""
    record = ReleaseRecord()
    record.read(home.audit_path)
    if not record.has_approval(study):
        raise Refusal(
            "the audit log of this site does not go back to the earlier approval, so what has left is not known",
            where=study,
            remedy="restore the log, or ask for a changed study",
        )


def refuse_statistics(home: SiteHome, data: str, listed: Releases, policy: Policy, study: str) -> None:
    used, asked = statistics_used(home, data, beside=study), release_list.most_statistics(listed)
    if used + asked > policy.statistics:
        raise Refusal(
            f"the study asks for up to {asked} statistics about {data}, and {used} of the {policy.statistics} that the "
            "policy allows for all studies together have been told",
            where=f"{study}, {home.policy_path}",
            remedy="deny the study, or raise statistics with `wardround site policy set`",
        )


# ---- what counts now ----


def approval_status(home: SiteHome, study: str, *, today: date | None = None) -> tuple[Status, str]:
    """Whether this study may ask anything now, and if not why."""
    halted = restored_status(home, study)
    if halted is not None:
        return halted
    now = today or clock.today()
    status, why = decision_status(home, study, today=now)
    if status is not Status.OK:
        return status, why
    offer, decision = read_offer(home, study), read_decision(home, study)
    assert decision is not None  # else it would not be approved
    if not decision.until:
        return Status.DENIED, f"the approval of {home.settings.name} expired on an unknown day"
    policy = read_policy(home.policy_path)
    # Every column that the study reads counts, not only those that it cannot do without.
    columns = dict.fromkeys([*decision.columns, *required_columns(study_of(offer))])
    reasons = decide(policy, offer.study, columns, spent=promised_epsilon(home, beside=study), today=now)
    reasons += partner_problems(home, study_of(offer))
    reasons += uncompared_reasons(home, study_of(offer)) if policy.partners == "compared" else []
    return (
        (Status.DENIED, f"the policy of {home.settings.name} no longer allows it: {'; '.join(reasons)}")
        if reasons
        else (Status.OK, "")
    )
