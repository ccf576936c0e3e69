"""The answer in sentences: who gains from whom, for which patients, how sure that is; or that nobody does."""

from collections.abc import Sequence

from wardround.runs.explain.explain_result import ChoiceStrategy, HandedOver, OperatingCell, RuleInWords

ORDER = ("rules", "hybrid", "threshold")
"""Rules come first, since a clinician can read them."""


def percent(share: float | None) -> str:
    """
    >>> percent(0.1234), percent(0.004), percent(None)
    ('12 %', '0.4 %', 'an unknown share')
    """
    if share is None:
        return "an unknown share"
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def whose(names: Sequence[str]) -> str:
    """
    >>> whose(["B"]), whose(["B", "C"])
    ("B's model", "B's or C's model")
    """
    return " or ".join(f"{name}'s" for name in names) + " model"


def chosen_strategy(cell: OperatingCell) -> ChoiceStrategy | None:
    """The one that the answer is about: confirmed before passed, rules before thresholds."""
    listed = [one for name in ORDER if (one := cell.strategy(name)) is not None and one.passes]
    return next((one for one in listed if one.confirmed), listed[0] if listed else None)


def verdict_of(strategy: ChoiceStrategy | None) -> str:
    if strategy is None:
        return "none"
    return "gain" if strategy.confirmed else "unconfirmed"


def headline(site: str, cell: OperatingCell, rules: Sequence[RuleInWords]) -> str:
    """One sentence for a clinician."""
    strategy = chosen_strategy(cell)
    if strategy is None:
        return (
            f"No benefit for {site}: for none of its patients is another site's model shown to be right more often. "
            f"{site} keeps its own model for everybody."
        )
    sources = [name for name, count in (strategy.test.sources or {}).items() if count]
    described = f" ({rules_in_words(strategy, rules)})" if strategy.rules else ""
    whom = f"On {percent(strategy.test.share)} of {site}'s patients{described}"
    if not strategy.confirmed:
        other = whose(sources or ["another site"])
        return (
            f"No benefit for {site} that holds: {whom[0].lower()}{whom[1:]} {other} looked better among validation "
            f"patients, but test patients do not confirm it: {flips_in_words(strategy.test)}. "
            f"{site} keeps its own model for everybody."
        )
    return f"{whom} {whose(sources)} is right more often: {flips_in_words(strategy.test)}."


def rules_in_words(strategy: ChoiceStrategy, rules: Sequence[RuleInWords]) -> str:
    used = [one.words for one in rules[: strategy.rules or 0]]
    shown = "; or ".join(used[:3])
    more = f"; or {len(used) - 3} further rules" if len(used) > 3 else ""
    rest = "; and others whom no rule describes" if strategy.name == "hybrid" and strategy.threshold is not None else ""
    return f"{shown}{more}{rest}"


def flips_in_words(done: HandedOver) -> str:
    """
    >>> done = HandedOver.model_construct(right=62, wrong=38, success=0.62, low=0.57, high=0.67)
    >>> flips_in_words(done)
    '62 % (57 to 67) of the 100 changed decisions were right'
    """
    if done.success is None:
        return "it changes no decision"
    span = f" ({100 * done.low:.0f} to {100 * done.high:.0f})" if done.low is not None and done.high is not None else ""
    many = (done.right or 0) + (done.wrong or 0)
    return f"{percent(done.success)}{span} of the {many:,} changed decisions were right"


def further_sentences(site: str, cell: OperatingCell, others: Sequence[OperatingCell]) -> list[str]:
    """What else a reader should know: accuracy of those handed over, other operating points, the other threshold."""
    said = []
    strategy = chosen_strategy(cell)
    if strategy is not None and strategy.test.local_accuracy is not None and strategy.test.other_accuracy is not None:
        done = strategy.test
        said.append(
            f"Of these patients {site}'s own model judges {percent(done.local_accuracy)} rightly, and the other "
            f"{percent(done.other_accuracy)}: {(done.right or 0) - (done.wrong or 0):+,} right decisions among "
            f"{done.rows:,} test rows."
        )
    for one in others:
        found = chosen_strategy(one)
        if found is None:
            said.append(f"{one.words[:1].upper()}{one.words[1:]}{kept(one)}: no benefit.")
        else:
            held = "confirmed" if found.confirmed else "not confirmed by test patients"
            said.append(
                f"{one.words[:1].upper()}{one.words[1:]}{kept(one)}: {found.name}, {percent(found.test.share)} of the "
                f"patients, {flips_in_words(found.test)} ({held})."
            )
    return said


def kept(cell: OperatingCell) -> str:
    return ", other models with their own site's threshold" if cell.keeps == "own" else ""
