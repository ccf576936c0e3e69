"""A method made ready to train on one split of a study's data: planned once, checked, and passed on to training.

Everything that can be known to be wrong is refused from shapes alone, before anything is compiled. The noise of a
[privacy] table comes last: to find it the algorithm is run on a stand-in model, which takes a compiler.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from wardround.core.contracts import Algorithm, Model, Params, Progress, Transform
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine.budget import UNLIMITED, CostBudget
from wardround.engine.checks import refuse_few
from wardround.engine.fit import EarlyStopping
from wardround.engine.participation import Participation
from wardround.engine.simulate import Simulation
from wardround.evaluate.metrics import default_metric, metrics_for
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method
from wardround.study.noised_figures import simulated_look
from wardround.study.privacy import Protection
from wardround.study.transform_chain import transform_of
from wardround.workflows.cost.budget import budget_of, refuse_unknown_factors
from wardround.workflows.partners.choose import refuse_partner_choice, refuse_user, user_of


@dataclass(frozen=True)
class TrainingPlan:
    """All that training one method on one split takes, for everybody or for one asking site."""

    study: Study
    """With the asking site, and with the noise that this method needs."""
    setting: Setting
    method: Method
    repeat: int
    model: Model
    algorithm: Algorithm
    transform: Transform
    participation: Participation
    evaluated: np.ndarray[Any, Any]
    """The sites whose patients are predicted, by number."""
    protection: Protection | None = None

    @property
    def federation(self) -> Federation:
        return self.setting.federation

    @property
    def seed(self) -> int:
        return self.study.study.seed + self.repeat

    def first_params(self) -> Params:
        """The model before training."""
        params: Params = self.model.init(jax.random.key(self.seed))
        return params

    def engine(self) -> Simulation:
        """The sites of this split, simulated."""
        return Simulation(
            self.federation,
            seed=self.seed,
            transform=self.transform,
            tables=self.setting.tables,
            largest_cohort=self.participation.largest,
            evaluated=self.evaluated,
            look=simulated_look(self.study, self.federation.task, self.seed),
        )


Plans = Sequence[Sequence[TrainingPlan]]
"""Of one split: for every method one plan, or one for each site that asks in turn."""


def plan_training(study: Study, setting: Setting, method: Method, repeat: int = 0) -> TrainingPlan:
    """One method on one split, with the noise that its [privacy] needs."""
    return with_noise(draft(study, setting, method, repeat))


def plan_methods(study: Study, setting: Setting, methods: Sequence[Method], repeat: int) -> Plans:
    """Every method on one split."""
    return [
        [plan_training(asked, setting, method, repeat) for asked in askings(study, setting, method)]
        for method in methods
    ]


def draft(study: Study, setting: Setting, method: Method, repeat: int = 0) -> TrainingPlan:
    """The plan before its noise is found: nothing is compiled for it."""
    federation, seed = setting.federation, study.study.seed + repeat
    bare = study if study.privacy is None else study.model_copy(update={"privacy": None})
    return TrainingPlan(
        study,
        setting,
        method,
        repeat,
        model=assemble.model_of(study, federation.task),
        algorithm=assemble.build(bare, method, federation.task, federation.sites),
        transform=transform_of(study, federation.sites),
        participation=assemble.participation_of(study, federation.sites, seed),
        evaluated=evaluated_sites(study, setting, study.study.seed),
    )


def with_noise(plan: TrainingPlan) -> TrainingPlan:
    """The plan with the noise that its [privacy] needs, and what its rounds will cost."""
    if plan.study.privacy is None:
        return plan
    federation = plan.federation
    study, protection = assemble.with_noise(plan.study, plan.method, federation, plan.participation)
    algorithm = assemble.build(study, plan.method, federation.task, federation.sites)
    return replace(plan, study=study, algorithm=algorithm, protection=protection)


def askings(study: Study, setting: Setting, method: Method) -> list[Study]:
    """The study once for every site that asks: for each in turn where it says so and the method is for one site."""
    if study.compare is None or study.compare.users == "one" or not method.for_one_site:
        return [study]
    sites = [setting.federation.sites[int(site)] for site in evaluated_sites(study, setting, study.study.seed)]
    return [study.model_copy(update={"study": study.study.model_copy(update={"user": site})}) for site in sites]


def evaluated_sites(study: Study, setting: Setting, seed: int) -> np.ndarray[Any, Any]:
    """All sites, or as many as the study allows, drawn once."""
    everyone = np.arange(len(setting.federation.sites))
    if len(everyone) <= study.evaluation.sites:
        return everyone
    generator = np.random.default_rng((seed, 0xE7A1))
    return np.sort(generator.choice(everyone, study.evaluation.sites, replace=False))


def has_validation(plan: TrainingPlan) -> bool:
    """Whether any of the evaluated sites has validation rows to judge a round by."""
    return bool(plan.federation.part("validation")[1][plan.evaluated].any())


def stopping_of(study: Study) -> EarlyStopping | None:
    if study.stopping is None:
        return None
    site = study.study.user if study.stopping.user else None
    return EarlyStopping(study.stopping.patience, study.stopping.smallest, site)


def main_metric(study: Study, setting: Setting) -> str:
    return study.study.metric or default_metric(setting.federation.task)


# ---- what is refused before the first round ----


def check_methods(study: Study, setting: Setting, methods: Sequence[Method]) -> Plans:
    """Every method planned on the first split; whatever can be known to be wrong is refused, and nothing written."""
    metrics_for(setting.federation.task, [main_metric(study, setting)])
    refuse_askings(study, setting, methods)
    drafts = [[draft(asked, setting, method) for asked in askings(study, setting, method)] for method in methods]
    refuse_without_validation(drafts)
    # Plans of one method differ in the asking site alone, which changes no shape: the first speaks for all.
    for plan, *_ in drafts:
        first_shapes(plan)
        refuse_uncovered(plan)
        if plan.method.choice:
            refuse_partner_choice(plan.study, setting, plan.method, plan.participation)
    refuse_lonely_rounds(drafts)
    plans = [[with_noise(plan) for plan in each] for each in drafts]
    if study.privacy is not None:
        for plan, *_ in plans:
            first_shapes(plan)
    return plans


def first_shapes(plan: TrainingPlan) -> tuple[Params, Progress]:
    """Shapes of the model and of the state before the first round; refuses what cannot work or does not fit."""
    shapes: Params = jax.eval_shape(plan.first_params)
    with plan.engine() as engine:
        planned_budget(plan, engine, shapes)
        return shapes, engine.first_shapes(plan.algorithm, shapes)


def planned_budget(plan: TrainingPlan, engine: Simulation, params: Params) -> CostBudget:
    """What this training may spend; refused where the first round is too much already."""
    if plan.study.budget is None and not plan.transform.choices:
        return UNLIMITED
    shapes = engine.first_shapes(plan.algorithm, params)
    engine.message_bytes(plan.algorithm, shapes)  # a transform that chooses refuses what no choice can send
    if plan.study.budget is None:
        return UNLIMITED
    refuse_unknown_factors(plan.study, plan.federation.sites)
    cohort = plan.participation.cohort(1)
    rows = int(plan.federation.part("train")[1][cohort].sum())
    return budget_of(
        plan.study,
        plan.algorithm,
        plan.federation.task,
        first=(engine.round_bytes(plan.algorithm, shapes, cohort), rows),
    )


def refuse_uncovered(plan: TrainingPlan) -> None:
    """An algorithm that looks at patients in ways that [privacy] adds no noise to."""
    if plan.study.privacy is not None:
        assemble.refuse_uncovered(plan.study, plan.method, plan.federation)


def refuse_without_validation(plans: Plans) -> None:
    """Early stopping looks at validation rows."""
    first = plans[0][0]
    if first.study.stopping and not has_validation(first):
        raise Refusal(
            "early stopping needs validation rows, and no site has any",
            where="[stopping]",
            remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or remove [stopping]",
        )


def refuse_lonely_rounds(plans: Plans) -> None:
    """A transform that hides sites among each other needs several with patients in every round."""
    first = plans[0][0]
    if first.transform.fewest <= 1 or all(one.algorithm.silent or one.algorithm.pools for (one, *_) in plans):
        return
    rows = first.federation.part("train")[1]
    for number in range(1, first.study.study.rounds + 1):
        there = int(np.count_nonzero(rows[first.participation.cohort(number)]))
        refuse_few(first.transform, there, f"[participation], round {number}")


def refuse_askings(study: Study, setting: Setting, methods: Sequence[Method]) -> None:
    """A study that asks for one site needs a site that can be helped."""
    turns = study.compare is not None and study.compare.users == "each"
    if study.study.user is not None or (any(method.for_one_site for method in methods) and not turns):
        refuse_user(study, setting)
    if study.stopping and study.stopping.user:
        user = user_of(study, setting.federation)
        if not setting.federation.part("validation")[1][user]:
            raise Refusal(
                "the asking site has no validation patients to stop by",
                where="[stopping] user",
                remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or remove user = true",
            )
