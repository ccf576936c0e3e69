"""Data that were corrected after a study was answered: what it is told is made anew, by the administrator's decision.

A site gives the same bytes for the same question, so a corrected table would never be seen. Nothing is made anew by
itself: whoever compares both answers sees what was corrected. So somebody at the site decides it, it is in the audit
log, the new statistics count beside the old ones, and it is too late when training has begun or noise was charged.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import (
    Decision,
    check_person,
    read_decision,
    read_offer,
    record_decision,
    refuse_own,
    study_of,
)
from wardround.deploy.person_keys import PersonKey
from wardround.deploy.site.approvals import (
    columns_read,
    derive_releases,
    reasons_against,
    refuse_statistics,
    refuse_stranger,
)
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release import release_list
from wardround.deploy.site.release.gate import REREAD, ReleaseRecord
from wardround.deploy.trust.audit_log import event_entry
from wardround.runs.json_files import write_json

BEFORE_TRAINING = ("settle", "prepare", "agree", "refusal")
"""Kinds of answers, beside statistics, that a study gets before its first round."""
MARK = "reread.json"


def read_anew(home: SiteHome, study: str, *, by: str, key: PersonKey | None = None) -> Decision:
    """Let a study that is approved and has not trained yet ask again, about the data as they are now."""
    offer, before = read_offer(home, study), read_decision(home, study)
    if before is None or before.state != "approved":
        state = before.state if before else "not decided yet"
        raise Refusal(f"this study is {state}", where=study, remedy="approve it: it then reads the data as they are")
    refuse_own(offer, by, "at this site")
    refuse_stranger(home, study)
    words, policy = study_of(offer), read_policy(home.policy_path)
    if words.privacy is not None:
        raise Refusal(
            "under [privacy] every answer was charged, and another one would be told without being charged",
            where=study,
            remedy="ask for a changed study (another seed is enough)",
        )
    record = ReleaseRecord()
    record.read(home.audit_path)
    late = {one.kind for one in record.claims(study) if not is_before_training(one.kind)}
    if late:
        raise Refusal(
            f"this study has been given answers that follow from the data ({', '.join(sorted(late)[:3])})",
            where=study,
            remedy="ask for a changed study (another seed is enough)",
        )
    reasons = reasons_against(home, offer, before.data)
    if reasons:
        raise Refusal(
            f"the policy of this site does not allow it: {'; '.join(reasons)}", where=study, remedy="deny the study"
        )
    columns = columns_read(home, before.data, words, policy)
    listed = derive_releases(home, words, columns, policy)
    refuse_statistics(home, before.data, listed, policy, "")  # what it was told before counts, too
    home.log().append(event_entry(REREAD, study=study, by=check_person(by)))
    put_aside(home.folder(study))
    return record_decision(
        home,
        replace(
            before,
            by=check_person(by),
            when=clock.timestamp(),
            why="the data were corrected",
            columns=columns,
            releases=release_list.to_json(listed),
            releases_hash=release_list.hash_of(listed),
        ),
        key,
    )


def is_before_training(kind: str) -> bool:
    return kind.startswith("query/") or kind in BEFORE_TRAINING


def put_aside(folder: Path) -> None:
    """Keep what was said before, out of the way of what will be said; a running process notices the mark."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"before-{clock.timestamp('microseconds').replace(':', '')}"
    aside.mkdir()
    for name in ("replies", "settle.json", "prepare.json", "agree.json"):
        with suppress(FileNotFoundError):
            (folder / name).replace(aside / name)
    write_json(folder / MARK, {"when": clock.timestamp("microseconds")})


def correction_of(folder: Path) -> int:
    """What changes when the data are to be read anew."""
    try:
        return (folder / MARK).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
