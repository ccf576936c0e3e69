"""An offered study in plain words, for whoever decides about it: who asks, what is read, what leaves, what it costs.

Sizes are measured: see `release/answer_size.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from wardround.core.components.terms import Extent
from wardround.core.errors import Refusal
from wardround.core.text import format_bytes
from wardround.data.inspection.findings import Finding, find_in_rows, find_in_table
from wardround.deploy.home import SiteHome
from wardround.deploy.party.decisions import Offer, study_of
from wardround.deploy.site.approvals import derive_releases, promised_epsilon, reasons_against, statistics_used
from wardround.deploy.site.datasets import find, read_datasets, summarize_table, table_for, table_of
from wardround.deploy.site.monitor import approval as monitor
from wardround.deploy.site.monitor.watched_rows import study_columns
from wardround.deploy.site.partner_summary import who_takes_part
from wardround.deploy.site.policy import (
    Policy,
    components_of,
    epsilon_of,
    for_partners,
    outside_reasons,
    package_of,
)
from wardround.deploy.site.policy_file import read_policy
from wardround.deploy.site.privacy_summary import LedgerCharges, privacy_cost
from wardround.deploy.site.release import release_list
from wardround.deploy.site.release.answer_size import ARRAYS, AnswerSize, answer_of, own_line, prepared_rows
from wardround.deploy.site.release.cleaning_review import review_sentences, survival_sentences
from wardround.deploy.site.release.disclosure import in_own_cells
from wardround.deploy.site.release.partner_questions import (
    all_settings,
    numbers_in,
    numbers_in_probe,
    preparation_queries,
    terms_for,
)
from wardround.deploy.site.release.privacy_budget import charged_epsilon
from wardround.deploy.site.release.release_list import ASSUMED, Releases
from wardround.deploy.site.studies.image_summary import image_sentences, statistics_sentence
from wardround.study.file import Study
from wardround.study.partners import asks_of
from wardround.study.release_noise import release_noise
from wardround.study.transform_chain import transform_of


@dataclass(frozen=True)
class StudySummary:
    """The same in figures and in words; `parts` are headings with their sentences."""

    facts: dict[str, Any]
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    against: tuple[str, ...]


def describe(home: SiteHome, offer: Offer, data: str | None = None) -> StudySummary:
    """What the study would mean for this site, on these registered data."""
    if study_of(offer).analysis is not None:
        from wardround.deploy.site.analyses.summary import describe_analysis  # which uses our sentences

        return describe_analysis(home, offer, data)
    study, policy, name = study_of(offer), read_policy(home.policy_path), find(home, data)
    table = table_of(name, read_datasets(home)[name], study)
    (frame,) = table.sites.values()
    seen = summarize_table(frame)
    read, withheld = study_columns(home, study, policy, seen.kinds)
    against = reasons_against(home, offer, name)
    components, closed = components_of(offer.study), outside_reasons(policy, components_of(offer.study))
    answer, unknown, findings = look_at_rows(home, study, name, policy, closed)
    for_choice: tuple[str, ...] = ()
    if not closed:
        components += for_partners(offer.study)[0]
        for_choice = sent_for_partners(study, answer.parameters if answer else None, len(read))
    brought = {one: str(package) for one in components if (package := package_of(one)) is not None}
    listed: Releases = ()
    all_of_it: tuple[str, ...] = (f"Not known: {'; '.join(closed)}.",)
    if not closed:
        listed, all_of_it = list_in_words(home, offer, name, {column: seen.kinds[column] for column in read}, policy)
    used, rounds = promised_epsilon(home, beside=offer.id), study.study.rounds if study.monitor is None else 0
    paid = LedgerCharges(charged_epsilon(home, policy, offer.id), charged_epsilon(home, policy))
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
        "rounds": rounds,
        "bytes_a_round": answer.bytes if answer else None,
        "bytes_in_all": answer.bytes * rounds if answer else None,
        "arrays": answer.numbers if answer else None,
        "epsilon": epsilon_of(offer.study),
        "epsilon_spent": used,
        "epsilon_charged": paid.all,
        "epsilon_charged_by_this": paid.this,
        "epsilon_allowed": policy.epsilon,
        "expires": str(policy.expires) if policy.expires else None,
        "releases": release_list.to_json(listed),
        "against": against,
        "warnings": [asdict(one) for one in findings],
        **monitor.monitor_facts(study),
    }
    risky = [f"{column} ({why})" for column, why in seen.identifying.items() if column in read]
    parts = (
        ("Who asks", who_asks(offer, study)),
        *((("Who takes part", partners),) if (partners := who_takes_part(home, study)) else ()),
        (
            "What is read",
            (
                *what_is_read(name, seen.rows, read, withheld, risky),
                *image_sentences(table, {column: seen.kinds[column] for column in read}),
                *what_is_changed(study),
                *survival_sentences(study, frame[read], policy.smallest_cell),
                *review_sentences(study, frame[read], policy.smallest_cell),
                *blank_rows(study, frame),
                *(monitor.what_is_watched(home, study, name, policy) if study.monitor is not None else ()),
            ),
        ),
        *((("What your rows show", warned),) if (warned := finding_sentences(findings)) else ()),
        ("What runs here", what_runs(components, brought)),
        ("What leaves", what_leaves(study, policy, answer, unknown)),
        *((("What leaves for the choice of partners", for_choice),) if for_choice else ()),
        ("What leaves, all of it", all_of_it),
        ("What it costs in privacy", privacy_cost(study, used, policy, paid)),
        *((("Your share", (share_of_rows(offer, seen.rows, study),)),) if study.monitor is None else ()),
        ("For how long", (f"Until {policy.expires}, when your policy expires, or until you withdraw.",)),
    )
    return StudySummary(facts, parts, tuple(against))


class FirstLook(NamedTuple):
    """What preparing the site's rows shows before anything is approved; it stays here."""

    answer: AnswerSize | None = None
    unknown: str = ""
    """Why the answer's size is not known."""
    findings: tuple[Finding, ...] = ()
    """What may be wrong with the rows: leaks, copies, values far out."""


