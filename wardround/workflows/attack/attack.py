"""What a curious or lying coordinator could learn from a study, with its protections and without them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from wardround.core.contracts import Model
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.engine import registry
from wardround.engine.fit import Schedule, fit
from wardround.privacy.attacks import alphas, membership
from wardround.privacy.attacks.gradient_inversion import (
    Closeness,
    closeness,
    first_dense,
    invert_analytically,
    invert_by_matching,
)
from wardround.privacy.attacks.label_leak import label_of_one, label_shares, last_bias, mean_prediction
from wardround.report.notes import attack_notes
from wardround.study.file import Study
from wardround.study.methods import site_number
from wardround.workflows.attack.first_round import (
    FirstRound,
    observe_first_round,
    split_into_small_sites,
    training_rows,
)
from wardround.workflows.attack.lying_coordinator import from_losses, from_two_sums
from wardround.workflows.attack.shadow_models import Shadows, shadows_of
from wardround.workflows.training_plan import TrainingPlan, plan_training

MOST_ROWS = 2000
"""Of a site's rows that candidates are compared with."""
MOST_MATCHED = 3
"""Sites whose patient is searched for by optimisation, which takes seconds each."""
FEW = (2, 4, 8, 16, 32)
"""Patients a site whose sum is attacked until nobody is rebuilt from it."""
Say = Callable[[str], None]


class Variant(NamedTuple):
    """The study with or without what protects it."""

    name: str
    study: Study
    plan: TrainingPlan
    """Of the study's own method on the first split."""
    protections: tuple[str, ...]


def attack(study: Study, plan: TrainingPlan, *, shadows: int = 16, say: Say = lambda words: None) -> dict[str, Any]:
    """Every attack on every variant; what cannot be tried is told with its reason.

    `plan` is that of the study's own method on the first split.
    """
    every = variants(study, plan)
    found = [attack_variant(variant, every[0].plan, shadows, say) for variant in every]
    return {
        "study": study.study.name,
        "kind": "attack",
        "sites": len(plan.federation.sites),
        "shadows": shadows,
        "variants": found,
        "notes": attack_notes(
            [one.name for one in study.transforms],
            private=study.privacy is not None,
            one_patient=found[-1]["one_patient"]["rows"] if "few_patients" in found[-1] else None,
            few_patients=found[-1].get("few_patients", ()),
            losses=found[-1]["losses"],
            sums=found[-1]["sums"],
        ),
    }


def attack_variant(variant: Variant, bare: TrainingPlan, shadows: int, say: Say) -> dict[str, Any]:
    """All attacks on one variant; `bare` is the plan without any protection."""
    study, plan = variant.study, variant.plan
    single = split_into_small_sites(plan.federation, plan.seed)
    say(f"{variant.name}: listening to a round")
    told: dict[str, Any] = {"name": variant.name, "protections": list(variant.protections)}
    told["updates"] = attempt(lambda: from_updates(plan, plan.federation))
    told["one_patient"] = attempt(lambda: from_updates(plan, single))
    if not told["one_patient"].get("single_updates_seen", True) and told["one_patient"]["rows"].get("rebuilt"):
        told["few_patients"] = rebuild_from_few(plan)
    say(f"{variant.name}: lying about models and sites")
    told["losses"] = attempt(lambda: from_losses(study, plan))
    told["sums"] = attempt(lambda: from_two_sums(plan, bare))
    say(f"{variant.name}: training {shadows + 1} models")
    told["membership"] = attempt(lambda: from_model(study, plan, shadows))
    if study.algorithm.name == "weight_erosion":
        say(f"{variant.name}: looking at the weights")
        told["weights"] = attempt(lambda: from_weights(plan))
    return told


def variants(study: Study, plan: TrainingPlan) -> list[Variant]:
    protections = [one.name for one in study.transforms]
    if study.privacy is not None:
        protections.append(f"privacy of each {'patient' if study.privacy.level == 'sample' else 'site'}")
    if not protections:
        return [Variant("without protection", study, plan, ())]
    bare = study.model_copy(update={"transforms": [], "privacy": None})
    return [
        Variant("without protection", bare, plan_training(bare, plan.setting, plan.method), ()),
        Variant("as the study is", study, plan, tuple(protections)),
    ]


def rebuild_from_few(plan: TrainingPlan) -> list[dict[str, int]]:
    """How many patients a site it takes until nobody is rebuilt from the sum of all sites."""
    told: list[dict[str, int]] = []
    largest = int(plan.federation.part("train")[1].max(initial=0))
    for patients in (number for number in FEW if number <= largest):
        few = split_into_small_sites(plan.federation, plan.seed, patients)
        rows = attempt(partial(from_updates, plan, few)).get("rows", {})
        if "rebuilt" not in rows:
            break
        told.append({"patients": patients, "rows": rows["rows"], "rebuilt": rows["rebuilt"]})
        if not rows["rebuilt"]:
            break
    return told


