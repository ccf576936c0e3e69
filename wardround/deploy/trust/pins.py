"""The keys of partners as a site knows them: pinned, so that no authority can put another key under a known name.

A site's own file, partners.json, holds a fingerprint for each partner and how it came there: compared by telephone, or
taken from the first study that named it (not compared yet). An approved study names its sites and their fingerprints;
one that names another fingerprint for a known partner is refused, and so is a round whose roster is not that of the
study. A pin follows a new key only if the old key signed it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.clock import timestamp
from wardround.core.errors import Refusal
from wardround.deploy.home import PartyHome
from wardround.deploy.trust.audit_log import event_entry
from wardround.deploy.trust.certificates import check_issued, check_name
from wardround.deploy.trust.fingerprints import fingerprint, parse_fingerprint
from wardround.runs.json_files import read_json, write_json
from wardround.study.file import Study

PublicKey = ec.EllipticCurvePublicKey
COMPARED, FIRST_USE = "compared", "first use"
FEWEST = 3
"""Sites below which a sum tells single answers."""
HIDES = ("secure_sum", "two_servers")
"""Transforms that hide an answer among those of the others, and so only if the others are who they should be."""
CALL = "call the site at a number you know, compare the words, and pin them with `wardround site trust NAME WORDS`"


@dataclass(frozen=True)
class Partner:
    """A partner's fingerprint, how it came here, when and by whom; and the fingerprints of the keys it had before."""

    name: str
    fingerprint: str
    how: str
    when: str
    by: str
    former: tuple[str, ...] = ()

    @property
    def is_compared(self) -> bool:
        return self.how == COMPARED

    def has_had(self, words: str) -> bool:
        """Whether these are the words of its key, or of one that it replaced."""
        return words == self.fingerprint or words in self.former


class Review(NamedTuple):
    """The other sites of a study: pinned and compared, pinned and not compared yet, never seen before."""

    compared: tuple[str, ...]
    uncompared: tuple[str, ...]
    new: tuple[str, ...]


# ---- the site's own file ----


def read_partners(home: PartyHome) -> dict[str, Partner]:
    if not home.partners_path.exists():
        return {}
    content = read_json(home.partners_path, "")
    try:
        return {
            name: Partner(**{**words, "name": name, "former": tuple(words.get("former", ()))})
            for name, words in content.items()
        }
    except TypeError:
        raise Refusal(
            "partners.json is damaged", where=str(home.partners_path), remedy="restore it from a backup"
        ) from None


def write_partner(home: PartyHome, partner: Partner) -> None:
    """In the audit log first, then on file."""
    words = {key: value for key, value in asdict(partner).items() if key not in ("name", "when") and value}
    home.log().append(event_entry("partner", partner=partner.name, **words))
    known = read_partners(home) | {partner.name: partner}
    stored = {name: {k: v for k, v in asdict(one).items() if k != "name"} for name, one in sorted(known.items())}
    write_json(home.partners_path, stored)


def trust(home: PartyHome, name: str, said: str | Sequence[str], *, by: str) -> Partner:
    """Pin what was read out over the telephone; it replaces what was pinned before."""
    words = parse_fingerprint(said, where=f"site {check_name(name)}")
    if not by.strip():
        raise Refusal("the name of the person who compared the words is missing", remedy="add --by NAME")
    if name == home.own_name:
        raise Refusal("this is the site's own name", where=name, remedy="name the partner that you called")
    double = [one.name for one in read_partners(home).values() if one.fingerprint == words and one.name != name]
    if double:
        raise Refusal(
            f"these are the words of {double[0]}, and no two sites have the same key",
            where=name,
            remedy="ask both sites for their words again",
        )
    before = read_partners(home).get(name)
    former = before.former if before is not None and before.fingerprint == words else ()
    partner = Partner(name, words, COMPARED, timestamp(), by, former)
    write_partner(home, partner)
    return partner


# ---- at approval ----


def own_fingerprints(home: PartyHome) -> list[str]:
    """Of the site's key, and of the keys it had before."""
    return [fingerprint(key) for key in home.public_keys()[home.own_name]]


def partner_problems(home: PartyHome, study: Study) -> list[str]:
    """What a study says of its sites that cannot be, or is not what is pinned here."""
    own, pinned, approved = home.own_name, read_partners(home), study.deploy.fingerprints
    if not approved and not needs_pins(study):
        return []
    found = []
    unknown = [site for site in study.deploy.sites if site not in approved]
    if unknown or not study.deploy.sites:
        who = ", ".join(unknown) or "its sites"
        found.append(f"it hides answers among those of other sites, but names no fingerprint of {who}")
    if approved and own not in (*study.deploy.sites, study.deploy.second):
        found.append(f"it does not name {own} among its sites")
    if own in approved and approved[own] not in own_fingerprints(home):
        found.append(f"it names another fingerprint for {own} itself ({approved[own]})")
    for site, words in approved.items():
        try:
            check_name(site)
            parse_fingerprint(words)
        except Refusal as refusal:
            found.append(f"its fingerprint of {site!r:.60} cannot be one: {refusal.what}")
        if site != own and site in pinned and not pinned[site].has_had(words):
            found.append(f"it names another fingerprint for {site} ({words}) than the one pinned here")
    for words in sorted({words for words in approved.values() if list(approved.values()).count(words) > 1}):
        same = [site for site in approved if approved[site] == words]
        found.append(f"{' and '.join(same)} have the same key, so they are one site under several names")
    return found


def needs_pins(study: Study) -> bool:
    """Whether its protection rests on who the other sites are."""
    return any(one.name in HIDES for one in study.transforms)


