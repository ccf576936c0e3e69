"""`wardround site trust, partners, members, rotate-key, accept-restore, leave, distrust-coordinator`: who is believed.

Imports are inside the commands, so that help loads nothing heavy.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.output import AsJson, person_name, say
from wardround.cli.party.site_data import HomeFolder, open_home
from wardround.core.errors import Refusal

if TYPE_CHECKING:
    from wardround.deploy.home import SiteHome
    from wardround.study.file import Study

By = Annotated[str | None, typer.Option("--by", help="Your name (default: the logged-in user).")]
Why = Annotated[str, typer.Option("--why", help="The reason, for the record.")]


def trust(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The partner's name.")],
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="The ten words that it read out.")],
    by: By = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Pin a partner's key by the words that it read to you over the phone, at a number you know."""
    from wardround.deploy.trust.pins import trust as pin

    there = open_home(home)
    partner = pin(there, name, words, by=person_name(by, there, "administer"))
    lines = [f"{partner.name} is pinned as compared by {partner.by}: {partner.fingerprint}"]
    say({"partner": name, "fingerprint": partner.fingerprint, "how": partner.how, "by": partner.by}, lines, as_json)


def partners(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List the partners whose keys are pinned here, how they were verified, and this site's own words."""
    from wardround.deploy.trust.fingerprints import fingerprint
    from wardround.deploy.trust.pins import read_partners

    there = open_home(home)
    own, known = fingerprint(there.key.public_key()), read_partners(there)
    lines = [f"{there.own_name} (this site): {own}"]
    for one in known.values():
        how = f"compared by {one.by}" if one.is_compared else "not compared yet"
        lines += [f"{one.name}: {one.fingerprint}", f"  {how}, {one.when[:10]}"]
    facts = [
        {"name": one.name, "fingerprint": one.fingerprint, "compared": one.is_compared, "by": one.by, "when": one.when}
        for one in known.values()
    ]
    if any(not one.is_compared for one in known.values()):
        lines.append("Call those that are not compared yet: wardround site trust NAME WORDS")
    say({"site": there.own_name, "fingerprint": own, "partners": facts}, lines, as_json)


def members(
    reset: Annotated[bool, typer.Option("--reset", help="Begin a new copy of the log, after trouble.")] = False,
    by: By = None,
    why: Why = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the membership log as this site has seen it; exit code 2 if it cannot be believed."""
    from wardround.deploy.trust.membership import MembershipLog
    from wardround.deploy.trust.membership_witness import read_state, reset_membership

    there = open_home(home)
    if reset:
        reset_membership(there, by=person_name(by, there, "administer"), why=why)
    log, state = MembershipLog(there.membership_path), read_state(there)
    chain, found = log.chain(), log.read()
    lines = [f"Membership log: {len(chain.lines)} entries, last hash {chain.hashes[-1][:16]}"]
    lines += [f"  {line.entry.time[:10]} {line.entry.name}: {line.entry.kind}" for line in chain.lines]
    for name in found.witnesses:
        seen = state.get("statements", {}).get(name, {}).get("entries")
        confirmed = "this site" if name == there.own_name else f"confirmed {seen or 0} entries"
        kind = ", second server" if name in found.seconds else ""
        lines.append(f"{name}: {found.fingerprints(name)[-1]} ({confirmed}{kind})")
    trouble = state.get("trouble")
    if trouble:
        lines.append(f"It cannot be believed: {trouble['what']}. Secure sums are not answered.")
    facts = {
        "entries": len(chain.lines),
        "hash": chain.hashes[-1],
        "sites": {name: found.fingerprints(name)[-1] for name in found.sites},
        "seconds": {name: found.fingerprints(name)[-1] for name in sorted(found.seconds - found.revoked)},
        "trouble": trouble,
    }
    say(facts, lines, as_json)
    if trouble:
        raise typer.Exit(2)


def rotate_key(by: By = None, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Make a new key, and a request for it that the present key signs, so that partners can follow."""
    from wardround.deploy.party.enrolment import rotate_key as rotate
    from wardround.deploy.trust.certificates import read_key
    from wardround.deploy.trust.fingerprints import fingerprint

    there = open_home(home)
    waits = there.new_key_path.exists()
    path = rotate(there, by=person_name(by, there, "administer"))
    words = fingerprint(read_key(there.new_key_path).public_key())
    made = "There is already a new key that waits to be signed" if waits else "Made a new key, which waits to be signed"
    lines = [
        f"{made}; the present one is used until then. Words of the new key: {words}",
        f"1. Send {path} to the coordinator: wardround coordinator sign {path.name}",
        "2. With the certificate you get back: wardround site join CERTIFICATE AUTHORITY",
        "3. Restart the site. Partners follow by themselves, since the old key signed the new one.",
    ]
    say({"site": there.own_name, "request": path, "fingerprint": words, "waited": waits}, lines, as_json)


def accept_restore(by: By = None, why: Why = "", home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Go on after the site's files were restored from a backup; studies decided before are not answered any more."""
    from wardround.deploy.trust.restoration import accept_restoration

    there = open_home(home)
    ended = accept_restoration(there, by=person_name(by, there, "administer"), why=why)
    lines = [
        f"{there.own_name} goes on with the log as it is: what was sent and debited since the backup is forgotten.",
        f"Not answered any more: {', '.join(ended) or 'no study was known'}.",
        "Approve no study again that you approved since the backup, and lower epsilon in the policy by what these"
        " promised (wardround site policy set epsilon).",
    ]
    say({"site": there.own_name, "ended": list(ended)}, lines, as_json)


def leave(by: By = None, why: Why = "", home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Leave the consortium at once: nothing is answered any more, also while studies run."""
    from wardround.deploy.party.enrolment import leave as go

    there = open_home(home)
    aside = go(there, by=person_name(by, there, "administer"), why=why)
    lines = [
        f"{there.own_name} has left the consortium; its certificates are in {aside}. What was sent before stays sent.",
        "It may join another one: wardround site join CERTIFICATE AUTHORITY",
    ]
    say({"site": there.own_name, "left": True, "kept": aside}, lines, as_json)


def distrust_coordinator(by: By = None, why: Why = "", home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Revoke the coordinator here: from now on it gets no answer, also while studies run."""
    from wardround.deploy.party.enrolment import distrust_coordinator as distrust

    there = open_home(home)
    distrust(there, by=person_name(by, there, "administer"), why=why)
    lines = [
        f"{there.own_name} no longer answers {there.settings.server_name}. What was sent before stays sent.",
        "Tell the other sites. To join another consortium: wardround site leave, then wardround site join",
    ]
    say({"site": there.own_name, "distrusted": there.settings.server_name}, lines, as_json)


def add_commands(app: typer.Typer) -> None:
    """Put these commands under `wardround site`."""
    app.command()(trust)
    app.command()(partners)
    app.command()(members)
    app.command(name="rotate-key")(rotate_key)
    app.command(name="accept-restore")(accept_restore)
    app.command()(leave)
    app.command(name="distrust-coordinator")(distrust_coordinator)


# ---- what `site approve` asks ----


def ask_to_compare(home: "SiteHome", study: "Study", who: str) -> list[str]:
    """Ask whoever approves whether the words of new partners were compared; gives those that were."""
    from wardround.deploy.trust.pins import review

    seen = review(home, study)
    return [
        name
        for name in (*seen.new, *seen.uncompared)
        if typer.confirm(f"Have you, {who}, compared the words of {name} with it by phone?", default=False)
    ]


def compare(home: "SiteHome", study: "Study", names: list[str], who: str) -> None:
    """Pin as compared what the person who approves has compared."""
    from wardround.deploy.trust.pins import trust as pin

    for name in names:
        if name not in study.deploy.fingerprints:
            raise Refusal(f"the study names no fingerprint of {name}", remedy="compare the partners that it names")
        pin(home, name, study.deploy.fingerprints[name], by=who)
