"""An offered analysis in plain words, for whoever decides about it: who asks, what is read, what leaves, how often."""

from wardround.core.errors import Refusal
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, study_of
from wardround.deploy.site.analyses.releases import most_numbers
from wardround.deploy.site.approvals import promised_epsilon, reasons_against
from wardround.deploy.site.datasets import columns_for, find, frame_of, read_datasets, summarize_table
from wardround.deploy.site.partner_summary import who_takes_part
from wardround.deploy.site.policy import Policy, components_of, epsilon_of, outside_reasons, package_of
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.release import release_list
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.partner_questions import preparation_queries
from wardround.deploy.site.release.release_list import Releases
from wardround.deploy.site.study_summary import (
    StudySummary,
    list_in_words,
    smallest_sum,
    times_in_words,
    what_is_changed,
    what_is_read,
    what_runs,
    who_asks,
)
from wardround.study.analyses.analysis import all_settings, analysis_of, analysis_recipe, analysis_terms
from wardround.study.file import Study


def describe_analysis(home: SiteHome, offer: Offer, data: str | None = None) -> StudySummary:
    """What the analysis would mean for this site, on these registered data."""
    study, policy, name = study_of(offer), read_policy(home.policy_path), find(home, data)
    seen = summarize_table(frame_of(name, read_datasets(home)[name]))
    components = components_of(offer.study)
    closed = outside_reasons(policy, components)
    against = reasons_against(home, offer, name)
    read, withheld = columns_for(study, policy, seen.kinds)
    brought = {one: str(package) for one in components if (package := package_of(one)) is not None}
    listed: Releases = ()
    all_of_it: tuple[str, ...] = (f"Not known: {'; '.join(closed)}.",)
    if not closed:
        listed, all_of_it = list_in_words(home, offer, name, {column: seen.kinds[column] for column in read}, policy)
    facts = {
        "study": offer.id,
        "submitter": offer.submitter,
        "purpose": study.study.purpose,
        "data": name,
        "rows": seen.rows,
        "columns": read,
        "withheld": withheld,
        "components": components,
        "outside": brought,
        "exchanges": analysis_of(study).most,
        "numbers_an_exchange": most_numbers(study),
        "epsilon": epsilon_of(offer.study),
        "epsilon_spent": promised_epsilon(home, beside=offer.id),
        "epsilon_allowed": policy.epsilon,
        "expires": str(policy.expires) if policy.expires else None,
        "releases": release_list.to_json(listed),
        "against": against,
    }
    risky = [f"{column} ({why})" for column, why in seen.identifying.items() if column in read]
    parts = (
        ("Who asks", who_asks(offer, study)),
        *((("Who takes part", partners),) if (partners := who_takes_part(home, study)) else ()),
        ("What is read", (*what_is_read(name, seen.rows, read, withheld, risky), *what_is_changed(study))),
        ("What runs here", what_runs(components, brought)),
        ("What leaves", (*what_leaves(study, policy, seen.rows), *smallest_sum(study, policy))),
        ("What leaves, all of it", all_of_it),
        ("What it costs in privacy", privacy_words(study)),
        ("For how long", (f"Until {policy.expires}, when your policy expires, or until you withdraw.",)),
    )
    return StudySummary(facts, parts, tuple(against))


def what_leaves(study: Study, policy: Policy, rows: int) -> tuple[str, ...]:
    """In the analysis's own words: what an answer tells, how large it is, how often at most."""
    try:
        recipe, analysis = in_own_cells(analysis_recipe(study), policy.smallest_cell), analysis_of(study)
    except Refusal as refusal:
        return (f"Not known: {refusal}",)
    cell, numbers = policy.smallest_cell, most_numbers(study)
    words = analysis_terms(recipe).describe(all_settings(recipe))
    declared, asks = study.data.preparation.categories, [query.name for query in preparation_queries(study)]
    named = "names_of" in asks and not set(analysis.columns) <= set(declared)
    asked, queries = f" and words that at least {cell} of your patients have" if named else "", ", ".join(asks)
    told = [
        f"Once, beforehand: which of the columns hold numbers and which words{asked} ({queries}); how many rows you"
        f" have, rounded down to multiples of {cell}.",
        f"For the analysis {recipe.name}, {times_in_words(analysis.most)}: {words} (at most {numbers:,} numbers each"
        " time). Rows are never sent.",
    ]
    if rows < cell:
        told.append(
            f"You have fewer than {cell} rows, your smallest cell: your answers are those of a site without any."
        )
    seen = (
        "The coordinator sees the sum of the sites' answers, and no single one."
        if study.transforms
        else "The coordinator sees your sums exactly; with the transform secure_sum they would be hidden among those of"
        " other sites."
    )
    return (*told, seen)


def privacy_words(study: Study) -> tuple[str, ...]:
    own = study.analysis.settings.get("epsilon") if study.analysis is not None else None
    if study.privacy is None and own:
        delta = study.analysis.settings.get("delta", 1e-5) if study.analysis is not None else 1e-5
        return (
            f"The analysis adds noise of its own to what leaves. Its epsilon of {own:g} (at a delta of {delta:g}) is"
            " debited from your ledger whole, before the first answer, even if it ends early.",
        )
    if study.privacy is None:
        return ("No noise is added, so there is no formal guarantee.",)
    return (f"Noise is added to what leaves: an epsilon of {study.privacy.epsilon} is debited from your ledger.",)
