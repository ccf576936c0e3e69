"""Each site's choice among the classifiers that came, on its own rows."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wardround.classifiers.exchange import LoadedClassifier
from wardround.core.errors import Refusal
from wardround.data.preparation import Preparation
from wardround.selection.settings import SelectionSettings
from wardround.selection.site_choice import PatientPart, SiteChoice, choose_at_site, confirmed_in
from wardround.study.sections.explain import ExplainSection
from wardround.workflows.explain.rows import SitePart, SiteParts
from wardround.workflows.explain.senders import SentClassifier, points_of


class ChosenSite(NamedTuple):
    """A site's choice and its rows; `confirmed` names each (point, keeps, strategy) that test patients confirm."""

    site: SiteParts
    sources: tuple[str, ...]
    choice: SiteChoice
    parts: tuple[PatientPart, PatientPart]
    confirmed: frozenset[tuple[str, str, str]]


def selection_settings(said: ExplainSection) -> SelectionSettings:
    return SelectionSettings(
        points=points_of(said),
        keeps=said.keeps,
        k=said.k,
        k_by=said.k_by,
        pick=said.pick,
        rules_from=said.rules_from,
        rules_by=said.rules_by,
        both_ways=said.both_ways,
        features=said.features,
        least=said.least,
        most_rules=said.most_rules,
        level=said.level,
        prune=said.prune,
        shuffles=said.shuffles,
        gaps=said.gaps,
        own_rows=said.own_rows,
        corrected=said.corrected,
    )


def scored_part(
    part: SitePart, preparation: Preparation, own: LoadedClassifier, others: list[LoadedClassifier], where: str
) -> PatientPart:
    """Rows as prepared for distances, scored by the own classifier and the others'."""
    scores = np.stack([one.scores(part.frame) for one in (own, *others)])
    if not np.isfinite(scores).all():
        bad = [one.source for one, row in zip((own, *others), scores, strict=True) if not np.isfinite(row).all()]
        raise Refusal(
            f"the classifier of {', '.join(bad)} gives scores that are no numbers",
            where=where,
            remedy="its site should send one that fills missing values itself",
        )
    return PatientPart(part.frame, preparation.apply(part.frame, where=where), part.outcome, part.patients, scores)


def choose_for(
    site: SiteParts, sent: Mapping[str, SentClassifier], settings: SelectionSettings, seed: int
) -> ChosenSite:
    """What the site does at home, with its own rows and the files of the others."""
    own = sent[site.name]
    others = [one for name, one in sent.items() if name != site.name]
    where = f"site {site.name}"
    for part, name in ((site.validation, "validation"), (site.test, "test")):
        if not len(part.outcome):
            raise Refusal(
                f"there are no {name} patients", where=where, remedy="give that part a share in [data] shares"
            )
    parts = [
        scored_part(part, own.preparation, own.loaded, [one.loaded for one in others], where)
        for part in (site.validation, site.test)
    ]
    choice = choose_at_site(
        parts[0],
        parts[1],
        [one.site for one in others],
        [one.loaded.thresholds for one in others],
        settings,
        seed=seed,
        where=where,
    )
    confirmed = frozenset(confirmed_in(choice.cells, settings.level))
    return ChosenSite(site, tuple(one.site for one in others), choice, (parts[0], parts[1]), confirmed)
