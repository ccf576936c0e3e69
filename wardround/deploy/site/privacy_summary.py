"""What an offered study costs in privacy, in plain words: its promise, what the ledger says, what no noise covers."""

from typing import NamedTuple

from wardround.deploy.site.policy import Policy
from wardround.study.file import Study
from wardround.study.release_noise import release_noise

NOT_COVERED = (
    "Taken to be public: names and kinds of the columns, labels of the outcome, and numbers of rows. "
    "Statistics, losses and figures that leave a real site have noise of their own; "
    "the final figures of a simulation are exact."
)
"""In the same words as in the report."""


class LedgerCharges(NamedTuple):
    """Epsilon in the site's ledger: of one study, and of all."""

    this: float
    all: float


def privacy_cost(study: Study, used: float, policy: Policy, paid: LedgerCharges) -> tuple[str, ...]:
    """What the study promises of privacy, what the ledger says, and what no noise covers."""
    section = study.privacy
    if section is None:
        return (epsilon_sentence(None, used, policy.epsilon),)
    if section.epsilon is None:
        first = (
            f"Noise of {section.noise_multiplier:g} times the clipping bound of {section.clip:g}, for "
            f"{study.study.rounds} rounds. No epsilon is promised: it depends on the number of your patients."
        )
    else:
        first = epsilon_sentence(section.epsilon, used, policy.epsilon)
    whom = (
        "each of your patients: the model and your answers hardly reveal whether a patient is in the data"
        if section.level == "sample"
        else "your site as a whole: the model hardly reveals whether your site took part"
    )
    sentences = [first, f"This protects {whom} (delta {section.delta:g})."]
    cut = "Each patient's gradient is" if section.level == "sample" else "Your answers are"
    adapts = ", which adapts" if section.quantile is not None else ""
    sentences.append(f"{cut} cut to a length of {section.clip:g}{adapts}.")
    if section.level == "site" and all(one.name != "secure_sum" for one in study.transforms):
        sentences.append(
            "The coordinator sees your answers one by one, protected by your own share of the noise only; the transform"
            " secure_sum would hide them."
        )
    sentences += release_sentences(study)
    sentences.append(
        f"Your privacy ledger is charged before each answer: {paid.all:.3g} is spent so far by all studies,"
        f" {paid.this:.3g} of it by this one (delta {policy.delta:g}). What is spent is never refunded."
    )
    return (*sentences, NOT_COVERED)


def release_sentences(study: Study) -> list[str]:
    """What is told beside the rounds, under how much noise, and which patients pay for it."""
    found, section = release_noise(study), study.privacy
    if found.looks is None or section is None:
        return [
            "No statistics, losses or figures of your patients are sent: the study declares how columns are prepared."
        ]
    # Each patient is in one part of the rows, so the promise is that of the part that pays most.
    before = (
        "nothing for the preparation, whose columns are declared"
        if found.statistics is None
        else f"{section.statistics:.0%} of it for noised statistics of the preparation"
    )
    return [
        f"Every patient is in one part of the rows and pays once: training patients for the rounds ({before}),"
        f" validation patients for at most {found.look_count} noised losses (noise multiplier {found.looks:.3g}), test"
        f" patients for one noised table of figures ({found.figures or 0.0:.3g})."
    ]


def epsilon_sentence(epsilon: float | None, used: float, most: float | None) -> str:
    cap = (
        f"{used:g} of {most:g} is promised to studies approved earlier"
        if most is not None
        else "your policy sets no limit"
    )
    if epsilon is None:
        return (
            f"It adds no noise and gives no formal guarantee: its answers might reveal something about single patients."
            f" Epsilon: none; {cap}."
        )
    left = f"; {most - used - epsilon:g} would be left" if most is not None else ""
    return f"Epsilon {epsilon:g}; {cap}{left}."
