"""A site's eye on the membership log: its copy, how far it has seen it, and what other sites say they have seen.

Beside the copy (membership.jsonl) lies membership.json: when it was last checked, the other sites' last signed
statements, and trouble if there is any. A log that was rolled back or rewritten, and a statement that does not fit, are
trouble: it is kept with its evidence, and no secure sum is answered until an administrator has resolved it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.core.journals.journal import chain_hash
from wardround.core.journals.journal_head import Head
from wardround.deploy.home import PartyHome
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.log_heads import parse_head_json
from wardround.deploy.trust.membership import (
    HEAD_SEAL,
    STATEMENT_SEAL,
    Change,
    Members,
    MembershipLog,
    head_problem,
    parse_lines,
)
from wardround.deploy.trust.pins import Partner, read_partners, write_partner
from wardround.runs.json_files import read_json, write_json

GRACE = timedelta(days=7)
"""For so long a site need not have seen the log, and another site need not have confirmed an entry of it."""
MOST_STATEMENTS = 10_000
RESOLVE = (
    "call the other sites and compare what `wardround site members` shows; when it is settled, begin a new copy with"
    " `wardround site members --reset`"
)


def witness_membership(
    home: PartyHome, words: Mapping[str, Any], coordinator: ec.EllipticCurvePublicKey
) -> dict[str, Any]:
    """Follow the log as the coordinator shows it, and sign how far; or say from where on entries are missing."""
    state = read_state(home)
    if state.get("trouble"):
        raise trouble_refusal(str(state["trouble"]["what"]))
    try:
        head, lines, start = parse_head_json(words["head"]), parse_lines(words["lines"]), int(words["from"])
        statements = [parse_head_json(one) for one in list(words["statements"])[:MOST_STATEMENTS]]
    except (ValueError, KeyError, TypeError) as problem:
        raise Refusal(
            f"this is not a membership log: {problem}", remedy="install the same version of wardround on both sides"
        ) from None
    wrong = head_problem({home.settings.server_name: [coordinator]}, head, HEAD_SEAL)
    if wrong:
        raise Refusal(f"the membership log is not the coordinator's: {wrong}", remedy="find out who sent it")
    copy = MembershipLog(home.membership_path)
    hashes = copy.chain().hashes
    if start > len(hashes) - 1:
        return {"from": len(hashes) - 1}
    new = follow(home, head, lines, start, hashes)
    members = grown(home, copy, new)
    if new:
        copy.append(*new)
    hashes = copy.chain().hashes
    kept = {name: parse_head_json(one) for name, one in state.get("statements", {}).items()}
    kept |= compare_statements(home, members, statements, kept, hashes)
    follow_pins(home, members)
    now = clock.now()
    since = {**state.get("since", {}), **({str(len(hashes) - 1): now.isoformat()} if new else {})}
    statement = copy.head(home.own_name, home.key, STATEMENT_SEAL)
    write_state(
        home,
        {
            "checked": now.isoformat(),
            "statements": {name: asdict(one) for name, one in sorted(kept.items())},
            "since": since,
        },
    )
    return {"statement": asdict(statement)}


def follow(
    home: PartyHome, head: Head, lines: Sequence[tuple[Change, str]], start: int, hashes: Sequence[str]
) -> list[Change]:
    """The changes that are new here; trouble where the log went back, or is not the one that was shown before."""
    seen = len(hashes) - 1
    if head.entries < seen:
        raise trouble(home, f"it was rolled back to {head.entries} entries, and {seen} were shown before", head)
    previous, number, new = hashes[start], start, list[Change]()
    for change, said in lines:
        number += 1
        digest = chain_hash(previous, asdict(change))
        if digest != said:
            raise trouble(home, f"its entry {number} does not follow on what was shown to this site before", head)
        if number <= seen and hashes[number] != digest:
            raise trouble(home, f"its entry {number} is not the one that was shown to this site before", head)
        if number > seen:
            new.append(change)
        previous = digest
    if (number, previous) != (head.entries, head.hash):
        if head.entries <= seen and hashes[head.entries] != head.hash:
            raise trouble(home, f"its entry {head.entries} is not the one that was shown to this site before", head)
        if number == head.entries:
            raise trouble(home, f"its head does not fit its entry {number}", head)
        raise Refusal("the membership log came without all of its entries", remedy="send it again")
    return new


def grown(home: PartyHome, copy: MembershipLog, new: Sequence[Change]) -> Members:
    """The members with the new entries; trouble where the entries cannot be."""
    members = copy.read()
    for change in new:
        problem = members.problem_with(change)
        if problem:
            raise trouble(home, f"it says that {change.name} was {change.kind}, but {problem}", asdict(change))
        members = members.after(change)
    own = members.fingerprints(home.own_name)
    mine = [fingerprint(key) for key in home.own_keys()]
    if own and own[-1] not in mine:
        raise trouble(home, f"it names another key for {home.own_name} itself ({own[-1]})", own[-1])
    for name, pin in read_partners(home).items():
        fingerprints = members.fingerprints(name)
        if fingerprints and pin.fingerprint not in fingerprints:
            raise trouble(
                home, f"it names another key for {name} ({fingerprints[-1]}) than the one pinned here", fingerprints[-1]
            )
    return members


def follow_pins(home: PartyHome, members: Members) -> None:
    """Pins follow a new key, which the log holds only if the pinned one signed it."""
    for name, pin in read_partners(home).items():
        fingerprints = members.fingerprints(name)
        if fingerprints and fingerprints[-1] != pin.fingerprint:
            later = fingerprints[fingerprints.index(pin.fingerprint) + 1 :]
            former = (*pin.former, pin.fingerprint, *later[:-1])
            write_partner(home, Partner(name, later[-1], pin.how, clock.timestamp(), "the old key's signature", former))


def compare_statements(
    home: PartyHome,
    members: Members,
    statements: Sequence[Head],
    kept: Mapping[str, Head],
    hashes: Sequence[str],
) -> dict[str, Head]:
    """What other sites signed that they saw, if it is what this site sees; trouble where it is another story."""
    keys, found = members.public_keys(), dict[str, Head]()
    for one in statements:
        if one.who == home.own_name or one.who not in members.witnesses:
            continue
        wrong = head_problem(keys, one, STATEMENT_SEAL)
        if wrong:
            raise Refusal(f"a statement about the membership log is not valid: {wrong}", remedy="ask for it again")
        if one.entries > len(hashes) - 1:
            raise trouble(
                home, f"{one.who} was shown {one.entries} entries of it, and this site {len(hashes) - 1}", asdict(one)
            )
        if one.entries < 0 or hashes[one.entries] != one.hash:
            raise trouble(
                home, f"{one.who} was shown another entry {one.entries} than this site: two stories", asdict(one)
            )
        before = kept.get(one.who)
        if before is None or one.entries >= before.entries:
            found[one.who] = one
    return found


# ---- before a secure sum ----


def require_membership(home: PartyHome, roster: Sequence[str]) -> None:
    """Refuse a secure sum while the log is in trouble, out of date, unconfirmed, or says that a site is shut out."""
    state = read_state(home)
    if state.get("trouble"):
        raise trouble_refusal(str(state["trouble"]["what"]))
    now = clock.now()
    seen = state.get("checked")
    since = moment(seen) if seen else home.begun_at()
    if now - since > GRACE:
        raise Refusal(
            f"the coordinator has not shown the membership log since {since:%Y-%m-%d}, so nothing is added up with"
            " other sites",
            where="secure sum",
            remedy="ask the coordinator to run the same version of wardround, and reconnect",
        )
    if not seen:
        return
    members = MembershipLog(home.membership_path).read()
    gone = [one for one in roster if one in members.revoked]
    if gone:
        raise Refusal(f"the membership log says that {gone[0]} was revoked", where="secure sum", remedy="leave it out")
    settled = [int(count) for count, when in state.get("since", {}).items() if now - moment(when) > GRACE]
    statements = {name: parse_head_json(one) for name, one in state.get("statements", {}).items()}
    for site in roster:
        confirmed = statements[site].entries if site in statements else 0
        if site != home.own_name and settled and confirmed < max(settled):
            raise Refusal(
                f"{site} has confirmed {confirmed} entries of the membership log, and this site has been shown"
                f" {max(settled)} for more than {GRACE.days} days: they may be told two stories",
                where="secure sum",
                remedy=RESOLVE,
            )


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# ---- trouble ----


def read_state(home: PartyHome) -> dict[str, Any]:
    path = home.membership_state_path
    return read_json(path, "restore it from a backup") if path.exists() else {}


def write_state(home: PartyHome, state: Mapping[str, Any]) -> None:
    write_json(home.membership_state_path, state)


def trouble(home: PartyHome, what: str, evidence: Any) -> Refusal:
    """Write down that the log cannot be believed, with the evidence; gives the refusal to raise."""
    shown = asdict(evidence) if isinstance(evidence, Head) else evidence
    home.log().append(event_entry("membership", what=what, evidence=shown))
    write_state(home, {**read_state(home), "trouble": {"what": what, "evidence": shown, "when": clock.timestamp()}})
    return trouble_refusal(what)


def trouble_refusal(what: str) -> Refusal:
    return Refusal(
        f"the coordinator's membership log cannot be believed: {what}; secure sums are not answered",
        where="membership log",
        remedy=RESOLVE,
    )


def reset_membership(home: PartyHome, *, by: str, why: str) -> None:
    """Begin a new copy after the trouble was resolved; the old copy and what was wrong are kept aside."""
    state = read_state(home)
    home.log().append(event_entry("membership", what="a new copy begins", by=by, why=why))
    aside = home.path / "membership" / clock.timestamp().replace(":", "")
    aside.mkdir(parents=True, exist_ok=True)
    for path in (home.membership_path, home.membership_state_path):
        if path.exists():
            path.replace(aside / path.name)
    if state.get("checked"):
        write_state(home, {"since": {}, "statements": {}})
