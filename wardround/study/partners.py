"""What a study asks of the sites beside training, for a choice of partners or a monitor: known from its words alone."""

from collections.abc import Mapping
from typing import Any

from wardround.engine import registry
from wardround.partners.choice import Choice, SiteQuestions
from wardround.study.file import PartnersSection, Study


def choice_of(section: PartnersSection) -> Choice:
    """The choice that a study names, made as it says."""
    component = registry.find("choice", section.name, where="[partners]")
    choice: Choice = component.build(where="[partners]", **section.settings)
    return choice


def asks_of(study: Study) -> SiteQuestions:
    if study.monitor is not None:
        return SiteQuestions(queries=(study.monitor.query,))
    return SiteQuestions() if study.partners is None else choice_of(study.partners).asks


def asks_in(words: Mapping[str, Any]) -> SiteQuestions:
    """The same from the table [partners] alone."""
    return choice_of(PartnersSection.model_validate(dict(words))).asks