def refuse_other_partners(home: PartyHome, study: Study, where: str) -> None:
    """Refuse a study whose sites are not those that this site knows; nothing is pinned by it."""
    problems = partner_problems(home, study)
    if problems:
        raise Refusal(
            f"the study cannot be approved: {'; '.join(problems)}",
            where=where,
            remedy=f"do not approve it; {CALL}, and deny the study if they differ from the study's",
        )


def review(home: PartyHome, study: Study) -> Review:
    """How well this site knows the others of a study."""
    pinned = read_partners(home)
    others = [site for site in study.deploy.fingerprints if site != home.own_name]
    return Review(
        tuple(site for site in others if site in pinned and pinned[site].is_compared),
        tuple(site for site in others if site in pinned and not pinned[site].is_compared),
        tuple(site for site in others if site not in pinned),
    )


def uncompared_reasons(home: PartyHome, study: Study) -> list[str]:
    """The reasons against a study where the policy wants every partner compared."""
    seen = review(home, study)
    missing = [*seen.uncompared, *seen.new]
    if not missing and not study.deploy.fingerprints:
        return ["the policy wants compared partners, but the study names no fingerprints"]
    return [f"the fingerprint of {', '.join(missing)} was not compared by telephone yet"] if missing else []


def pin_first_use(home: PartyHome, study: Study, *, by: str) -> tuple[str, ...]:
    """Pin the partners that an approved study names for the first time; gives their names."""
    new = review(home, study).new
    for site in new:
        words = parse_fingerprint(study.deploy.fingerprints[site], where=f"site {check_name(site)}")
        write_partner(home, Partner(site, words, FIRST_USE, timestamp(), by))
    return new


# ---- in every round ----


def smallest_roster(study: Study) -> int:
    """The fewest sites of a secure sum: the quorum that was approved, or more than two thirds of a round's sites."""
    sites, participation = len(study.deploy.sites), study.participation
    expected = participation.cohort or (math.ceil(participation.fraction * sites) if participation.fraction else sites)
    expected = min(expected, sites)
    if study.deploy.quorum:
        return max(FEWEST, min(study.deploy.quorum, expected))
    if study.partners is not None or participation.present is not None:  # who is left is found out in the study
        return FEWEST
    return max(FEWEST, 2 * expected // 3 + 1)


def check_roster(
    study: Study,
    roster: Sequence[str],
    certificates: Mapping[str, Any],
    authority: x509.Certificate,
    *,
    own: tuple[str, PublicKey] | None = None,
    partners: Mapping[str, Partner] | None = None,
) -> dict[str, PublicKey]:
    """The long-term keys of a round's sites: those that the approved study pins, and of no stranger.

    `own` is the checking site's name and key; `partners` are its pins, which may have followed a partner's new key.
    """
    pinned = partners or {}
    strange = [name for name in roster if name not in study.deploy.sites]
    if strange:
        raise roster_refusal(f"{strange[0]} is not a site of the approved study")
    if len(set(roster)) != len(roster) or (own is not None and own[0] not in roster):
        raise roster_refusal("the roster names a site twice, or leaves this site out")
    fewest = smallest_roster(study)
    if len(roster) < fewest:
        raise roster_refusal(f"the roster has {len(roster)} sites, and the approved study needs {fewest}")
    keys: dict[str, PublicKey] = {}
    for name in roster:
        pinned_words(study, name, {})
        key = certified_key(certificates, name, authority)
        if own is not None and name == own[0]:
            if key.public_numbers() != own[1].public_numbers():
                raise roster_refusal(f"the round came with another key for {name} itself")
        else:
            expected = pinned_words(study, name, pinned)
            if fingerprint(key) != expected:
                raise roster_refusal(f"the key sent for {name} is not the pinned one ({expected})")
        if any(key.public_numbers() == one.public_numbers() for one in keys.values()):
            raise roster_refusal(f"{name} has the key of another site")
        keys[name] = key
    return keys


def pinned_words(study: Study, name: str, partners: Mapping[str, Partner]) -> str:
    """The words that a party's key must have: those of the approved study, or of a key that replaced that one."""
    approved = study.deploy.fingerprints.get(name)
    if approved is None:
        raise roster_refusal(f"the approved study names no fingerprint of {name}")
    if name not in partners:
        return approved
    if not partners[name].has_had(approved):
        raise roster_refusal(f"the fingerprint of {name} is no longer the one that was approved")
    return partners[name].fingerprint


def pinned_key(
    study: Study,
    name: str,
    certificates: Mapping[str, Any],
    authority: x509.Certificate,
    *,
    role: str,
    partners: Mapping[str, Partner],
) -> PublicKey:
    """The key of one party of an approved study; refused where it is not the pinned one."""
    expected = pinned_words(study, name, partners)
    key = certified_key(certificates, name, authority, role)
    if fingerprint(key) != expected:
        raise roster_refusal(f"the key sent for {name} is not the pinned one ({expected})")
    return key


def certified_key(
    certificates: Mapping[str, Any], name: str, authority: x509.Certificate, role: str = "site"
) -> PublicKey:
    """The key of a party's certificate, which the consortium's authority signed for this name and role."""
    try:
        certificate = x509.load_pem_x509_certificate(str(certificates[name]).encode())
    except (KeyError, ValueError):
        raise roster_refusal(f"the round came without the certificate of {name}") from None
    issued, key = check_issued(certificate, authority, where=f"{role} {name}"), certificate.public_key()
    if (issued.name, issued.role) != (name, role) or not isinstance(key, ec.EllipticCurvePublicKey):
        raise roster_refusal(f"the certificate sent for {name} belongs to someone else")
    return key


def roster_refusal(what: str) -> Refusal:
    return Refusal(
        f"this round is not among the approved sites: {what}",
        where="secure sum",
        remedy="ask the coordinator who takes part, and compare fingerprints with the other sites by telephone",
    )
