"""Who took part in the rounds of a study over real hospitals, who was missing, and why."""

from collections import Counter

from wardround.report.html.markup import Html, paragraph, safe, table
from wardround.runs.courses import Course
from wardround.runs.run import Run

MOST_REASONS = 3


def attendance_section(run: Run) -> Html:
    """A line a hospital; nothing in simulation, where everybody who is asked answers."""
    course = next((one for one in run.courses if one.rounds), None)
    if run.kind != "deployed" or course is None:
        return Html("")
    names = sorted({*(site for sites in course.answered for site in sites), *missing_sites(course)})
    lead = "Every hospital answered in every round." if not missing_sites(course) else sentence(course)
    rows = [row(course, name) for name in names]
    columns = [Html(title) for title in ("Hospital", "Rounds", "Missed, and why")]
    return Html(paragraph(safe(lead)) + table("Rounds in which each hospital took part", columns, rows))


def sentence(course: Course) -> str:
    short = sum(bool(one) for one in course.missing)
    return f"In {short:,} of {len(course.rounds):,} rounds a hospital was missing; the others continued without it."


def missing_sites(course: Course) -> set[str]:
    return {site for one in course.missing for site in one}


def row(course: Course, name: str) -> list[Html]:
    took = sum(name in sites for sites in course.answered)
    why: Counter[str] = Counter()
    rounds: dict[str, list[int]] = {}
    for number, reasons in zip(course.rounds, course.missing, strict=True):
        if name in reasons:
            why[reasons[name]] += 1
            rounds.setdefault(reasons[name], []).append(number)
    words = [f"{spans(rounds[reason])}: {reason}" for reason, _ in why.most_common(MOST_REASONS)]
    if len(why) > MOST_REASONS:
        words.append(f"and {len(why) - MOST_REASONS} more reasons")
    told = Html("<br>".join(safe(one) for one in words)) if words else Html("none")
    return [safe(name), Html(f"{took:,} of {len(course.rounds):,}"), told]


def spans(rounds: list[int]) -> str:
    """Rounds in words.

    >>> spans([3])
    'round 3'
    >>> spans([2, 3, 4, 9])
    'rounds 2 to 4, 9'
    """
    parts: list[list[int]] = []
    for number in sorted(rounds):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    written = [f"{one[0]} to {one[-1]}" if len(one) > 1 else f"{one[0]}" for one in parts]
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(written)}"
