"""The report in plain words: who took part, what was trained, what is best where, how sure that is, what it cost."""

from collections.abc import Callable, Sequence

from wardround.report import method_names, numbers
from wardround.report.html.markup import Html, join, safe
from wardround.report.metric_names import is_lower_better, label_of, meaning_of
from wardround.report.run.advised_method import advice_of
from wardround.report.run.ranking import best_at, best_overall, lead_of
from wardround.report.run.times import horizons_named
from wardround.report.unit import COUNTED, unit_of, units_of
from wardround.runs.fields import mapping, total
from wardround.runs.result import ALL, MethodResult
from wardround.runs.run import Run
from wardround.runs.scores import MetricValue

NAMED = 8
"""Up to so many hospitals are named in a sentence; above, they are counted."""
FEW = 50
"""Test patients below which a hospital's score is called uncertain."""


def strong(text: object) -> Html:
    return Html(f"<strong>{safe(text)}</strong>")


def comma_list(parts: Sequence[Html]) -> Html:
    """One, two and three."""
    if len(parts) < 2:
        return join(parts)
    return Html(", ".join(parts[:-1]) + " and " + parts[-1])


def plural(number: int, one: str, many: str = "") -> Html:
    return Html(f"{number:,} {one if number == 1 else many or one + 's'}")


def score_in_brackets(measure: MetricValue) -> Html:
    """A score with its interval, in brackets after a name."""
    if measure.value is None:
        return Html("")
    span = numbers.interval(measure)
    return Html(f" ({numbers.score(measure.value)}; {span})" if span else f" ({numbers.score(measure.value)})")


def interval_name(run: Run) -> str:
    return "interval" if run.level is None else f"{100 * run.level:g} % interval"


def summary(run: Run) -> list[tuple[str, Html]]:
    """What a reader in a hurry can stop after, each answer with its heading."""
    result = [
        ("Measure", measure_meaning(run)),
        ("Result", ranking(run)),
        ("Certainty", join([part for part in (certainty(run), interval_note(run)) if part], " ")),
        ("Which method", Html("") if not (advice := advice_of(run)) else safe(advice)),
    ]
    unfinished = Html("The run was interrupted before it was evaluated, so no model can be called best yet.")
    parts = [
        ("Hospitals", participants(run)),
        ("Model", training(run)),
        *(result if run.finished else [("Result", unfinished)]),
        *([] if run.kind == "site" else [("Cost", costs(run))]),
    ]
    return [(title, text) for title, text in parts if text]


def participants(run: Run) -> Html:
    hospitals = run.hospitals
    if not hospitals:
        return Html("The files do not say which hospitals took part.")
    names = [safe(h.name) for h in hospitals]
    if run.kind == "site":
        own = plural(hospitals[0].patients, unit_of(run))
        return Html(f"{names[0]} with its own {own}. Nothing of other hospitals' patients is known here.")
    who = Html(f"{plural(len(names), 'hospital')} took part")
    if len(names) <= NAMED:
        who = Html(f"{who} ({comma_list(names)})")
    patients = sum(h.patients for h in hospitals)
    return Html(f"{who}, with {plural(patients, unit_of(run))} in total." if patients else f"{who}.")


def training(run: Run) -> Html:
    model = mapping(mapping(run.manifest.get("study")).get("model")).get("name")
    what = Html(f"A model ({safe(model)})" if model else "A model")
    target, positive = run.task.target, run.task.positive
    if target:
        what = Html(f"{what} that predicts {strong(target)}")
        if positive is not None and run.task.kind == "classification":
            what = Html(f"{what} (outcome: {safe(positive)})")
        elif run.task.kind == "survival":
            what = Html(f"{what}, that is whether and when it comes (by {safe(horizons_named(run))}),")
    if not run.methods:
        return Html(f"{what}. No training is recorded.")
    if len(run.methods) == 1:
        only = run.methods[0]
        rounds = f", in {plural(only.rounds, 'round')}" if only.rounds else ""
        return Html(f"{what} was trained in one way: {strong(only.label)}{rounds}.")
    ways = comma_list([Html(strong(method.label) + way_to_train(method)) for method in run.methods])
    return Html(f"{what} was trained in {len(run.methods)} ways: {ways}.")


def way_to_train(method: MethodResult) -> Html:
    """In brackets, where it is known."""
    meaning = method_names.meaning_of(method.algorithm)
    return Html(f" ({safe(meaning)})" if meaning else "")


def has_scores(run: Run) -> bool:
    blocks = [method.scores for method in run.methods]
    return bool(run.metric) and any(run.metric in own for one in blocks for own in (*one.sites.values(), one.weighted))


