"""The noise of an analysis under [privacy]: calibrated once for all of its exchanges, from the approved words alone."""

import math
from typing import NamedTuple

import jax
import numpy as np

from wardround.core.analysis import NOISE, Agreed, Analysis
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.calibration import gaussian_noise
from wardround.privacy.noised_sums import noise_key, with_gaussian_noise
from wardround.study.file import Study


class AnalysisNoise(NamedTuple):
    """What each site adds to every number of an answer, and what an exchange costs its patients."""

    multiplier: float
    deviation: float
    exchanges: int

    @property
    def step(self) -> Step:
        """Of one exchange: a Gaussian sum over all patients."""
        return Step(1.0, self.multiplier, 1)


def is_noised(study: Study, analysis: Analysis) -> bool:
    """Whether all that leaves is to be under noise, by [privacy] or by the analysis itself."""
    return study.privacy is not None or analysis.own_noise is not None


def analysis_noise(study: Study, analysis: Analysis, agreed: Agreed) -> AnalysisNoise | None:
    """None without [privacy]."""
    if study.privacy is None:
        return None
    assert analysis.sensitivity is not None, "refused before"
    said = study.privacy
    multiplier = said.noise_multiplier or gaussian_noise(analysis.most, float(said.epsilon or 0.0), said.delta)
    return AnalysisNoise(multiplier, multiplier * analysis.sensitivity(agreed), analysis.most)


def with_noise(answer: Message, noise: AnalysisNoise, seed: int | None, *words: str) -> Message:
    """An answer as it leaves its site; `seed` is for tests and simulations that say so."""
    leaves, structure = jax.tree.flatten(answer.arrays)
    noised = [
        with_gaussian_noise(np.asarray(leaf, np.float64), noise.deviation, noise_key(seed, *words, str(number)))
        for number, leaf in enumerate(leaves)
    ]
    return Message(jax.tree.unflatten(structure, noised))


def with_deviation(total: Message, noise: AnalysisNoise | None, sites: int) -> Message:
    """The sum with what its noise is: every site has added its own."""
    if noise is None:
        return total
    return Message({**total.arrays, NOISE: np.array(noise.deviation * math.sqrt(sites))})


def privacy_sentence(study: Study, noise: AnalysisNoise | None) -> str | None:
    if noise is None or study.privacy is None:
        return None
    spent = epsilon([Step(1.0, noise.multiplier, noise.exchanges)], study.privacy.delta)
    return (
        f"Each site added noise of a standard deviation of {noise.deviation:.3g} to its sums: every patient is"
        f" protected with an epsilon of {spent:.3g} at a delta of {study.privacy.delta:g}."
    )


WHOLE_MODELS = "classifier_selection"


def refuse_privacy(study: Study, analysis: Analysis, name: str) -> None:
    """What [privacy] asks for and this analysis cannot give."""
    said = study.privacy
    if said is None and analysis.sensitivity is not None:
        raise Refusal(
            f"the sums of '{name}' over clipped columns are meant to be noised, and the study has no [privacy]: they "
            "would tell of groups of any size",
            where="[analysis] ranges",
            remedy="add [privacy] with an epsilon, or remove ranges",
        )
    if said is None:
        return
    if name == WHOLE_MODELS:
        raise Refusal(
            "sites exchange whole classifiers, and noise cannot be added to one after it was trained: every site would"
            " get what yours learned of its patients, without noise",
            where="[privacy]",
            remedy="remove [privacy], or train one common model with it; what noise does to the rules is measured in"
            ' simulation, with [explain] classifier = "study"',
        )
    if analysis.sensitivity is None:
        raise Refusal(
            f"the analysis '{name}' has no noise to offer for [privacy]",
            where="[privacy]",
            remedy="remove [privacy]; or choose cross_table, group_means, kaplan_meier, or a linear, logistic or "
            "Poisson glm with the ranges of its columns",
        )
    if said.level != "sample":
        raise Refusal(
            "an analysis protects patients, not whole sites", where="[privacy] level", remedy='say level = "sample"'
        )