def look_at_rows(home: SiteHome, study: Study, name: str, policy: Policy, closed: list[str]) -> FirstLook:
    """Prepare the rows as the study would; nothing that is `closed` is imported for it."""
    if study.monitor is not None:
        return FirstLook()
    found: list[Finding] = []
    try:
        if closed:
            raise Refusal("; ".join(closed))
        table = table_for(home, name, study, policy)
        found += find_in_table(table, [study.data.split_by] if study.data.split_by else [])
        loaded = prepared_rows(study, table)
        found += find_in_rows(loaded)
        return FirstLook(answer_of(study, table, loaded), "", tuple(found))
    except Refusal as refusal:
        return FirstLook(None, str(refusal), tuple(found))


def finding_sentences(findings: Sequence[Finding]) -> tuple[str, ...]:
    """For whoever decides, with examples: these words are shown here and sent to nobody."""
    told = []
    for one in findings:
        shown = f" ({', '.join(one.examples)})" if one.examples else ""
        told.append(f"Warning: {one.what}{shown}. Ask for a changed study, or change the table: {one.remedy}.")
    return (*told, "These warnings are shown to you alone.") if told else ()


def what_leaves(study: Study, policy: Policy, answer: AnswerSize | None, unknown: str) -> tuple[str, ...]:
    if study.monitor is not None:
        return monitor.what_leaves(study, policy)
    return (
        *sent_before_training(study, policy),
        *sent_per_round(study, answer, unknown),
        *smallest_sum(study, policy),
        *sent_after_training(study),
        *sent_of_risks(study, policy),
    )


def who_asks(offer: Offer, study: Study) -> tuple[str, ...]:
    who = offer.submitter or "An unnamed submitter"
    purpose = f"Purpose: {study.study.purpose}." if study.study.purpose else "No purpose is stated."
    site = (f"The model is for the site {study.study.user}.",) if study.study.user else ()
    return (f"{who} submitted {study.study.name}. {purpose} Received on {offer.came[:10]}.", *site)


def blank_rows(study: Study, frame: Any) -> tuple[str, ...]:
    """What becomes of patients without an outcome in a private study, whose number nobody may learn."""
    target = str(study.data.settings.get("target"))
    unknown = int(frame[target].isna().sum()) if study.privacy is not None and target in frame else 0
    if not unknown:
        return ()
    return (
        f"{unknown} of these rows have no {target}. They are used as blank rows, with nothing known of the patient, so"
        " that the number of rows tells nobody how many there are; remove them from the table if the model should not"
        " see them.",
    )


