"""The sites of an offered study in plain words, for whoever decides about it: who they are, and how well known."""

from wardround.deploy.home import SiteHome
from wardround.deploy.trust.pins import needs_pins, read_partners, smallest_roster
from wardround.study.file import Study


def who_takes_part(home: SiteHome, study: Study) -> tuple[str, ...]:
    """The sites of the study with the words of their keys, and which of them were compared by telephone."""
    fingerprints, pinned = study.deploy.fingerprints, read_partners(home)
    if not fingerprints:
        return ()
    sentences = []
    for site, words in fingerprints.items():
        if site == home.own_name:
            sentences.append(f"{site} (this site): {words}")
        else:
            known = pinned.get(site)
            if known is None:
                how = "new here"
            else:
                how = f"compared by {known.by}" if known.is_compared else "not compared yet"
                how = how if known.has_had(words) else f"ANOTHER KEY than the one that was pinned here by {known.by}"
            sentences.append(f"{site}: {words} ({how})")
    if any(site != home.own_name and not (site in pinned and pinned[site].is_compared) for site in fingerprints):
        sentences.append(
            "Call the sites that were not compared at a number you know, and compare these words. Approving pins them;"
            " `wardround site trust NAME WORDS` says that they were compared."
        )
    if needs_pins(study):
        sentences.append(
            f"In each round at least {smallest_roster(study)} of these sites are added up, and nobody else."
        )
    return tuple(sentences)
