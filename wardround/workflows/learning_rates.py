"""Gives every compared method the learning rate with which it does best on validation patients of the first split.

Test patients are never looked at, and later repeats keep the rate of the first. A method that trains for one site in
turn is judged by every asking site's loss under the model trained for it. A method that chooses partners chooses them
once, at the study's own rate, and the rates are tried with these; in the comparison it chooses anew, at its rate.

A rate is an ordinary setting, fixed when a program is compiled. For the search it is made a number that the state
carries, and so is the asking site: one program then serves all rates and all sites.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core.contracts import Aggregator, Algorithm, Array, Key, Message, Model, Params, Shard, Tree
from wardround.core.errors import Diverged, Refusal
from wardround.core.quality import Quality
from wardround.engine import registry
from wardround.engine.fit import Schedule, fit
from wardround.engine.participation import restrict
from wardround.engine.simulate import Simulation
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study
from wardround.study.methods import Method, asking_site, site_number
from wardround.workflows.partners.choose import choose, question_of
from wardround.workflows.training_plan import TrainingPlan, evaluated_sites, has_validation, stopping_of

RATES = ("learning_rate", "outer_learning_rate")
"""The setting that is the rate: the first of these that the algorithm knows."""
MOVABLE = (*RATES, "user")
"""Settings that the state can carry: they act only where a site or the server takes a step."""


class RateChoice(NamedTuple):
    """The rate that a method got, and the loss of each that was tried (none: training diverged)."""

    method: str
    setting: str
    rate: float | None
    """None where training diverged with every rate."""
    losses: Mapping[float, float | None]

    def told(self) -> dict[str, Any]:
        tried = [{"rate": rate, "loss": loss} for rate, loss in self.losses.items()]
        return {"method": self.method, "setting": self.setting, "rate": self.rate, "tried": tried}


def rate_setting(method: Method) -> str | None:
    """Which setting of the method's algorithm is its rate; none where it knows no rate."""
    known = {parameter.name for parameter in registry.find("algorithm", method.algorithm).parameters}
    return next((name for name in RATES if name in known), None)


def with_rate(method: Method, rate: float) -> Method:
    name = rate_setting(method)
    if name is None:
        return method
    return method._replace(settings=tuple(sorted({**dict(method.settings), name: rate}.items())))


def rate_of(
    plans: Sequence[TrainingPlan], rates: Sequence[float], on_try: Callable[[], None] = lambda: None
) -> RateChoice | None:
    """The best of the rates for the planned method, the smaller of equals; none where it knows no rate."""
    method = plans[0].method
    name = rate_setting(method)
    if name is None:
        return None
    losses: dict[float, list[tuple[float, int]]] = {rate: [] for rate in rates}
    for plan in plans:
        for rate, loss in losses_for(plan, rates, on_try).items():
            losses[rate].append(loss)
    found = {rate: pooled_loss(parts) for rate, parts in losses.items()}
    known = {rate: loss for rate, loss in found.items() if loss is not None}
    best = min(sorted(known), key=lambda rate: known[rate], default=None)
    return RateChoice(method.name, name, best, found)


def pooled_loss(parts: Sequence[tuple[float, int]]) -> float | None:
    """The mean over validation patients of all asking sites; none where training diverged for one of them."""
    rows = sum(count for _, count in parts)
    total = sum(loss * count for loss, count in parts if count)
    return total / rows if rows and np.isfinite(total) else None


def losses_for(
    plan: TrainingPlan, rates: Sequence[float], on_try: Callable[[], None]
) -> dict[float, tuple[float, int]]:
    """For each rate the loss on the validation patients of the sites this is trained for, and how many they are."""
    found: dict[float, tuple[float, int]] = {}
    with plan.engine() as engine:
        params = plan.first_params()
        if plan.method.choice:
            algorithm = movable_algorithm(plan)
            question = question_of(plan.study, plan.setting, engine, algorithm, params, plan.participation)
            chosen = choose(question, plan.method)
            plan = replace(plan, participation=restrict(plan.participation, [chosen.user, *chosen.partners]))
        for rate in rates:
            found[rate] = loss_at(replace(plan, method=with_rate(plan.method, rate)), engine, params)
            on_try()
    return found


def loss_at(plan: TrainingPlan, engine: Simulation, params: Params) -> tuple[float, int]:
    """Train as the comparison will, and look at the validation patients; infinite where training diverges."""
    study, method = plan.study, plan.method
    stopping, task, sites = stopping_of(study), plan.federation.task, plan.federation.sites
    validates = stopping is not None and has_validation(plan)
    schedule = Schedule(study.study.rounds, study.evaluation.every if stopping else study.study.rounds)

    def judged(algorithm: Algorithm) -> Quality:
        fitted = fit(algorithm, engine, params, plan.participation, schedule, validates=validates, stopping=stopping)
        return engine.judge(algorithm, fitted.progress, "validation")

    try:
        try:
            quality = judged(movable_algorithm(plan))
        except jax.errors.ConcretizationTypeError:  # a factory that looks at its rate: one program a rate, then
            quality = judged(assemble.build(study, method, task, sites))
    except Diverged:
        return np.inf, 1
    if method.for_one_site and study.study.user is not None:
        asking = [site == study.study.user for site in quality.sites]
        return quality.mean_losses().get(study.study.user, 0.0), int(quality.rows[asking].sum())
    return quality.mean_loss, int(quality.rows.sum())