def what_is_read(name: str, rows: int, read: list[str], withheld: list[str], risky: list[str]) -> tuple[str, ...]:
    told = [f"Dataset {name}, {rows:,} rows. Columns: {', '.join(read) or 'none'}."]
    if withheld:
        told.append(f"Withheld by your policy: {', '.join(withheld)}.")
    if risky:
        told.append(f"Warning: these columns may identify patients: {', '.join(risky)}.")
    return tuple(told)


def what_is_changed(study: Study) -> tuple[str, ...]:
    """What the study does with values before they are used, in its own words."""
    said = study.data.cleaning.model_dump(exclude_defaults=True)
    told = "; ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in said.items())
    return (f"Before use the study changes values: {told}.",) if told else ()


def what_runs(components: list[str], brought: Mapping[str, str]) -> tuple[str, ...]:
    told = f"Installed components only: {', '.join(components)}."
    outside = "; ".join(f"{name} from the package {package}" for name, package in brought.items())
    return (told, f"From other packages installed here: {outside}.") if outside else (told,)


def sent_before_training(study: Study, policy: Policy) -> tuple[str, ...]:
    """The statistics from which sites agree how columns become numbers."""
    asked = [in_own_cells(one, policy.smallest_cell) for one in preparation_queries(study)]
    words = [terms_for(one).describe(all_settings(one)) for one in asked]
    told = [f"Once, before training: {'; '.join(words)}; no count below {policy.smallest_cell} patients."]
    if study.privacy is not None:
        return (f"Once, before training: {'; '.join(words)}.",)
    if policy.smallest_cell > 1:
        told.append(
            f"Counts are rounded down to multiples of {policy.smallest_cell}, means and figures are rounded too, so"
            " that a single patient hardly ever changes them."
        )
    return tuple(told)


def list_in_words(
    home: SiteHome, offer: Offer, data: str, columns: Mapping[str, str], policy: Policy
) -> tuple[Releases, tuple[str, ...]]:
    """The closed list of releases, which an approval fixes, and how many statistics of the dataset it takes."""
    try:
        listed = derive_releases(home, study_of(offer), columns, policy)
    except Refusal as refusal:
        return (), (f"Not known: {refusal}",)
    asked, told = release_list.most_statistics(listed), statistics_used(home, data, beside=offer.id)
    return listed, (
        "This site sends nothing else, whatever it is asked.",
        *(one[0].upper() + one[1:] for one in release_list.sentences(listed)),
        f"Statistics about {data}: this study uses up to {asked} of {policy.statistics}; {told} used so far.",
    )


def sent_for_partners(study: Study, parameters: int | None, columns: int) -> tuple[str, ...]:
    """What leaves while partners are chosen, in each probe's and query's own words; none where none are chosen."""
    if study.partners is None:
        return ()
    asks, sites = asks_of(study), len(study.deploy.sites) or ASSUMED
    least = f"with {sites} sites" if study.deploy.sites else f"assuming {sites} sites"
    told = [
        f"Before training, partners are chosen for {study.study.user} (choice/{study.partners.name}). Your answers are "
        "sent whether you are chosen or not. If you are not chosen, you take no part in training."
    ]
    if asks.trains:
        told.append(
            f"Meanwhile the sites train {asks.trains}; each of these rounds sends the same as a round of training."
        )
    for probe in asks.probes:
        settings = all_settings(probe.recipe)
        part = settings.get("part", "train")
        held = "training" if part == "train" else part
        size = "size not known yet"
        if parameters is not None:
            count = numbers_in_probe(probe, parameters, sites)
            size = f"{count:,} numbers, about {format_bytes(4 * count)}, {least}"
        words = terms_for(probe.recipe).describe(settings)
        told.append(
            f"For the probe {probe.recipe.name}, {probe.times}: {words} ({held} patients; {size}). No noise is added."
        )
    for query in asks.queries:
        terms = terms_for(query)
        often = times_in_words(terms.times)
        count = numbers_in(query, Extent(sites=sites, columns=columns))
        words = terms.describe(all_settings(query))
        told.append(f"For the query {query.name}, {often}: {words} (at most {count:,} numbers or names, {least}).")
    if asks.queries:
        noise = f"Noise of epsilon {asks.epsilon:g} in all is added to" if asks.epsilon else "No noise is added to"
        told.append(f"{noise} the answers to these queries.")
    return tuple(told)


def times_in_words(times: int) -> str:
    return "once" if times == 1 else f"up to {times} times"


