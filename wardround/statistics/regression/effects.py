"""Effects as a clinician reads them: "per 10 of age the odds of death rise by 31 % (95 % interval 18 to 46 %)"."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wardround.core.analysis import Agreed
from wardround.core.errors import Refusal
from wardround.statistics.regression.design import Design, DesignColumn, reference_of

NOUNS = {
    "odds": "odds of {outcome}",
    "rate": "rate of {outcome}",
    "mean": "mean of {outcome}",
    "hazard": "hazard of {outcome}",
}


class Effect(NamedTuple):
    """A coefficient with its interval and p-value; on the scale of the linear predictor."""

    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


def units_of(per: Sequence[str], design: Design) -> dict[str, float]:
    """From "age = 10" to the unit in which the effect of age is told."""
    known = {one.label for one in design.columns}
    found = {}
    for words in per:
        name, sign, amount = (part.strip() for part in words.partition("="))
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = math.nan
        if not sign or name not in known or not found[name] > 0:
            raise Refusal(
                f"{words!r} does not say in what unit an effect is told",
                where="[analysis] per",
                remedy='write it like per = ["age = 10"], with a column of the formula',
            )
    return found


def scaled(effect: Effect, by: float) -> Effect:
    low, high = (None if one is None else one * by for one in (effect.low, effect.high))
    return Effect(effect.value * by, low, high, effect.p_value)


def sentence(
    column: DesignColumn,
    effect: Effect,
    *,
    design: Design,
    agreed: Agreed,
    ratio: str,
    units: Mapping[str, float],
    level: float = 0.95,
) -> str:
    """One effect in one sentence; of a product of columns, how it changes the effect of the others."""
    unit = units.get(column.label, 1.0)
    effect = scaled(effect, unit)
    outcome = outcome_name(design)
    what = subject(column, design, agreed, unit)
    noun = NOUNS[ratio].format(outcome=outcome) if ratio else outcome
    if ":" in column.label and len(design.formula.terms[column.term]) > 1:
        told = ratio_words(effect) if ratio else number_words(effect)
        kind = "multiplies" if ratio else "adds to"
        return f"The interaction {column.label} {kind} the effects on the {noun}: {told}{proof(effect)}."
    if ratio:
        return f"{what} the {noun} {change(effect, bool(column.levels), level, plural=ratio == 'odds')}{proof(effect)}."
    return f"{what} {noun} {difference(effect, bool(column.levels), level)}{proof(effect)}."


def outcome_name(design: Design) -> str:
    name = design.formula.outcome
    return f"{name} = {design.events[name]}" if design.events else name


def subject(column: DesignColumn, design: Design, agreed: Agreed, unit: float) -> str:
    if not column.levels:
        return f"Per {unit:g} of {column.label}"
    name, shown = column.levels[0]
    variable = next(one for one in design.formula.variables if one.column == name)
    return f"With {name} = {shown}, compared with {reference_of(variable, agreed.columns[name])},"


def change(effect: Effect, is_level: bool, level: float, *, plural: bool) -> str:
    """A ratio as a percentage; one that doubles or more as a factor."""
    ratio = math.exp(min(effect.value, 700.0))
    ends = [None if one is None else math.exp(min(one, 700.0)) for one in (effect.low, effect.high)]
    known = [one for one in ends if one is not None]
    interval = f"{100 * level:g} % interval"
    if ratio >= 2 or max(known, default=0.0) >= 10:
        told = f"{'are' if plural else 'is'} {ratio:.3g} times as high"
        return f"{told} ({interval} {known[0]:.3g} to {known[1]:.3g})" if len(known) == 2 else told
    percent = 100 * (ratio - 1)
    if is_level:
        told = f"{'are' if plural else 'is'} {abs(percent):.3g} % {'higher' if percent >= 0 else 'lower'}"
    else:
        told = f"{'rise' if percent >= 0 else 'fall'}{'' if plural else 's'} by {abs(percent):.3g} %"
    if len(known) < 2:
        return told
    low, high = (100 * (end - 1) for end in known)
    if (low >= 0) == (high >= 0):
        inner = sorted((abs(low), abs(high)))
        return f"{told} ({interval} {inner[0]:.3g} to {inner[1]:.3g} %)"
    return f"{told} ({interval} {abs(low):.3g} % lower to {high:.3g} % higher)"


def difference(effect: Effect, is_level: bool, level: float) -> str:
    up = effect.value >= 0
    told = f"is {'higher' if up else 'lower'} by {abs(effect.value):.4g}"
    if effect.low is None or effect.high is None:
        return told
    ends = (effect.low, effect.high) if up else (-effect.high, -effect.low)
    return f"{told} ({100 * level:g} % interval {ends[0]:.4g} to {ends[1]:.4g})"


def ratio_words(effect: Effect) -> str:
    ends = [None if one is None else math.exp(min(one, 700.0)) for one in (effect.low, effect.high)]
    told = f"ratio {math.exp(min(effect.value, 700.0)):.3g}"
    return told if ends[0] is None or ends[1] is None else f"{told} ({ends[0]:.3g} to {ends[1]:.3g})"


def number_words(effect: Effect) -> str:
    ends = "" if effect.low is None or effect.high is None else f" ({effect.low:.4g} to {effect.high:.4g})"
    return f"{effect.value:.4g}{ends}"


def proof(effect: Effect) -> str:
    if effect.p_value is None:
        return ""
    return ", p < 0.001" if effect.p_value < 0.001 else f", p = {effect.p_value:.3f}"
