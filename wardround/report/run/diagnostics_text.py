"""What an algorithm told of itself round by round, in words: whose weight fell, who shares a model, why it stopped."""

from collections.abc import Sequence

from wardround.report import numbers
from wardround.report.html.markup import Html, join, plain, safe
from wardround.report.run.summary import NAMED, amounts, comma_list, plural, strong
from wardround.runs.courses import ChoiceRound, Course, Diagnostics
from wardround.runs.run import Run

KEPT = 0.9
"""Share of its first weight above which a hospital is said to have kept it."""
HALF = 0.5


def possessive(name: str) -> Html:
    """The name as an owner: Bo's, St. Thomas'."""
    return safe(f"{plain(name)}'" if plain(name).endswith(("s", "S")) else f"{plain(name)}'s")


def bullets_of(diagnostics: Diagnostics, asking: str) -> list[Html]:
    """All that can be said about one course."""
    found = weights(diagnostics, asking) if "alpha" in diagnostics.sites else []
    found += clusters(diagnostics) if "cluster" in diagnostics.sites else []
    return found + ending(diagnostics, asking)


def weights(diagnostics: Diagnostics, asking: str) -> list[Html]:
    partners = [site for site in diagnostics.sites["alpha"] if site != asking]
    if len(partners) <= NAMED:
        return [sentence for site in partners if (sentence := weight_of(diagnostics, site))]
    last = [values[-1] or 0.0 for site in partners if (values := diagnostics.sites["alpha"][site])]
    gone = sum(value <= 0 for value in last)
    kept = sum(value >= KEPT for value in last)
    words = (
        f"Of {plural(len(partners), 'partner')}, {kept:,} kept at least {numbers.share(KEPT)} of the full weight, "
        f"{len(partners) - kept - gone:,} count for less, and {gone:,} no longer count at the end."
    )
    return [Html(words)]


def weight_of(diagnostics: Diagnostics, site: str) -> Html:
    """Cleveland's weight fell to 0.1 by round 30: its patients pulled the model elsewhere."""
    known = [(r, x) for r, x in zip(diagnostics.rounds, diagnostics.sites["alpha"][site], strict=True) if x is not None]
    counted = [(r, x) for r, x in known if x > 0]
    if not known:
        return Html("")
    if not counted:
        came = diagnostics.sites.get("rounds", {}).get(site, ())
        why = (
            "took no part in the training" if came and not came[-1] else "did not count in any round that was recorded"
        )
        return Html(f"{strong(site)} {why}.")
    first, (last_round, last) = counted[0][1], known[-1]
    if last <= 0:
        gone = next(r for r, x in known if x <= 0 and r > counted[0][0])
        return Html(
            f"<strong>{possessive(site)}</strong> weight fell to 0 by round {gone:,}: its patients pulled the model "
            "in another direction, and from then on they no longer counted."
        )
    value, last_round = two_digits(last), min(last_round, diagnostics.stopped or last_round)
    if last >= KEPT * first:
        reason = "its patients pulled the model in much the same direction"
        return Html(f"{strong(site)} kept its weight ({value} in round {last_round:,}): {reason}.")
    where = "in another direction" if last < HALF * first else "in a somewhat different direction"
    return Html(
        f"<strong>{possessive(site)}</strong> weight fell to {value} by round {last_round:,}: its patients pulled the "
        f"model {where}."
    )


def two_digits(value: float) -> str:
    """A weight from 0 to 1; more digits would claim more than erosion knows.

    >>> two_digits(0.1357), two_digits(0.1), two_digits(0.002)
    ('0.14', '0.1', '0.002')
    """
    return f"{value:.2g}"