def sent_per_round(study: Study, answer: AnswerSize | None, unknown: str) -> tuple[str, ...]:
    rounds = study.study.rounds
    if answer is None:
        return (f"In each of {rounds} rounds: an answer whose size is not known yet. {unknown}",)
    arrays = "; ".join(
        f"{name} ({count:,} {'number' if count == 1 else 'numbers'}{': ' + ARRAYS[name] if name in ARRAYS else ''})"
        for name, count in answer.numbers.items()
    )
    size = f"about {format_bytes(answer.bytes)} per round, {format_bytes(answer.bytes * rounds)} in {rounds} rounds"
    seen = filter(None, [transform_of(study).words, second_sentence(study)])
    sentence = f"In each round: {arrays}; {size}. Rows, labels and predictions are never sent."
    return (sentence, *statistics_sentence(answer.statistics), *seen, *own_line(answer.choices))


def smallest_sum(study: Study, policy: Policy) -> tuple[str, ...]:
    """Among how many answers one is hidden; none where answers are not summed up."""
    if all(one.name != "secure_sum" for one in study.transforms):
        return ()
    own = 3 if study.privacy is not None else policy.smallest_sum
    count = max(own, study.deploy.quorum or own)
    return (
        f"Only sums of at least {count} sites' answers are opened, one per round, and of a bounded number of different"
        " groups of sites.",
    )


def second_sentence(study: Study) -> str:
    """Who the second server is, where there is one."""
    deploy = study.deploy
    if deploy.second is None:
        return ""
    if deploy.same_organisation_for_testing:
        return (
            "Warning: FOR TESTING, both servers are run by the same organisation: your updates are not hidden from it."
        )
    who, key = deploy.second_organisation or "an unnamed organisation", deploy.fingerprints.get(deploy.second)
    return (
        f"The second server is {deploy.second}, run by {who}; compare the fingerprint of its key with them by phone: "
        f"{key or 'the study does not say it'}. Your updates are hidden as long as the second server tells the "
        "coordinator nothing, and no site tells the second server what it was sent."
    )


def sent_after_training(study: Study) -> tuple[str, ...]:
    if study.privacy is not None:
        if release_noise(study).looks is None:
            return ("No loss and no figure of your patients is sent; your own exact figures stay with you.",)
        right = "" if study.data.survival is not None else ", and a noised number of correct ones"
        return (
            f"After rounds: how many validation patients, a noised sum of their losses{right}. At the end: figures from"
            " one noised table of your test patients; the exact ones stay with you.",
        )
    every, survival = study.evaluation.every, study.data.survival is not None
    often = "After every round" if every == 1 else f"After every {every} rounds"
    told = "two numbers about your validation patients (how many, their loss)"
    told = told if survival else "three numbers about your validation patients (how many, their loss, how many correct)"
    return (f"{often}: {told}. At the end: quality figures on your test patients, computed here.",)


def sent_of_risks(study: Study, policy: Policy) -> tuple[str, ...]:
    """The table of risks and outcomes, where the study asks for it."""
    cuts, cell = study.evaluation.cuts, policy.smallest_cell
    if not cuts:
        return ()
    rounded = (
        f" Each count is rounded at random to a multiple of {cell}, so that one patient more or less shows with a"
        f" chance of 1 in {cell}; nothing is sent where fewer than {cell} of them have the outcome, or have not."
    )
    return (
        "Also at the end, once: how many of your test patients with and without the outcome have a predicted risk"
        f" {band_words(cuts)}.{rounded if cell > 1 else ' These counts are exact.'}",
    )


def band_words(cuts: Sequence[float]) -> str:
    """
    >>> band_words((0.1, 0.25))
    'below 10 %, 10 to 25 %, 25 % or more'
    """
    shown = [f"{100 * one:g}" for one in cuts]
    between = [f"{low} to {high} %" for low, high in pairwise(shown)]
    return ", ".join([f"below {shown[0]} %", *between, f"{shown[-1]} % or more"])


def share_of_rows(offer: Offer, rows: int, study: Study) -> str:
    """How far the site's part is diluted, as far as the offer tells."""
    if not offer.others:
        return "Not known yet: how many patients the other sites have becomes known with their first study together."
    own = round(rows * study.data.shares[0])
    return (
        f"About {own / (own + offer.others):.1%} of the training rows would be yours: {own:,}, and {offer.others:,}"
        " at the other sites together, as in earlier studies."
    )
