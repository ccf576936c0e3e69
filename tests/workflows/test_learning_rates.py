"""The rate a method gets is the one with the least validation loss, whoever computes it, and test rows play no part."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wardround.core.errors import Refusal
from wardround.evaluate.losses import loss_of
from wardround.study import assemble
from wardround.study.assemble import Setting
from wardround.study.file import Study, parse_study
from wardround.study.methods import Method, compared_methods
from wardround.workflows.learning_rates import (
    losses_for,
    movable_algorithm,
    rate_of,
    rate_setting,
    refuse_rates,
    with_rate,
)
from wardround.workflows.run import train
from wardround.workflows.training_plan import plan_methods, plan_training

RATES = [0.05, 0.5, 2.0]
Numbers = np.ndarray[Any, Any]


def study_with(methods: list[str], **tables: dict[str, Any]) -> Study:
    whole: dict[str, dict[str, Any]] = {
        "study": {"name": "rates", "seed": 3, "rounds": 4},
        "data": {"source": "triage", "hospitals": 3, "patients": 240},
        "algorithm": {"name": "fed_avg", "batch_size": 0},
        "compare": {"methods": methods, "users": "each", "rates": RATES},
    }
    for name, table in tables.items():
        whole[name] = {**whole.get(name, {}), **table}
    return parse_study(whole, where="here")


@pytest.fixture(scope="module")
def setting() -> Setting:
    return assemble.load_setting(study_with(["local"]), 3)


def method_of(study: Study, name: str) -> Method:
    return next(method for method in compared_methods(study) if method.name == name)


def descended(x: Numbers, y: Numbers, rate: float, steps: int) -> Numbers:
    """Softmax regression by plain gradient descent from zeros, in double precision."""
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(float)
    weights = np.zeros((inputs.shape[1], 2))
    for _ in range(steps):
        odds = np.exp(inputs @ weights)
        weights -= rate * inputs.T @ (odds / odds.sum(axis=1, keepdims=True) - np.eye(2)[y]) / len(x)
    return weights


def test_losses_are_those_of_plain_gradient_descent(setting: Setting) -> None:
    """Training alone on all rows at once is gradient descent, which ten lines of NumPy can do."""
    study, federation = study_with(["local"]), setting.federation
    rated = rate_of([plan_training(study, setting, method_of(study, "local"))], RATES)
    assert rated is not None
    expected = {}
    for rate in RATES:
        total = 0.0
        for site in range(len(federation.sites)):
            rows = [
                slice(int(f[site]), int(f[site] + n[site])) for f, n in map(federation.part, ("train", "validation"))
            ]
            weights = descended(federation.x[rows[0]], federation.y[rows[0]], rate, 4)
            inputs = np.concatenate([federation.x[rows[1]], np.ones((rows[1].stop - rows[1].start, 1))], axis=1)
            odds = np.exp(inputs @ weights)
            total -= np.log((odds / odds.sum(axis=1, keepdims=True))[np.arange(len(odds)), federation.y[rows[1]]]).sum()
        expected[rate] = total / federation.counts[:, 1].sum()
    assert rated.losses == pytest.approx(expected, rel=1e-4)
    assert rated.rate == min(expected, key=lambda rate: expected[rate])
    assert len(set(expected.values())) == 3
    assert rated.told()["tried"][0] == {"rate": 0.05, "loss": rated.losses[0.05]}


@pytest.mark.parametrize("name", ["weight_erosion", "layer_split"])
def test_one_program_for_all_rates_learns_what_one_a_rate_does(name: str, setting: Setting) -> None:
    """With the rate and the asking site in the state, losses are those of training with both fixed."""
    study = study_with([name], algorithm={"name": "fed_avg", "batch_size": 32})
    method = method_of(study, name)
    last = plan_methods(study, setting, [method], 0)[0][-1]
    found = losses_for(last, [0.5], lambda: None)[0.5]
    fixed = plan_training(last.study, setting, with_rate(method, 0.5))
    trained = train(fixed, None, part="validation")
    losses = loss_of(trained.scores, setting.federation.task)
    if name == "weight_erosion":  # for one site: the last one's loss, on its rows
        assert found[0] == pytest.approx(float(losses.sites[-1]), rel=1e-5)
        assert found[1] == losses.rows[-1]
    else:
        assert found[0] == pytest.approx(losses.weighted, rel=1e-5)
        assert found[1] == losses.rows.sum()


def test_rates_and_asking_sites_share_a_program_and_other_settings_do_not(setting: Setting) -> None:
    study = study_with(["weight_erosion"])
    method = method_of(study, "weight_erosion")
    (first, *_), (_, second, _), (faster, *_) = plan_methods(
        study,
        setting,
        [
            with_rate(method, 0.1),
            with_rate(method, 0.2),
            with_rate(method._replace(settings=(*method.settings, ("p_d", 0.5))), 0.1),
        ],
        0,
    )
    one = movable_algorithm(first)
    assert one == movable_algorithm(second)
    assert hash(one) == hash(movable_algorithm(second))
    assert one != movable_algorithm(faster)


def test_test_patients_are_never_looked_at(setting: Setting) -> None:
    study = study_with(["local"])
    federation = setting.federation
    y = federation.y.copy()
    rows = federation.rows_of("test")
    y[rows] = 1 - y[rows]
    turned = replace(setting, federation=replace(federation, y=y))
    method = method_of(study, "local")
    swapped, plain = (rate_of([plan_training(study, one, method)], RATES) for one in (turned, setting))
    assert swapped == plain


def test_a_rate_that_diverges_is_as_bad_as_can_be(setting: Setting) -> None:
    """Least squares explode at a large rate: told as none, and there is no rate where nothing else is left."""
    study = study_with(["local"], study={"rounds": 60})
    labels = setting.federation.y.astype(np.float32)
    task = setting.federation.task._replace(classes=())
    numbers = replace(setting, federation=replace(setting.federation, y=labels, task=task))
    study = study.model_copy(update={"model": study.model.model_copy(update={"name": "linear"})})
    method = method_of(study, "local")
    plan = plan_training(study, numbers, method)
    rated = rate_of([plan], [1e6, 0.01])
    assert rated is not None
    assert rated.rate == 0.01
    assert rated.losses[1e6] is None
    hopeless = rate_of([plan], [1e6])
    assert hopeless is not None
    assert hopeless.rate is None


def test_which_setting_is_the_rate() -> None:
    methods = {method.name: method for method in compared_methods(study_with(["meta", "fed_avg", "local"]))}
    assert rate_setting(methods["meta"]) == "outer_learning_rate"
    assert dict(with_rate(methods["meta"], 0.7).settings)["outer_learning_rate"] == 0.7
    assert dict(with_rate(methods["fed_avg"], 0.7).settings) == {"batch_size": 0, "learning_rate": 0.7}


def test_without_validation_patients_there_is_nothing_to_choose_by(setting: Setting) -> None:
    study = study_with(["local"])
    counts = setting.federation.counts.copy()
    counts[:, 1] = 0
    bare = replace(setting, federation=replace(setting.federation, counts=counts))
    refuse_rates(study, setting, compared_methods(study))
    with pytest.raises(Refusal, match="validation patients, and no site has any"):
        refuse_rates(study, bare, compared_methods(study))
    one = study_with(["weight_erosion"], study={"user": setting.federation.sites[1]}, compare={"users": "one"})
    counts[:, 1] = [5, 0, 5]
    with pytest.raises(Refusal, match="the asking site has none"):
        refuse_rates(one, bare, compared_methods(one))


def test_rates_are_not_tried_behind_the_back_of_a_promised_privacy(setting: Setting) -> None:
    promised = study_with(["local"], privacy={"epsilon": 3.0, "delta": 1e-5})
    with pytest.raises(Refusal, match="does not account for"):
        refuse_rates(promised, setting, compared_methods(promised))
