"""From the words of [analysis] to the method they name: its recipe, by which sites know it, and the method itself."""

from collections.abc import Mapping
from typing import Any

from wardround.core.analysis import Analysis
from wardround.core.components.recipes import Recipe, hashable
from wardround.core.components.terms import Terms, terms_of
from wardround.core.errors import Refusal
from wardround.data.column_agreement import Declared
from wardround.engine import registry
from wardround.study.analyses.analysis_noise import refuse_privacy
from wardround.study.file import Named, Study
from wardround.study.integer_noise import SECURE_SUM

WHERE = "[analysis]"
CELL = "smallest_cell"
NOISED = "noised"
"""Whether [privacy] will noise an answer: nothing is then kept back at the site. The study's own word is not taken."""


def said_analysis(study: Study) -> Named:
    if study.analysis is None:
        raise Refusal("the study has no [analysis]", remedy="add a table [analysis] with name = ...")
    return study.analysis


def analysis_recipe(study: Study) -> Recipe:
    """What the study names, checked; its smallest cell is at least that of [data.preparation]."""
    said = said_analysis(study)
    component = registry.find("analysis", said.name, where=WHERE)
    settings = registry.check_settings(component, said.settings, WHERE)
    defaults = {one.name: one.default for one in component.parameters}
    if CELL in defaults:
        settings[CELL] = max(int(settings.get(CELL, defaults[CELL])), study.data.preparation.smallest_cell)
    if NOISED in defaults:
        settings[NOISED] = study.privacy is not None
    return Recipe("analysis", said.name, tuple(sorted((key, hashable(value)) for key, value in settings.items())))


def analysis_of(study: Study) -> Analysis:
    """The method; refused where the study asks for what it does not offer."""
    made = analysis_from(analysis_recipe(study))
    refuse_unfit(study, made)
    return made


def analysis_from(recipe: Recipe) -> Analysis:
    made: Analysis = registry.make_from(recipe)
    return made


def analysis_terms(recipe: Recipe) -> Terms:
    return terms_of(registry.find(recipe.kind, recipe.name).factory)


def all_settings(recipe: Recipe) -> Mapping[str, Any]:
    """With the defaults of those that are not said."""
    parameters = registry.find(recipe.kind, recipe.name).parameters
    return {one.name: one.default for one in parameters if not one.required} | dict(recipe.settings)


def declared_levels(study: Study, analysis: Analysis) -> Declared:
    """The words of columns that the study tells itself, so that no site is asked for them."""
    said = study.data.preparation.categories
    return {name: words for name, words in said.items() if name in analysis.columns}


def refuse_unfit(study: Study, analysis: Analysis) -> None:
    """What [[transforms]] and [privacy] ask for and this method cannot give."""
    name = said_analysis(study).name
    others = [one.name for one in study.transforms if one.name != SECURE_SUM]
    if others:
        raise Refusal(
            f"an analysis tells exact sums, and the transform '{others[0]}' would change them",
            where="[[transforms]]",
            remedy='remove it; of all transforms an analysis takes "secure_sum" alone',
        )
    if any(one.settings for one in study.transforms):
        raise Refusal(
            "an analysis needs double precision, which the secure sum gives it by itself",
            where="[[transforms]] secure_sum",
            remedy="remove fraction_bits and bound",
        )
    if study.transforms and not analysis.sums:
        raise Refusal(
            f"the analysis '{name}' needs the answer of each site by itself, and a secure sum opens only their sum",
            where="[[transforms]]",
            remedy="remove the transform secure_sum, or choose another analysis",
        )
    refuse_privacy(study, analysis, name)
