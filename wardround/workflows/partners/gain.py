"""Whether training with the advised partners helps the asking site: the gain, its interval, and the verdict from it.

Two things are known. The models trained alone, with the partners and with everybody predict patients that none of them
has seen: that is the measured difference, honest and, on a few dozen patients, uncertain. And all sites together know
the asking site's coefficients far better than its own patients do (`wardround.partners.knowledge`): by these the models
as they were trained lose so much more or less, with a posterior standard deviation. Where the second is to be had (a
model of up to 256 numbers that all partners share, for classes) the interval is its, and the measured difference may
only take a "yes" or "no" back; elsewhere the interval is that of the measured difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from wardround.core.contracts import Params, Scores
from wardround.core.errors import Refusal
from wardround.engine import registry
from wardround.engine.fit import Schedule, fit
from wardround.engine.participation import everyone, restrict
from wardround.engine.simulate import Simulation
from wardround.evaluate.comparison import paired_difference
from wardround.evaluate.metrics import measure_sites
from wardround.partners.choice import Question
from wardround.partners.knowledge import expected_gain, learn_from_sites
from wardround.partners.probes.information import WIDEST, parameter_count
from wardround.partners.similarity.histograms import ask_histograms
from wardround.report.partners.recommendation import gain_words
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import method_of
from wardround.workflows.partners.choose import question_of
from wardround.workflows.run import train
from wardround.workflows.training_plan import TrainingPlan, main_metric, plan_training

NEGLIGIBLE = 0.002
"""A gain in loss that nobody would join for."""
WIDTH = 1.96
"""Standard errors to each side of a 95 % interval."""
MANY = 100
"""Times the present patients, beyond which a needed number of patients is not worth telling."""


class Expected(NamedTuple):
    """How much less the model with partners is expected to lose than the one without, and the error of that."""

    gain: float
    error: float


@dataclass(frozen=True)
class Ways:
    """One split: how three ways to train predict the held-out patients, and what is expected of the first two."""

    setting: Setting
    alone: Scores
    together: Scores
    everyone: Scores
    expected: Expected | None


def predict_all_sites(plan: TrainingPlan) -> TrainingPlan:
    """With the patients of all sites predicted, however few [evaluation] asks for: the asking site must be there."""
    return replace(plan, evaluated=np.arange(len(plan.federation.sites)))


def train_ways(plan: TrainingPlan, user: int, partners: Sequence[int]) -> Ways:
    """Train alone, with these partners, and with everybody, all on training patients."""
    study, setting = plan.study, plan.setting
    with plan.engine() as engine:
        asked = question_of(study, setting, engine, plan.algorithm, plan.first_params(), plan.participation)
        question = replace(asked, seed=plan.seed)
        together, model = train_among(engine, question, [user, *partners])
        common, _ = train_among(engine, question, plan.participation.cohort(1).tolist())
        expectable = bool(partners) and bool(setting.federation.task.classes)
        expected = expected_from(question, model) if expectable else None
    known = {parameter.name for parameter in registry.find("algorithm", "local").parameters}
    inherited = {key: value for key, value in study.algorithm.settings.items() if key in known}
    own = plan_training(study, setting, method_of("local", "local", inherited), plan.repeat)
    alone = train(predict_all_sites(own), None, part="validation").scores
    return Ways(setting, alone, together, common, expected)


def train_among(engine: Simulation, question: Question, sites: Sequence[int]) -> tuple[Scores, Params]:
    """Predictions of the validation rows after training among these sites only, and the model."""
    participation = restrict(everyone(len(engine.sites)), sites)
    fitted = fit(question.algorithm, engine, question.params, participation, Schedule(question.rounds))
    scores = engine.predict(question.algorithm, fitted.progress, "validation")
    return scores, question.algorithm.params(fitted.progress.server)


def expected_from(question: Question, together: Params) -> Expected | None:
    """What all sites together expect of a model trained with partners, against one of the asking site's own."""
    if question.algorithm.personal is not None or parameter_count(question.params) > WIDEST:
        return None
    try:
        known = learn_from_sites(question, ask_histograms(question.engine), held_out=True)
    except Refusal:  # nothing to tell sites apart by: the held-out patients have to do
        return None
    if known is None:
        return None
    alone = question.train([question.user])
    user = known.place_of(question.user)
    return Expected(*expected_gain(known, user, known.change_to(alone), known.change_to(together)))