def attempt(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What an attack finds, or why it cannot be tried."""
    try:
        return act()
    except Refusal as refusal:
        return {"not_tried": refusal.what}


# ---- from the updates of a round ----


def from_updates(plan: TrainingPlan, federation: Federation) -> dict[str, Any]:
    """Rows and labels from what is heard in the first round; `federation` may have other rows than the study's."""
    if plan.algorithm.silent:
        raise Refusal("no site sends anything", where="[algorithm]", remedy="attack an algorithm whose sites do")
    params = plan.first_params()
    heard = observe_first_round(plan.algorithm, plan.transform, federation, params, seed=plan.seed)
    return {
        "single_updates_seen": heard.single,
        "rows": rebuild_rows(plan.model, federation, heard, params),
        "labels": read_labels(plan, federation, heard, params),
    }


def rebuild_rows(model: Model, federation: Federation, heard: FirstRound, params: Any) -> dict[str, Any]:
    layer, task = first_dense(params), federation.task
    counts = federation.part("train")[1]
    middle = federation.x[federation.rows_of("train")].astype(np.float64).mean(axis=0)
    middle = middle / 255.0 if federation.x.dtype == np.uint8 else middle
    if layer is None and (counts.max(initial=0) > 1 or not task.classes):
        return {"not_tried": "the first layer is not dense: a batch would have to be searched for by optimisation"}
    found: list[Closeness] = []
    for site, update in enumerate(heard.updates):
        if update is None or (layer is None and len(found) == MOST_MATCHED):
            continue
        x, _ = training_rows(federation, site, MOST_ROWS)
        if layer is not None:
            candidates = invert_analytically(update, layer)
        else:
            slope = jax.tree.map(lambda leaf: -leaf, update)
            name = last_bias(params, task.outputs)
            label = label_of_one(slope[name]) if name else 0
            candidates = invert_by_matching(model, params, slope, [label], task.shape, steps=300)
        found.append(closeness(candidates, x, middle))
    return {
        "rows": sum(one.rows for one in found),
        "rebuilt": sum(one.rebuilt for one in found),
        "nearest": min((one.nearest for one in found), default=1.0),
        "typical": float(np.median([one.typical for one in found])) if found else 1.0,
        "by": "division" if layer is not None else "optimisation",
    }


def read_labels(plan: TrainingPlan, federation: Federation, heard: FirstRound, params: Any) -> dict[str, Any]:
    task = federation.task
    name = last_bias(params, task.outputs) if task.classification else None
    if name is None:
        return {"not_tried": "there are no classes, or the last layer has no bias"}
    guess = mean_prediction(plan.model, params, task.shape)
    real, read = [], []
    for site, update in enumerate(heard.updates):
        if update is None:
            continue
        labels = training_rows(federation, site, 10**9)[1]
        real.append(np.bincount(labels, minlength=task.outputs) / len(labels))
        slope = -np.asarray(update[name]) / step_length(plan.study, len(labels))
        read.append(np.eye(task.outputs)[label_of_one(slope)] if len(labels) == 1 else label_shares(slope, guess))
    shares, found = np.array(real), np.array(read)
    common = shares.mean(axis=0)
    if federation.counts[:, 0].max() > 1:
        error = float(np.abs(found - shares).sum(axis=1).mean() / 2)
        return {"error": error, "guess_error": float(np.abs(common - shares).sum(axis=1).mean() / 2)}
    right = found.argmax(axis=1) == shares.argmax(axis=1)
    return {"right": float(right.mean()), "guess_right": float(common.max())}


def step_length(study: Study, rows: int) -> float:
    """How long the steps of a site's round are together: rates, batches and passes are public."""
    component = registry.find("algorithm", study.algorithm.name)
    said = {parameter.name: parameter.default for parameter in component.parameters} | study.algorithm.settings
    size = int(said.get("batch_size") or 0)
    local = study.algorithm.name != "fed_sgd" and said.get("updates") != "gradient"
    steps = (-(-rows // size) if size else 1) * int(said.get("local_epochs") or 1) if local else 1
    return float(said.get("learning_rate") or 1.0) * max(1, steps)


# ---- from the model, and from the weights ----


def from_model(study: Study, plan: TrainingPlan, shadows: int) -> dict[str, Any]:
    trained: Shadows = shadows_of(study, plan, shadows + 1)
    simple = membership.yeom(-np.log(np.clip(trained.right[0], 1e-12, 1.0)), trained.members[0])
    ratios = membership.lira(membership.confidence(trained.right), trained.members)
    strong = membership.evaluate_attack(ratios, trained.members, 0.0)
    told: dict[str, Any] = {"yeom": simple._asdict(), "lira": strong._asdict()}
    if trained.epsilon is not None and study.privacy is not None:
        told["epsilon"] = trained.epsilon
        told["bound"] = membership.largest_advantage(trained.epsilon, study.privacy.delta)
    return told


def from_weights(plan: TrainingPlan) -> dict[str, Any]:
    """Whether the weights that Weight Erosion tells rank the partners by their prevalence."""
    study, federation, algorithm = plan.study, plan.federation, plan.algorithm
    with plan.engine() as engine:
        fitted = fit(algorithm, engine, plan.first_params(), plan.participation, Schedule(study.study.rounds))
    assert algorithm.tells is not None
    weights = np.asarray(algorithm.tells(fitted.progress.server)["alpha"])
    prevalence = [
        float(np.mean(training_rows(federation, site, 10**9)[1] == plan.setting.positive)) if rows else 0.0
        for site, rows in enumerate(federation.part("train")[1])
    ]
    user = site_number(study.study.user or "", federation.sites)
    return alphas.infer_prevalence(-weights, prevalence, user)._asdict()
