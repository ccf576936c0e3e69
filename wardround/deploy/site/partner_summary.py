"""The sites of an offered study in plain words, for whoever decides about it: who they are, and how well known."""

from wardround.deploy.home import SiteHome
from wardround.deploy.trust.pins import needs_pins, read_partners, review, smallest_roster
from wardround.study.file import Study


def comparison_warning(home: SiteHome, study: Study) -> list[str]:
    """What it means that nobody here has called the other sites; nothing where all were compared."""
    seen = review(home, study)
    names = (*seen.uncompared, *seen.new)
    if not names:
        return []
    whom = f"never compared by phone: {', '.join(names)}" if seen.compared else "no other site was compared by phone"
    harm = (
        "A coordinator that lies could play them all, and read your answers although only a sum is opened."
        if needs_pins(study)
        else "Whether they exist is the coordinator's word alone."
    )
    return [
        f"WARNING: {whom}. {harm}",
        "Call them at a number you know, and compare these words. Approving pins the words;"
        " `wardround site trust NAME WORDS` says that they were compared.",
    ]


def who_takes_part(home: SiteHome, study: Study) -> tuple[str, ...]:
    """The sites of the study with the words of their keys, and which of them were compared by telephone."""
    said, pinned = study.deploy.fingerprints, read_partners(home)
    if not said:
        return ()
    told = []
    for site, words in said.items():
        if site == home.own_name:
            told.append(f"{site} (this site): {words}")
        else:
            known = pinned.get(site)
            if known is None:
                how = "new here"
            else:
                how = f"compared by {known.by}" if known.is_compared else "not compared yet"
                how = how if known.has_had(words) else f"ANOTHER KEY than the one that was pinned here by {known.by}"
            told.append(f"{site}: {words} ({how})")
    told += comparison_warning(home, study)
    if needs_pins(study):
        told.append(f"In each round at least {smallest_roster(study)} of these sites are added up, and nobody else.")
    return tuple(told)