def measure_meaning(run: Run) -> Html:
    """What the main measure is, and whom it was measured on."""
    if not has_scores(run):
        return Html("")
    meaning = meaning_of(run.metric)
    seen = "images that" if unit_of(run) == "image" else "patients whom"
    return Html(
        f"{safe(label_of(run.metric))}{f': {meaning}' if meaning else ''}. All scores are for {seen} the "
        "models had not seen in training."
    )


def ranking(run: Run) -> Html:
    if not has_scores(run):
        return Html("No score is recorded.")
    if len(run.methods) == 1:
        return Html(f"{single_method(run)}.")
    if is_lower_better(run.metric) is None:
        return Html("The scores are shown below; which way is better is not known for this measure.")
    return winners(run)


def single_method(run: Run) -> Html:
    only, metric = run.methods[0], run.metric
    known = [h for h in run.hospitals if only.at(h.name, metric).value is not None]
    if len(run.hospitals) <= NAMED and known:
        return Html("The model reached " + comma_list([score_at(only.at(h.name, metric), h.name) for h in known]))
    overall = only.over_all(metric)
    if overall.value is None:
        return Html("The model's score is not defined")
    return Html(
        f"The model reached {numbers.score(overall.value)} on average over the {units_of(run)} of all hospitals"
    )


def score_at(measure: MetricValue, site: str) -> Html:
    span = numbers.interval(measure)
    value = numbers.score(measure.value or 0.0)
    return Html(f"{value} ({span}) at {safe(site)}" if span else f"{value} at {safe(site)}")


def winners(run: Run) -> Html:
    """Which model leads on average and where, hospitals grouped by model."""
    won: dict[str, list[str]] = {method.name: [] for method in run.methods}
    tied: list[str] = []
    for hospital in run.hospitals:
        leaders = best_at(run, hospital.name, run.metric)
        if len(leaders) == 1:
            won[leaders[0].name].append(hospital.name)
        elif leaders:
            tied.append(hospital.name)
    sentences = []
    overall = best_overall(run, run.metric)
    if len(overall) == 1 and len(run.hospitals) > 1:
        score = score_in_brackets(overall[0].over_all(run.metric))
        sentences.append(Html(f"On average over all {units_of(run)}, {strong(overall[0].label)} scored best{score}."))
    for name, sites in won.items():
        if not sites:
            continue
        method = run.method(name)
        if len(run.hospitals) <= NAMED:
            where = comma_list([Html(safe(site) + score_in_brackets(method.at(site, run.metric))) for site in sites])
        else:
            where = Html(f"{len(sites):,} of {len(run.hospitals):,} hospitals")
        sentences.append(Html(f"{strong(method.label)} scored best at {where}."))
    if tied:
        where = comma_list([safe(site) for site in tied]) if len(tied) <= NAMED else plural(len(tied), "hospital")
        sentences.append(Html(f"Several models share the best score at {where}."))
    return join(sentences, " ") if sentences else Html("No model can be called best, since no score is defined.")


def certainty(run: Run) -> Html:
    """How much of the ranking is more than chance."""
    if len(run.methods) < 2 or not has_scores(run):
        return Html("")
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    untested: dict[str, None] = {}
    for site in [h.name for h in run.hospitals] + [ALL]:
        leaders = best_overall(run, run.metric) if site == ALL else best_at(run, site, run.metric)
        if len(leaders) == 1:
            lead = lead_of(run, site, run.metric, leaders[0])
            untested |= dict.fromkeys(lead.untested if site == ALL or len(run.hospitals) <= NAMED else ())
            if lead.shown or lead.open:
                groups.setdefault((lead.shown, lead.open), []).append(site)
    if not groups:
        return Html("The models were not compared pair by pair, so every lead may be due to chance.")
    if not any(shown for shown, _ in groups) and not untested:
        where = places([site for sites in groups.values() for site in sites])
        same = f"compared on the same {units_of(run)}"
        return Html(f"<strong>Every lead may be due to chance</strong> ({same}, at {where}).")
    clauses = [lead_clause(run, shown, open_, sites) for (shown, open_), sites in groups.items()]
    parts = [Html(f"Compared on the same {units_of(run)}: {join(clauses, '; ')}.")]
    if untested:
        names = comma_list([strong(run.method(name).label) for name in untested])
        parts.append(Html(f"Not every lead over {names} was tested in this way; it may be due to chance."))
    return join(parts, " ")


def lead_clause(run: Run, shown: Sequence[str], open_: Sequence[str], sites: Sequence[str]) -> Html:
    """At these places the lead over some is more than chance, over others it may be chance."""
    parts = []
    if shown:
        parts.append(Html(f"the lead over {names_of(run, shown)} is larger than chance would explain"))
    if open_:
        parts.append(Html(f"the lead over {names_of(run, open_)} may be due to chance"))
    return Html(f"at {places(sites)}, {comma_list(parts)}")


