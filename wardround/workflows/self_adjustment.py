"""Training that adjusts itself, for a study that says neither how fast nor how long to train.

Every method gets the learning rate with which the validation patients of the first split are predicted best, and
trains until their loss has not fallen for a while; the model of the best round is kept. Test patients are never looked
at. What was found is written down, so that a resumed or repeated run finds the same. A private study is never adjusted:
every try would look at its patients once more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from wardround.runs.folder import RunFolder
from wardround.study.file import StoppingSection, Study
from wardround.study.methods import Method
from wardround.workflows.learning_rates import rate_of, rate_setting, with_rate
from wardround.workflows.training_plan import Plans, has_validation, plan_methods

FILE = "adjustment.jsonl"
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
MOST_ROUNDS = 200
PATIENCE = 10
"""Looks at the validation patients without a lower loss, after which it is enough."""
CONVEX = ("logistic", "linear")


class Adjusted(NamedTuple):
    """The study and its methods with what was found, their plans, and a remark for the reader."""

    study: Study
    methods: Sequence[Method]
    plans: Plans
    notes: tuple[str, ...] = ()


def adjusts_itself(study: Study, plans: Plans) -> bool:
    """Whether the study leaves both the rate and the rounds open, and has validation patients to judge them by."""
    said = set(study.algorithm.settings) | {key for own in _own_settings(study) for key in own}
    return (
        "rounds" not in study.study.model_fields_set
        and not any(name.endswith("learning_rate") for name in said)
        and study.stopping is None
        and study.privacy is None
        and not (study.compare and study.compare.rates)
        and has_validation(plans[0][0])
        and jax.process_count() == 1
    )


def _own_settings(study: Study) -> list[Mapping[str, Any]]:
    return list(study.compare.settings.values()) if study.compare else []


def longest_training(study: Study, plans: Plans) -> int:
    """The rounds after which a method has ended at the latest."""
    return MOST_ROUNDS if adjusts_itself(study, plans) else study.study.rounds


def with_open_end(study: Study) -> Study:
    """The study that trains until it is enough."""
    longest = study.study.model_copy(update={"rounds": MOST_ROUNDS})
    return study.model_copy(update={"study": longest, "stopping": StoppingSection(patience=PATIENCE)})


def adjust(study: Study, methods: Sequence[Method], plans: Plans, folder: RunFolder) -> Adjusted:
    """Find every method's rate, or read what was found before; a study that says its own is left as it is."""
    if not adjusts_itself(study, plans):
        return Adjusted(study, methods, plans)
    study, setting = with_open_end(study), plans[0][0].setting
    plans = plan_methods(study, setting, methods, 0)
    found: dict[str, Any] = {entry["method"]: entry for entry in folder.lines(FILE)}
    for of_method in plans:
        method = of_method[0].method
        if method.name in found or not has_open_rate(study, method):
            continue
        rated = rate_of(of_method, RATES)
        if rated is not None:
            found[method.name] = rated.told()
            folder.append(FILE, found[method.name])
    methods = [settled(method, found) for method in methods]
    return Adjusted(study, methods, plan_methods(study, setting, methods, 0), (adjustment_note(methods, found),))


def has_open_rate(study: Study, method: Method) -> bool:
    """All rows in one place are fitted to the end where the loss is convex: no rate moves that."""
    fitted = method.algorithm == "centralized" and study.model.name in CONVEX
    return rate_setting(method) is not None and not fitted


def settled(method: Method, found: Mapping[str, Mapping[str, Any]]) -> Method:
    rate = found.get(method.name, {}).get("rate")
    return method if rate is None else with_rate(method, float(rate))


def adjusted_before(study: Study, methods: Sequence[Method], folder: RunFolder) -> tuple[Study, list[Method]]:
    """The study and its methods as a finished run in this folder had trained them."""
    found: dict[str, Any] = {entry["method"]: entry for entry in folder.lines(FILE)}
    if not found:
        return study, list(methods)
    return with_open_end(study), [settled(method, found) for method in methods]


def adjustment_note(methods: Sequence[Method], found: Mapping[str, Mapping[str, Any]]) -> str:
    chosen = "; ".join(
        f"{method.label} {found[method.name]['rate']:g}"
        for method in methods
        if found.get(method.name, {}).get("rate") is not None
    )
    return (
        "The study says neither a learning rate nor a number of rounds: rates were chosen by the loss on the "
        f"validation patients of the first split{f' ({chosen})' if chosen else ''}, and training went on until this "
        f"loss had not fallen for {PATIENCE} rounds, {MOST_ROUNDS} at most. To fix them, or to train over real sites, "
        "say learning_rate in [algorithm] and rounds in [study]."
    )
