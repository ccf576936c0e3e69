"""What a private study tells beside the answers of its rounds: how often, under how much noise, at whose cost.

All of it follows from the words of the study, so a site finds it out for itself and believes no message. Each patient
is in one part of the rows. Training patients pay for the statistics of the preparation (a share of epsilon) and for the
rounds, validation patients for the looks at the model, test patients for the final figures; the promise holds for each.
With level "site" statistics, looks and figures are not made: their noise would have to hide a whole site's patients.
"""

from functools import lru_cache
from typing import NamedTuple

from wardround.data.noised_preparation import StatisticsNoise
from wardround.privacy.accountant import Step
from wardround.privacy.calibration import noise_for
from wardround.study.file import PrivacySection, Study

STATISTICS = ("noised_counts", "noised_moments")
"""The queries of a private preparation, each answered once."""
NAMES_SHARE = 0.05
"""Of delta: the probability that a category which only one patient has is named."""
SPARE_LOOKS = 1
"""A coordinator that died may have to look once more."""


class ReleaseNoise(NamedTuple):
    """Noise multipliers: of each statistic, of each of so many looks, of the figures; none for what is not made."""

    statistics: float | None
    looks: float | None
    look_count: int
    figures: float | None


def look_count(study: Study) -> int:
    """How often the validation patients are looked at, at most."""
    watched = study.stopping is not None and study.stopping.user  # looked at before the first round, too
    return -(-study.study.rounds // study.evaluation.every) + int(watched) + SPARE_LOOKS


def release_noise(study: Study) -> ReleaseNoise:
    """What the study's [privacy] needs for all that is told beside the rounds."""
    privacy, looks = study.privacy, look_count(study)
    if privacy is None or privacy.level == "site":
        return ReleaseNoise(None, None, looks, None)
    if privacy.epsilon is None:
        given = privacy.noise_multiplier
        return ReleaseNoise(None if is_declared(study) else given, given, looks, given)
    share, epsilon, delta = privacy.statistics, privacy.epsilon, privacy.delta
    statistics = None if is_declared(study) else least_noise(len(STATISTICS), share * epsilon, share * delta)
    return ReleaseNoise(statistics, least_noise(looks, epsilon, delta), looks, least_noise(1, epsilon, delta))


@lru_cache(maxsize=256)
def least_noise(times: int, epsilon: float, delta: float) -> float:
    """With which so many sums over all rows of a part cost no more than epsilon."""
    return noise_for([(Step(1.0, 0.0, times),)], epsilon, delta)


def is_declared(study: Study) -> bool:
    """Whether the study says itself how columns become numbers: then all of them, and nothing is asked."""
    return bool(study.data.preparation.ranges or study.data.preparation.categories)


def statistics_noise(study: Study, seed: int | None = None) -> StatisticsNoise | None:
    """For the fit of a preparation; none for a study without [privacy], which asks exactly."""
    if study.privacy is None:
        return None
    return StatisticsNoise(release_noise(study).statistics, NAMES_SHARE * study.privacy.delta, seed)


def statistics_steps(study: Study) -> tuple[Step, ...]:
    """What the statistics of the preparation cost each training patient."""
    noise = release_noise(study).statistics
    return () if noise is None else (Step(1.0, noise, len(STATISTICS)),)


def names_delta(privacy: PrivacySection, steps: tuple[Step, ...]) -> float:
    """What the naming of categories takes of delta, where there are such statistics."""
    return NAMES_SHARE * privacy.delta if steps else 0.0