def measure_gain(study: Study, ways: Sequence[Ways], user: int, tried: Sequence[str], taken: bool) -> dict[str, Any]:
    """What training with the tried partners gains at the asking site against training alone, and the verdict.

    The tried partners are the advised ones; where nobody is advised (not `taken`), the most promising site.
    """
    setting = ways[0].setting
    metric = loss_name(setting)
    figures = {name: mean_figure(ways, name, metric, user) for name in ("alone", "together", "everyone")}
    main = main_metric(study, setting)
    also = {name: mean_figure(ways, name, main, user) for name in ("alone", "together", "everyone")}
    counts = setting.federation.counts[user]
    measured = measured_difference(study, ways, user, metric) if tried else (None, None, None)
    span, patients = measured, int(counts[1])
    expected = [one.expected for one in ways if one.expected is not None]
    if len(expected) == len(ways):
        # Splits share patients, so the error of their mean is taken to be that of one.
        gain = float(np.mean([one.gain for one in expected]))
        error = float(np.sqrt(np.mean([one.error**2 for one in expected])))
        span, patients = (-gain, -gain - WIDTH * error, -gain + WIDTH * error), int(counts[0] + counts[1])
    helps = verdict_of(span, measured, taken, NEGLIGIBLE if metric == "log_loss" else 0.0)
    needed = patients_needed(span, patients) if helps == "unclear" else None
    names = setting.federation.sites
    return {
        "helps": helps,
        "metric": metric,
        **figures,
        **dict(zip(("difference", "low", "high"), span, strict=True)),
        "measured": dict(zip(("difference", "low", "high"), measured, strict=True)),
        "also": {"metric": main, **also},
        "patients": int(counts[1]),
        "patients_needed": needed,
        "of": list(tried),
        "words": gain_words(
            names[user], helps, main, also, splits=len(ways), patients=int(counts[1]), own=int(counts[:2].sum()),
            tried=tried, taken=taken, span=span, needed=needed, expected=len(expected) == len(ways),
        ),
    }  # fmt: skip


def loss_name(setting: Setting) -> str:
    task = setting.federation.task
    return "pixel_log_loss" if task.segmentation else "rmse" if task.regression else "log_loss"


def mean_figure(ways: Sequence[Ways], way: str, metric: str, user: int) -> float | None:
    """The mean over the splits of a metric on the asking site's held-out patients."""
    values = []
    for one in ways:
        scores: Scores = getattr(one, way)
        task, positive = one.setting.federation.task, one.setting.positive
        values.append(measure_sites(scores, task, [metric], positive=positive).measure(metric, user).value)
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


Span = tuple[float | None, float | None, float | None]
"""A difference in loss, together less alone, and its interval."""


def measured_difference(study: Study, ways: Sequence[Ways], user: int, metric: str) -> Span:
    """Of the predictions of held-out patients."""
    setting = ways[0].setting
    share = float(setting.federation.counts[user, 1] / setting.federation.counts[user].sum())
    found = paired_difference(
        [one.together for one in ways],
        [one.alone for one in ways],
        setting.federation.task,
        metric,
        of=user,
        positive=setting.positive,
        resamples=max(200, study.evaluation.resamples),
        test_share=share if len(ways) > 1 else 0.0,
        seed=study.study.seed,
    )
    return found.value, found.low, found.high


def verdict_of(span: Span, measured: Span, taken: bool, negligible: float) -> str:
    """Yes, no or unclear: as the interval of the difference says (less is better), unless held-out patients object.

    "No" also where the gain is at most negligible. "Yes" is only said of partners that are advised.
    """
    _, low, high = span
    if low is None or high is None:
        return "unclear"
    _, held_low, held_high = measured
    if high < 0 and taken and not (held_low is not None and held_low > 0):
        return "yes"
    if low > -negligible and not (held_high is not None and held_high < 0):
        return "no"
    return "unclear"


def patients_needed(span: Span, patients: int) -> int | None:
    """How many patients of its own it would take to tell, if the difference is what it seems; none: no use to say.

    An interval narrows as the root of the number of patients. Rounded up to two digits.
    """
    value, low, high = span
    if value is None or low is None or high is None or abs(value) < NEGLIGIBLE:
        return None
    needed = patients * max(1.0, ((high - low) / 2 / abs(value)) ** 2)
    if needed > MANY * patients:
        return None
    step = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return int(math.ceil(needed / step) * step)
