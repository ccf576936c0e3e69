"""The recommendation of `wardround partners` in sentences: with whom to train, why, and what it gains."""

import math
from collections.abc import Mapping, Sequence

MEASURES = {
    "evidence": "The expected loss per patient from using this site's data instead of one's own; 0 is best.",
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


def headline(asking: str, taken: Sequence[str], others: Sequence[str], helps: str, advice: str) -> str:
    """The answer in a sentence or two; `advice` is for a site that is left without partners."""
    if not taken:
        return (
            f"Joining does not help {asking}: no site is likely to help it. {advice[:1].upper()}{advice[1:]}.".replace(
                "..", "."
            )
        )
    advice = f"Train with {comma_list(taken)}" + (f", not with {comma_list(others)}." if others else ".")
    if helps == "no":
        return f"Joining does not help {asking}: its own patients alone gave a better model. If it joins: {advice}"
    if helps == "unclear":
        return f"{advice} Whether that helps {asking} cannot be seen from so few patients."
    return advice


def comma_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def gain_words(
    asking: str, helps: str, metric: str, figures: Mapping[str, float | None], splits: int, patients: int
) -> str:
    """What training alone, with the partners and with everybody reached on held-out patients."""
    shown = {name: "unknown" if value is None else f"{value:.3f}" for name, value in figures.items()}
    label = {"roc_auc": "ROC-AUC"}.get(metric, metric)
    seen = (
        f"On {patients} held-out patients of {asking} in each of {splits} splits, {label} was {shown['alone']} with "
        f"its own patients only, {shown['together']} with the chosen partners and {shown['everyone']} with everybody."
    )
    meaning = {
        "yes": "The gain is larger than chance would explain.",
        "no": "Training with partners did worse than training alone, by more than chance would explain.",
        "unclear": "The difference may be due to chance.",
    }[helps]
    return f"{seen} {meaning}"


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
