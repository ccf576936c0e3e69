"""What the coordinator is told of a site that was admitted, or whose request waits for the authority."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wardround.deploy.coordinator.consortium import AdmittedSite
    from wardround.deploy.home import CoordinatorHome


def admission_lines(home: "CoordinatorHome", made: "AdmittedSite") -> list[str]:
    party, command = ("second server", "second") if made.second else ("site", "site")
    ends = "have nothing signed" if made.until is None else f"revoke the {party}"
    words = [
        f"Words of its key: {made.fingerprint}",
        f"Compare them with the {party} by phone, using a number you know. If they differ, {ends}.",
    ]
    if made.until is None:
        return [
            f"The request of {made.name} waits for the authority: {made.path}",
            *words,
            "Have it signed with wardround authority sign, and take it in with wardround coordinator accept",
        ]
    did = "has a new key" if made.rotated else "renewed" if made.renewed else "admitted"
    return [
        f"{made.name} {did} until {made.until:%Y-%m-%d}.",
        *words,
        f"Read out the words of the authority's key as well: {root_words(home)}",
        f"Then send {made.path} and {home.authority_path} to the {party}: "
        f"wardround {command} join CERTIFICATE AUTHORITY",
    ]


def root_words(home: "CoordinatorHome") -> str:
    from wardround.deploy.party.enrolment import authority_words
    from wardround.deploy.trust.certificates import read_certificate

    return authority_words(read_certificate(home.authority_path))


def admission_facts(home: "CoordinatorHome", made: "AdmittedSite") -> dict[str, Any]:
    return {
        "site": made.name,
        "fingerprint": made.fingerprint,
        "until": None if made.until is None else f"{made.until:%Y-%m-%d}",
        "certificate": None if made.until is None else made.path,
        "waiting": made.path if made.until is None else None,
        "authority": home.authority_path,
        "authority_words": root_words(home),
        "renewed": made.renewed,
        "rotated": made.rotated,
    }
