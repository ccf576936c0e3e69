"""What the second server's organisation decides about a study, and what it is told before it decides.

It holds no data, so there is no policy; it lends its name to a promise, so a person decides. An approval is for exactly
the words of one study, in which all sites' keys and its own stand by their fingerprints.
"""

from datetime import date

from wardround.core import clock
from wardround.core.errors import Refusal
from wardround.deploy.party.decisions import (
    Decision,
    Offer,
    check_person,
    read_decision,
    read_offer,
    record_decision,
    refuse_after,
    refuse_own,
    study_of,
)
from wardround.deploy.person_keys import PersonKey
from wardround.deploy.protocol.robust_choice import bound_of, rule_of, transform_recipes
from wardround.deploy.second.home import SecondHome
from wardround.deploy.trust.fingerprints import fingerprint
from wardround.deploy.trust.organisations import has_two_servers, is_same_organisation
from wardround.deploy.trust.pins import partner_problems, pin_first_use
from wardround.study.file import Study


def approve_as_second(
    home: SecondHome, study: str, *, by: str, until: date | None = None, key: PersonKey | None = None
) -> Decision:
    """Agree to be the second server of a study; refused where it could not keep what the sites are promised."""
    offer = read_offer(home, study)
    refuse_after(read_decision(home, study), study, ("withdrawn",))
    refuse_own(offer, by, "of this organisation")
    reasons = reasons_against(home, study_of(offer))
    if reasons:
        raise Refusal(
            f"this server cannot be the second one of this study: {'; '.join(reasons)}",
            where=study,
            remedy="deny it, and ask for a changed study",
        )
    last = str(until) if until else ""
    person = check_person(by)
    pin_first_use(home, study_of(offer), by=person)
    return record_decision(home, Decision(study, offer.hash, "approved", person, clock.timestamp(), until=last), key)


def reasons_against(home: SecondHome, study: Study) -> list[str]:
    """Why it must not serve; none: it may."""
    deploy, own = study.deploy, home.settings
    if deploy.second != own.name or not has_two_servers(study):
        return [f"it does not name {own.name} as its second server"]
    reasons = []
    if deploy.fingerprints.get(own.name) != fingerprint(home.key.public_key()):
        reasons.append(f"the fingerprint of {own.name} in it is not that of this server's key")
    missing = [site for site in deploy.sites if site not in deploy.fingerprints]
    if missing or not deploy.sites:
        reasons.append(f"it does not say which keys its sites have: {', '.join(missing) or 'it names no site'}")
    if not is_same_organisation(deploy.second_organisation, own.organisation):
        reasons.append(f"it says that this server is run by '{deploy.second_organisation}'")
    reasons += partner_problems(home, study) if not reasons else []
    try:
        bound_of(transform_recipes(study))
        rule_of(study, sorted(deploy.sites))
    except Refusal as refusal:
        reasons.append(refusal.what)
    return reasons


def describe_for_second(home: SecondHome, offer: Offer) -> list[str]:
    """What whoever decides should know."""
    study = study_of(offer)
    deploy, rounds = study.deploy, study.study.rounds
    lines = [
        f"{offer.id}, submitted by {offer.submitter or 'an unnamed submitter'}. Purpose: "
        f"{study.study.purpose or 'none stated'}.",
        f"Sites: {', '.join(deploy.sites) or 'none named'}. Compare their keys with them by phone:",
        *(f"  {name}: {text}" for name, text in sorted(deploy.fingerprints.items())),
        f"In each of {rounds} rounds {deploy.second} gets, sealed, the seed of every site's mask, and from the "
        "coordinator masked updates; it learns the distances between the updates and how many patients each site has, "
        f"chooses by the study's own rule ({study.aggregator.name}, {study.algorithm.name}), and opens one sum.",
        "The sites are promised that this server keeps the seeds to itself. With them the coordinator could read every "
        "update; and this server could, with what a site is sent.",
    ]
    if deploy.same_organisation_for_testing:
        lines.append("Warning: FOR TESTING, the same organisation runs both servers: nothing is hidden.")
    return [*lines, *(f"Against it: {reason}" for reason in reasons_against(home, study))]