def clusters(diagnostics: Diagnostics) -> list[Html]:
    """Who shares a model in the end, and since when."""
    series = diagnostics.sites["cluster"]
    last = {site: int(values[-1]) for site, values in series.items() if values and values[-1]}
    found = []
    for number in sorted(set(last.values())):
        members = [safe(site) for site, own in last.items() if own == number]
        who = comma_list(members) if len(members) <= NAMED else plural(len(members), "hospital")
        shares = "uses" if len(members) == 1 else "share"
        found.append(Html(f"{who} {shares} <strong>model {number}</strong>."))
    changes = [
        diagnostics.rounds[index]
        for values in series.values()
        for index in range(1, len(values))
        if values[index] != values[index - 1] and values[index - 1]
    ]
    if found and len(diagnostics.rounds) > 1:
        since = f"The last change was seen in round {max(changes):,}." if changes else "No hospital changed its group."
        found.append(Html(since))
    return found


def ending(diagnostics: Diagnostics, asking: str) -> list[Html]:
    found = []
    if diagnostics.stopped is not None:
        found.append(
            Html(
                f"<strong>Training was stopped by round {diagnostics.stopped:,}</strong>: the hospitals no longer "
                "agreed on a direction, and a further step would have made the model worse for a hospital that still "
                "counts."
            )
        )
    if diagnostics.skipped:
        who = safe(asking) if asking else Html("the asking hospital")
        found.append(
            Html(
                f"{plural(diagnostics.skipped, 'round')} changed nothing, since {who} was absent or had nothing "
                "to learn."
            )
        )
    return found + absences(diagnostics)


def absences(diagnostics: Diagnostics) -> list[Html]:
    """Hospitals that came to fewer rounds than others."""
    came = {site: int(values[-1] or 0) for site, values in diagnostics.sites.get("rounds", {}).items() if values}
    most = max(came.values(), default=0)
    fewer = [(site, number) for site, number in came.items() if 0 < number < most]
    if not fewer:
        return []
    if len(fewer) > NAMED:
        return [Html(f"{plural(len(fewer), 'hospital')} took part in fewer rounds than others.")]
    return [Html(f"{safe(site)} took part in {number:,} of {plural(most, 'round')}.") for site, number in fewer]


def choices(run: Run) -> list[tuple[str, tuple[str, ...], ChoiceRound]]:
    """Every choice of partners: by whom, and the labels of the methods that were trained upon it."""
    found: list[tuple[str, list[str], ChoiceRound]] = []
    for method in run.methods:
        for course in run.first_courses(method.name):
            if course.choice is None:
                continue
            asker = run.asker(course)
            same = next((entry for entry in found if entry[0] == asker and is_same_choice(entry[2], course)), None)
            if same is None:
                found.append((asker, [method.label], course.choice))
            else:
                same[1].append(method.label)
    return [(asker, tuple(labels), choosing) for asker, labels, choosing in found]


def is_same_choice(choosing: ChoiceRound, course: Course) -> bool:
    other = course.choice
    return other is not None and (choosing.chosen, choosing.scores) == (other.chosen, other.scores)


def choice_words(run: Run, asker: str, labels: Sequence[str], choosing: ChoiceRound) -> Html:
    """Whom the asking hospital chose, for which models, and what it cost to find out."""
    who = strong(asker) if asker else Html("the asking hospital")
    among = [site for site in choosing.scores if site != asker]
    if not choosing.chosen:
        words = Html(f"Before training, {who} chose no partner")
    elif len(choosing.chosen) <= NAMED:
        words = Html(f"Before training, {who} chose {comma_list([strong(site) for site in choosing.chosen])}")
    else:
        words = Html(f"Before training, {who} chose {plural(len(choosing.chosen), 'partner')}")
    if len(among) > len(choosing.chosen):
        words = Html(f"{words} out of {plural(len(among), 'hospital')}")
    if len(run.methods) > 1:
        words = Html(f"{words} (for {comma_list([safe(label) for label in labels])})")
    spent = amounts(
        (choosing.cost.traffic, numbers.traffic, "{} of traffic"), (choosing.cost.seconds, numbers.time, "{}")
    )
    cost = Html(f" Choosing took {comma_list(spent)}; the traffic is part of the totals below.") if spent else Html("")
    return join([words, Html("."), cost])
