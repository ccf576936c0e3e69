"""The closed list of all that may leave a site for an analysis: kinds of columns, words, a number of rows, sums."""

from collections.abc import Mapping

from wardround.core.components.terms import Extent
from wardround.core.errors import Refusal
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.partner_questions import numbers_in, preparation_queries
from wardround.deploy.site.release.release_list import (
    FOR_A_SITE,
    FOR_A_VALUE,
    HEADER,
    REFUSALS,
    ROOM,
    Release,
    Releases,
    release_list,
    sites_of,
)
from wardround.engine.registry import make_from
from wardround.privacy.secure_sum.wide_point import PLACES
from wardround.queries.names_of import MOST_NAMES
from wardround.study.analyses.analysis import all_settings, analysis_of, analysis_recipe, analysis_terms
from wardround.study.file import Study

FOR_AN_ARRAY = 256
"""Bytes that an array's name, shape and place take in a message, at most."""
ARRAYS = 64
"""Arrays of an answer that are reckoned with."""
ASKED = 1 << 22
"""Bytes of what is asked, beside as many numbers as an answer has."""


def releases_of(study: Study, columns: Mapping[str, str], cell: int) -> Releases:
    """Of any study, by what it does: training in rounds, or an analysis."""
    return release_list(study, columns, cell) if study.analysis is None else analysis_releases(study, columns, cell)


def most_numbers(study: Study) -> int:
    """How many numbers an answer has at most, as the terms beside the analysis say."""
    recipe, analysis = analysis_recipe(study), analysis_of(study)
    extent = Extent(all_settings(recipe), sites=len(sites_of(study)), columns=len(analysis.columns))
    return analysis_terms(recipe).numbers(extent)


def refuse_exposed(study: Study, cell: int) -> None:
    """What a site that protects small groups does not answer by itself, and noise that others could take off."""
    recipe, analysis = analysis_recipe(study), analysis_of(study)
    if dict(recipe.settings).get("noise_seed") is not None:
        raise Refusal(
            "noise that follows from a seed protects nobody: whoever knows the study can take it off",
            where="[analysis] noise_seed",
            remedy="leave it out; it is for simulations",
        )
    make_from(in_own_cells(recipe, cell))  # what the analysis itself refuses for so small groups
    if cell > 1 and not analysis.alone and not study.transforms:
        raise Refusal(
            f"a single answer to {recipe.name} tells of fewer than {cell} patients, the smallest cell of this site",
            where="[analysis]",
            remedy='add [[transforms]] name = "secure_sum", or noise (epsilon) where the analysis has it',
        )


def analysis_releases(study: Study, columns: Mapping[str, str], cell: int) -> Releases:
    refuse_exposed(study, cell)
    analysis, recipe, sites = analysis_of(study), analysis_recipe(study), len(sites_of(study))
    told = f"names of columns and words, none of fewer than {cell} patients"
    found = []
    for query in preparation_queries(study):
        numbers = numbers_in(query, Extent(sites=sites, columns=len(columns)))
        size = ROOM + FOR_A_VALUE * numbers
        found.append(Release(f"query/{query.name}", "whole table", 1, size, HEADER + size, told, cell))
    words = FOR_A_VALUE * MOST_NAMES * sites * (1 + len(analysis.columns))
    rows = f"counted in cells of {cell}" if cell > 1 else "exact"
    found.append(Release("agree", "whole table", 1, ROOM, HEADER + words, rows, cell, arrays=("rows",)))
    numbers = most_numbers(study)
    asked = HEADER + ASKED + 8 * numbers
    if study.transforms:
        size = ROOM + 8 * len(PLACES) * numbers + FOR_A_SITE * sites
        told = "noised" if study.privacy is not None else "double precision, without noise"
        precise = f"masked; only sums are opened; {told}"
        room = asked + 2 * FOR_A_SITE * sites
        found.append(Release("secure", "whole table", analysis.most, size, room, precise, cell))
    else:
        size = ROOM + ARRAYS * FOR_AN_ARRAY + 8 * numbers
        noised = study.privacy is not None
        precise = f"double precision, without noise; nothing of fewer than {cell} patients"
        precise = "the noise is debited from your privacy ledger" if noised else precise
        kind = f"analysis/{recipe.name}"
        found.append(Release(kind, "whole table", analysis.most, size, asked, precise, cell, noised))
    refusals = Release("refusal", "none", REFUSALS, ROOM, 0, "in words that quote no value of a patient", arrays=())
    return (*found, refusals)