def names_of(run: Run, methods: Sequence[str]) -> Html:
    return comma_list([safe(run.method(name).label) for name in methods])


def places(sites: Sequence[str]) -> Html:
    hospitals = [safe(site) for site in sites if site != ALL]
    named = hospitals if len(hospitals) <= NAMED else [plural(len(hospitals), "hospital")]
    return comma_list([*named, Html("all hospitals together")] if ALL in sites else named)


def interval_note(run: Run) -> Html:
    has = any(m.at(h.name, run.metric).low is not None for m in run.methods for h in run.hospitals)
    if not has:
        return Html("")
    alike = " They take images as independent, as those of one patient are not." if unit_of(run) == "image" else ""
    return Html(
        f"The ranges in brackets are {interval_name(run)}s: the wider the range, the less certain the score.{alike}"
    )


def costs(run: Run) -> Html:
    cost = [run.cost(method) for method in run.methods]
    parts = amounts(
        (total([c.traffic for c in cost]), numbers.traffic, "{} of traffic"),
        (total([c.seconds for c in cost]), numbers.time, "{} of time"),
        (total([c.watt_hours for c in cost]), numbers.energy, "an estimated {} of energy"),
    )
    if not parts:
        return Html("The cost was not measured.")
    subject = "Training the model" if len(run.methods) == 1 else "Training all models"
    so_far = "" if run.finished else " so far"
    return Html(f"{subject} took {comma_list(parts)}{so_far}.")


def amounts(*entries: tuple[float | None, Callable[[float], str], str]) -> list[Html]:
    return [safe(pattern.format(unit(value))) for value, unit, pattern in entries if value is not None]


def limits(run: Run) -> list[Html]:
    """What a reader might take from the report although it is not in it."""
    found = []
    if not run.finished:
        found.append(Html("<strong>The run did not finish.</strong> The report shows what it had written up to then."))
    if run.kind == "demo":
        found.append(
            Html("The patients of this demonstration are simulated: it shows the method, not a medical result.")
        )
    if run.finished:
        found.append(
            Html(
                "The scores are for patients of these hospitals at the time when the data were collected. They may not "
                "hold for other hospitals, for later years, or where data are recorded in another way."
            )
        )
        found.append(
            Html("A good prediction shows neither what causes the outcome nor that acting on it helps patients.")
        )
    if unit_of(run) == "image":
        found.append(Html(COUNTED))
    found += small_hospitals(run) + undefined_scores(run)
    if len(run.methods) == 1 and run.finished:
        found.append(Html("Only one way of training was tried, so the report cannot say whether another is better."))
    if run.finished and run.repeats == 1:
        found.append(Html("Each model was trained once. Another random start would give slightly different numbers."))
    if len(run.differences) > 20:
        found.append(
            Html(
                f"{len(run.differences):,} comparisons were made. Unless the verdicts were corrected for that, a "
                "few differences are expected to be due to chance."
            )
        )
    if any(run.cost(method).watt_hours is not None for method in run.methods):
        found.append(Html("Energy is estimated from processor time and traffic; it was not read from a power meter."))
    return found


def small_hospitals(run: Run) -> list[Html]:
    small = [h for h in run.hospitals if h.test is not None and h.test < FEW]
    if not small:
        return []
    if len(small) <= NAMED:
        where = comma_list([Html(f"{safe(h.name)} ({h.test})") for h in small])
        return [Html(f"Few {units_of(run)} were held out for testing at {where}; the scores there are uncertain.")]
    return [
        Html(
            f"At {plural(len(small), 'hospital')} fewer than {FEW} {units_of(run)} were held out for testing; scores "
            "there are uncertain."
        )
    ]


def undefined_scores(run: Run) -> list[Html]:
    """Main scores that do not exist, with the reason; by hospital, since the reason lies in its patients."""
    missing: dict[str, str] = {}
    for method in run.methods:
        for hospital in run.hospitals:
            scores = method.scores.sites.get(hospital.name, {})
            if run.metric in scores and scores[run.metric].value is None:
                missing.setdefault(hospital.name, scores[run.metric].reason)
    if not missing:
        return []
    label = safe(label_of(run.metric))
    if len(missing) <= NAMED:
        return [Html(f"{label} is not defined at {safe(site)}: {safe(reason)}.") for site, reason in missing.items()]
    reason = next(iter(missing.values()))
    return [Html(f"{label} is not defined at {plural(len(missing), 'hospital')} (for example: {safe(reason)}).")]
