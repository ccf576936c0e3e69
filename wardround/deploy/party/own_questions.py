"""What a site or second server answers about itself and no study: its version, its certificate, the eye on each log."""

from collections.abc import Mapping
from typing import Any

from wardround import __version__
from wardround.deploy.home import PartyHome
from wardround.deploy.party.enrolment import certificate_request, note_revocation, renew
from wardround.deploy.party.study_ends import ENDED, note_end
from wardround.deploy.protocol import wire
from wardround.deploy.trust import countersignatures

REVOKED = "revoked"
"""Nothing is asked: the coordinator says that it shut this party out."""
ITSELF = ("hello", "renewal", "certificate", REVOKED, ENDED, *countersignatures.TOPICS)


def answer_about_itself(home: PartyHome, topic: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """The words of the reply to a topic of `ITSELF`."""
    if topic == "renewal":
        return {"request": certificate_request(home, home.settings).decode()}
    if topic == "certificate":
        renew(home, str(header["certificate"]))
    if topic == REVOKED:
        note_revocation(home, header)
    if topic == ENDED:
        note_end(home, header)
    if topic in countersignatures.TOPICS:
        return countersignatures.answer(home, topic, header)
    return {"wardround": __version__, "protocol": wire.PROTOCOL}
