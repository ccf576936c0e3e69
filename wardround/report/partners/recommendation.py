"""The recommendation of `wardround partners` in sentences: with whom to train, why, and what it gains."""

import math
from collections.abc import Mapping, Sequence

MEASURES = {
    "evidence": "How much the asking site's expected loss falls with this site among its partners, the others being "
    "chosen best; above 0 speaks for it.",
    "ndoye": "How well the model of this site does on the asking site's patients, against its own (transfer loss).",
    "gradient_distance": "How differently this site would change the common model, relative to the asking site.",
    "distribution_distance": "How differently the patients' features are distributed, beyond chance.",
    "influence": "How much the asking site's loss would rise without this site (estimated without training again).",
    "leave_one_out": "How much the asking site's loss rises when trained again without this site.",
    "shapley": "What this site adds to the common model on average, in whatever order sites join.",
}
"""What a measure of partners says of one site; of a measure that is not here, its own summary is told."""
MATRICES = {
    "transfer": "How much worse a site's own model does on another's patients than the other's own: 0 is as good.",
    "gradient_distance": "How differently two sites would change the common model, relative to the site in the row.",
    "distribution_distance": "How differently the patients' features are distributed, beyond chance: "
    "from 0 (alike) to 1.",
}
"""What a measure says of every pair of sites."""


FEW_OF_ITS_OWN = 30
"""Patients of the asking site, training and validation, below which they cannot show that it differs from others."""
RECOMMENDED = "partial_pooling"
"""The method for whoever does not want to choose partners."""


def headline(
    asking: str,
    taken: Sequence[str],
    others: Sequence[str],
    helps: str,
    advice: str,
    *,
    own: int,
    needed: int | None = None,
) -> str:
    """The answer in a sentence or two; `advice` is for a site that is left without partners."""
    alone = f"{advice[:1].upper()}{advice[1:]}."
    if not taken and not others:
        return f"There is nobody for {asking} to train with. {alone}"
    if not taken:
        if helps == "no":
            return f"Joining does not help {asking}: no site is likely to help it. {alone}"
        return f"No site is likely to help {asking}, but {too_few(own, needed)} to rule it out. {alone}"
    advice = f"Train with {comma_list(taken)}" + (f", not with {comma_list(others)}." if others else ".")
    if helps == "no":
        return f"Joining does not help {asking}, or too little to matter. If it joins: {advice}"
    if helps == "unclear":
        return f"{advice} Whether that helps {asking} is not clear: {too_few(own, needed)} to tell."
    return advice


def too_few(own: int, needed: int | None) -> str:
    """How many patients there are, and how many it would take."""
    if needed is None:
        return f"its {own} patients are too few"
    return f"its {own} patients are too few, and it would take about {needed:,}"


def comma_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def gain_words(
    asking: str,
    helps: str,
    metric: str,
    figures: Mapping[str, float | None],
    *,
    splits: int,
    patients: int,
    own: int,
    tried: Sequence[str],
    taken: bool,
    span: tuple[float | None, float | None, float | None],
    needed: int | None,
    expected: bool,
) -> str:
    """What training alone, with the partners and with everybody reached, what that means, and what cannot be told.

    `span` is the difference in loss (with partners less alone) and its interval; `expected` says that it comes from all
    sites' evidence and not from the held-out patients alone.
    """
    shown = {name: "unknown" if value is None else f"{value:.3f}" for name, value in figures.items()}
    label = {"roc_auc": "ROC-AUC"}.get(metric, metric)
    if not tried:
        seen = f"On {patients} held-out patients of {asking}, {label} was {shown['alone']} with its own patients only."
        return f"{seen} Nobody was there to be trained with, so whether joining helps is not known."
    who = "the chosen partners" if taken else f"{comma_list(tried)}, the most promising,"
    sentences = [
        f"On {patients} held-out patients of {asking} in each of {splits} splits, {label} was {shown['alone']} with "
        f"its own patients only, {shown['together']} with {who} and {shown['everyone']} with everybody.",
        gain_sentence(helps, span, expected, own),
    ]
    if helps == "unclear" and needed is not None:
        sentences.append(f"If the difference is what it seems, about {needed:,} patients of {asking} would show it.")
    if own < FEW_OF_ITS_OWN:
        sentences.append(
            f"With {own} patients of its own, {asking} can be told what the other sites have in common, but not "
            "whether it differs from them: the advice rests on the others."
        )
    return " ".join(sentences)


def gain_sentence(helps: str, span: tuple[float | None, float | None, float | None], expected: bool, own: int) -> str:
    """The gain with its interval, and what follows from it."""
    meaning = {
        "yes": "The gain is larger than chance would explain.",
        "no": "So joining does not help, or too little to matter.",
        "unclear": "The difference may be due to chance.",
    }[helps]
    value, low, high = span
    if value is None or low is None or high is None:
        return meaning
    source = f"By all sites' evidence, {own} patients of its own included" if expected else "By these patients"
    turn = "falls" if value < 0 else "rises"
    return (
        f"{source}, the loss per patient {turn} by {abs(value):.3f} with them (95 % interval of the fall: {-high:.3f} "
        f"to {-low:.3f}). {meaning}"
    )


def method_advice(private: bool) -> str:
    """What to train with for whoever does not want to choose partners, and why."""
    if private:
        return (
            'For a site that does not want to choose partners: [algorithm] name = "model_interpolation", which mixes '
            f"the common model with the site's own by cross-validation. {RECOMMENDED}, which is recommended otherwise, "
            "tells sums to which a private study would have to add noise, and does not."
        )
    return (
        f'For a site that does not want to choose partners: [algorithm] name = "{RECOMMENDED}". All sites learn '
        "together how much they differ in each coefficient, and each keeps its own as far as its patients show it: "
        "nearly the common model where sites are alike, nearly its own where it stands alone."
    )


def copied(site: str, other: str, share: float) -> str:
    """Two sites that hold the same patients."""
    return (
        f"{100 * share:.0f} % of the patients of {site} or {other} are held by both, row for row: together they "
        "count for more than they know. Withdraw one of them, and ask again."
    )


def overwhelming(site: str, asking: str, share: float) -> str:
    """A partner that is nearly all of the training data."""
    return (
        f"{site} would be {100 * share:.0f} % of the training rows: a common model with it is {site}'s model, in which "
        f'{asking} hardly counts. [algorithm] name = "partial_pooling" lets {asking} differ from it.'
    )


def impossible(site: str) -> str:
    """A site whose answers contradict themselves."""
    return (
        f"What {site} told about its patients cannot be: no patients give such a score and information. Nothing it "
        "said was used. Ask it to look at its data and its software."
    )


def reason(gap: float, error: float, differences: Sequence[str]) -> str:
    """For or against a site: what its model loses on the asking site's patients, and how its patients differ."""
    if not (math.isfinite(gap) and math.isfinite(error)):
        words = "Its own model could not be tested on the asking site's patients."
    elif gap > 2 * error:
        words = "Its own model does worse on the asking site's patients than the asking site's own."
    elif gap < -2 * error:
        words = "Its own model does better on the asking site's patients than the asking site's own."
    else:
        words = "Its own model does about as well on the asking site's patients as the asking site's own."
    return " ".join([words, *differences[:2]])


def unlike_most(compared_with: str, difference: str) -> str:
    """A column in which a site differs from most of its peers."""
    return f"Unlike at most other sites (compared with {compared_with}): {difference}"