def refuse_rates(study: Study, setting: Setting, methods: Sequence[Method]) -> None:
    """Rates can only be judged where there are validation patients, and never at the cost of a promised privacy."""
    if study.compare is None or not study.compare.rates:
        return
    if study.privacy is not None:
        raise Refusal(
            "every rate that is tried trains on the patients once more, which [privacy] does not account for",
            where="[compare] rates",
            remedy="remove rates and give each method's learning_rate in [compare.settings]",
        )
    rows = setting.federation.part("validation")[1][evaluated_sites(study, setting, study.study.seed)]
    lacking = "no site has any"
    if study.compare.users == "one" and study.study.user and any(method.for_one_site for method in methods):
        rows = setting.federation.part("validation")[1][[site_number(study.study.user, setting.federation.sites)]]
        lacking = "the asking site has none"
    if not rows.any():
        raise Refusal(
            f"rates are chosen by the loss of validation patients, and {lacking}",
            where="[compare] rates",
            remedy="give validation a share, such as [data] shares = [0.6, 0.2, 0.2], or remove rates",
        )


def movable_algorithm(plan: TrainingPlan) -> Algorithm:
    """The method's algorithm with its rate and its asking site in the state; equal to that of another rate or site."""
    study, method, federation = plan.study, plan.method, plan.federation
    component = registry.find("algorithm", method.algorithm, where="[algorithm]")
    said = {**dict(method.settings), **asking_site(study, component, federation.sites)}
    aggregator = registry.find("aggregator", study.aggregator.name, where="[aggregator]")
    family = Family(
        component,
        assemble.freeze({name: value for name, value in said.items() if name not in MOVABLE}),
        aggregator,
        assemble.freeze(study.aggregator.settings),
        plan.model,
    )
    combined = aggregator.build(where="[aggregator]", **study.aggregator.settings)
    fixed: Algorithm = component.build(family.model, combined, where="[algorithm]", **said)
    moving = {name: said[name] for name in MOVABLE if name in said}
    return _with_movable_settings(family)._replace(
        init=InitialState(family, fixed.init, moving), init_client=InitialState(family, fixed.init_client, moving)
    )


class Family(NamedTuple):
    """An algorithm but for its rate and asking site."""

    component: registry.Component
    settings: tuple[tuple[str, Any], ...]
    aggregator: registry.Component
    aggregator_settings: tuple[tuple[str, Any], ...]
    model: Model


@dataclass(frozen=True)
class InitialState:
    """The first state, with the moving settings in it.

    Two that differ in nothing else are equal: so are their algorithms, and the engine finds the same program for both.
    """

    family: Family
    begin: Callable[..., Tree] = field(compare=False)
    moving: Mapping[str, Any] = field(compare=False)

    def __call__(self, *given: Any) -> Tree:
        return {"own": self.begin(*given), "moving": {name: jnp.asarray(one) for name, one in self.moving.items()}}


@lru_cache(maxsize=64)
def _with_movable_settings(family: Family) -> Algorithm:
    """The algorithm that takes its moving settings from the state; what begins it is still to be put in."""
    settings = dict(family.settings)
    combined: Aggregator = family.aggregator.build(where="[aggregator]", **dict(family.aggregator_settings))
    usual: Algorithm = family.component.build(family.model, combined, where="[algorithm]", **settings)

    def remade(moving: Mapping[str, Any]) -> Algorithm:
        """Built while the program is traced, so that the settings are numbers the program is given."""
        made: Algorithm = build_unchecked(family.component, (family.model, combined), {**settings, **moving})
        return made

    def client(message: Message, kept: Tree, shard: Shard, key: Key) -> tuple[Message, Tree]:
        said, own = remade(kept["moving"]).client(message, kept["own"], shard, key)
        return said, {**kept, "own": own}

    def personal(message: Message, kept: Tree, shard: Shard, key: Key) -> Params:
        one = remade(kept["moving"]).personal
        assert one is not None
        return one.fit(message, kept["own"], shard, key)

    def tells(state: Tree) -> Mapping[str, Array]:
        return usual.tells(state["own"]) if usual.tells else {}

    return usual._replace(
        broadcast=lambda state: usual.broadcast(state["own"]),
        client=client,
        server=lambda state, answers: {**state, "own": remade(state["moving"]).server(state["own"], answers)},
        params=lambda state: usual.params(state["own"]),
        personal=None if usual.personal is None else usual.personal._replace(fit=personal),
        tells=tells if usual.tells else None,
    )


def build_unchecked(component: registry.Component, given: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """The factory called without looking at the settings, which cannot be looked at while a program is traced."""
    places = [p for p in inspect.signature(component.factory).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return component.factory(*given[: len(places)], **settings)
