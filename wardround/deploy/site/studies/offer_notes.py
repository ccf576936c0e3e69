"""What whoever decides reads first: which study it amends, and what of the data does not fit."""

from typing import Any

from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, read_decision, study_of
from wardround.deploy.site.studies.amendment import reasons_to_ask
from wardround.deploy.site.studies.data_check import find_misfits

Part = tuple[str, tuple[str, ...]]


def offer_notes(home: SiteHome, offer: Offer, data: str | None = None) -> tuple[list[Part], dict[str, Any]]:
    """Headings with sentences, and the same as facts."""
    try:
        misfits = find_misfits(home, study_of(offer), data)
    except Refusal as refusal:
        parts: list[Part] = [("What does not fit", (str(refusal),))]
        return [*amendment_part(home, offer), *parts], {"misfits": [str(refusal)]}
    parts = [("What does not fit", tuple(one.sentence for one in misfits))] if misfits else []
    return [*amendment_part(home, offer), *parts], {"misfits": [one.sentence for one in misfits]}


def amendment_part(home: SiteHome, offer: Offer) -> list[Part]:
    if not offer.amends:
        return []
    before, own = read_decision(home, offer.amends), read_decision(home, offer.id)
    said = f"It amends {offer.amends}"
    if own is not None:
        return [("What it amends", (f"{said}.",))]
    decided = f", which was {before.state} here on {before.when[:10]}" if before else ", which was not decided here"
    reasons = "; ".join(reasons_to_ask(home, offer.amends, offer))
    return [("What it amends", (f"{said}{decided}.", f"You are asked anew because {reasons}."))]
