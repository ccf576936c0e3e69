"""What a study promises holds whatever the coordinator writes into it or sends: the parts, epsilon, the noise.

Most tests are attacks that once succeeded: a patient's number that moves other patients, answers under ever other
noise, lengths so small that their noise is rounded to nothing, and numbers that keep a site busy for ever.
"""

import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import in_process
from tests.support import tiny_study as tiny
from tests.support.adversary.noise import private_study
from wardround.core.chain import chain
from wardround.core.components.recipes import Recipe, recipe_of
from wardround.core.contracts import Message, Task
from wardround.core.errors import Refusal
from wardround.deploy.coordinator import privacy_plan
from wardround.deploy.site.policy import Policy, decide
from wardround.deploy.site.privacy_summary import LedgerCharges, privacy_cost
from wardround.deploy.site.release import privacy_guard
from wardround.deploy.site.release.privacy_guard import Promise, SiteFacts
from wardround.engine.split_round import OwnRows, row_of, site_round
from wardround.models.logistic import logistic
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.budget import Budget, BudgetExhausted
from wardround.privacy.calibration import noise_for
from wardround.privacy.dp_sgd import private_model
from wardround.privacy.site_level import CLIP
from wardround.study import assemble
from wardround.study import privacy as privately
from wardround.study.file import Study, parse_study
from wardround.study.methods import own_method

NAMES = in_process.NAMES
EPSILON, DELTA = 1.0, 1e-3
PROMISE = {"epsilon": EPSILON, "delta": DELTA}
TASK = Task((2,), ("no", "yes"), "ebola")


def reasons(study: Study) -> str:
    return "\n".join(decide(Policy(), study.model_dump(mode="json")))


# ---- a patient's number that moves others ----


@pytest.mark.parametrize("level", ["sample", "site"])
def test_no_site_approves_a_private_study_whose_parts_follow_a_column(level: str) -> None:
    study = private_study("by", {**PROMISE, "level": level}, data={"split_by": "patient"})
    assert "its rows are split by 'patient'" in reasons(study)
    assert "split by" not in reasons(study.model_copy(update={"privacy": None}))
    with pytest.raises(Refusal, match="remove split_by, and let each patient have one row"):
        privacy_plan.refuse_early(study)
    privacy_plan.refuse_early(study.model_copy(update={"privacy": None}))


@pytest.mark.parametrize("command", ["check", "run"])
def test_nor_is_it_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    rows = tiny.patients(40)
    rows["patient"] = np.arange(len(rows))
    declared = {"ranges": {name: [-6.0, 6.0] for name in ("age", "pulse", "lactate")}, "scale": "none"}
    data = {"split_by": "patient", "preparation": declared}
    path = tiny.write_study(tmp_path, rows, data=data, privacy={**PROMISE, "seeded": True})
    said = tiny.call(capsys, command, path)
    assert said.code != 0
    assert "ows are split by 'patient'" in said.err


# ---- more than epsilon ----


def test_no_site_approves_a_private_study_that_chooses_partners() -> None:
    partners: dict[str, Any] = {"partners": {"name": "shapley", "top": 1}, "study": {"user": "bo"}}
    study = private_study("choice", PROMISE, **partners)
    assert "its choice of partners looks at losses and gradients without the noise" in reasons(study)
    assert "without the noise" not in reasons(study.model_copy(update={"privacy": None}))
    assert "without the noise" not in reasons(study.model_copy(update={"partners": None}))


def asked_with(study: Study, noise: float) -> Recipe:
    assert study.privacy is not None
    update: dict[str, Any] = {"noise_multiplier": noise, "epsilon": None}
    if study.privacy.level == "site":
        update["answers"] = len(NAMES)
    told = study.model_copy(update={"privacy": study.privacy.model_copy(update=update)})
    return recipe_of(assemble.build(told, own_method(told), TASK))


def harmonic_noise(rounds: int) -> float:
    """With which so many rounds, each of one look at all patients, would spend what was approved."""
    return noise_for([(Step(1.0, 0.0, rounds),)], EPSILON, DELTA / 2)


@pytest.mark.parametrize("level", ["sample", "site"])
def test_answers_under_ever_other_noise_spend_no_more_than_was_approved(tmp_path: Path, level: str) -> None:
    """Answer k has the noise of k rounds, so k times its own noise is always within epsilon; all together are not."""
    whole = {"name": "fed_avg", "learning_rate": 0.1, **({"batch_size": 1000} if level == "sample" else {})}
    study = private_study("harmonic", {**PROMISE, "level": level}, rounds=1, algorithm=whole)
    budget = Budget(tmp_path / "ledger")
    promise = Promise("bo", "harmonic", study, lambda: budget)
    own = SiteFacts(60, row_of(TASK), 0, NAMES)

    def ask(number: int) -> None:
        promise.charge(asked_with(study, harmonic_noise(number)), number, f"request {number}", own)

    def ask_seven() -> None:
        for number in range(1, 8):
            ask(number)

    with pytest.raises(BudgetExhausted, match="ith the rounds that were answered before"):
        ask_seven()
    paid = [step for charge in budget.charges() for step in charge.steps]
    assert paid
    assert epsilon(paid, DELTA) <= EPSILON
    last = len(budget.charges())
    ask(last)
    assert len(budget.charges()) == last, "the same request is neither charged nor counted again"


def test_all_rounds_that_were_approved_are_answered(tmp_path: Path) -> None:
    whole = {"name": "fed_avg", "learning_rate": 0.1, "batch_size": 1000}
    study = private_study("honest", PROMISE, rounds=4, algorithm=whole)
    budget = Budget(tmp_path / "ledger")
    promise = Promise("bo", "honest", study, lambda: budget)
    recipe = asked_with(study, noise_for([(Step(1.0, 0.0, 4),)], EPSILON, DELTA))
    for number in (1, 2, 2, 3, 4, 4):
        promise.charge(recipe, number, f"request {number}", SiteFacts(60, row_of(TASK), 0, NAMES))
    assert [charge.round for charge in budget.charges()] == [1, 2, 3, 4]
    with pytest.raises(BudgetExhausted):
        promise.charge(recipe, 5, "request 5", SiteFacts(60, row_of(TASK), 0, NAMES))


# ---- noise that is rounded to nothing ----


@pytest.mark.parametrize(
    ("sent", "used"),
    [(1.9e-38, 1e-6), (0.0, 1e-6), (-1.0, 1e-6), (np.nan, 1.0), (np.inf, 1e6), (2.0, 2.0)],
)
def test_a_length_in_a_message_never_takes_the_noise_away(sent: float, used: float) -> None:
    words = {"level": "site", "noise_multiplier": 3.0, "delta": DELTA, "quantile": 0.5, "answers": 3}
    study = private_study("adaptive", words, rounds=1, model={"name": "logistic", "l2": 0.0})
    algorithm = assemble.build(study, own_method(study), TASK)
    params = {"dense_0/kernel": jnp.zeros((2, 2)), "dense_0/bias": jnp.zeros(2)}
    said = algorithm.broadcast(algorithm.init(params, 3))
    message = Message({**said.arrays, CLIP: np.float32(sent)})
    own = OwnRows(np.ones((20, 2), np.float32), np.zeros(20, np.int32), 0)

    def answer() -> Any:
        told, _, _ = site_round(algorithm, chain(()), message, algorithm.init_client(params), own, seed=1, number=1)
        update = told.arrays["update"]
        return np.concatenate([np.asarray(update[name]).ravel() for name in sorted(update)])

    drawn = np.stack([answer() for _ in range(30)]) / used
    assert np.isfinite(drawn).all()
    # 3 / sqrt(0.9) shared by 3 sites: 1.83 in units of the length, of 180 numbers.
    assert 1.4 < drawn.std(axis=0).mean() < 2.3


def test_a_servers_length_stays_where_sites_use_it() -> None:
    words = {"level": "site", "noise_multiplier": 3.0, "delta": DELTA, "quantile": 0.5, "answers": 3, "rate": 100.0}
    algorithm = assemble.build(study := private_study("far", words), own_method(study), TASK)
    params = {"dense_0/kernel": jnp.zeros((2, 2)), "dense_0/bias": jnp.zeros(2)}
    state = algorithm.init(params, 3)
    combined = {"update": params, "weight": jnp.float32(3.0), "privacy/below": jnp.float32(0.5)}
    assert float(algorithm.server(state, Message(combined))["clip"]) == pytest.approx(1e-6)


@pytest.mark.parametrize("clip", [2.1e-38, 9e-7, 0.0, -1.0, 1.1e6, float("inf"), float("nan")])
def test_a_length_that_floats_cannot_noise_is_no_study(clip: float) -> None:
    with pytest.raises(Refusal, match="'clip' cannot be"):
        parse({"privacy": {**PROMISE, "clip": clip}})


def test_lengths_at_the_ends_are() -> None:
    for clip in (1e-6, 1e6):
        assert parse({"privacy": {**PROMISE, "clip": clip}}).privacy is not None


def test_noise_that_would_be_rounded_to_none_is_refused() -> None:
    model = logistic(TASK)
    with pytest.raises(Refusal, match="rounded to none"):
        private_model(model, clip=2.1e-38, noise_multiplier=0.55)
    private_model(model, clip=1e-6, noise_multiplier=1e-6)
    with pytest.raises(Refusal, match="'noise_multiplier' cannot be"):
        parse({"privacy": {"noise_multiplier": 1e-30}})


def test_who_approves_reads_the_length() -> None:
    def told(**words: Any) -> str:
        return "\n".join(privacy_cost(private_study("read", {**PROMISE, **words}), 0.0, Policy(), LedgerCharges(0, 0)))

    assert "Each patient's gradient is cut to a length of 0.25." in told(clip=0.25)
    assert "Your answers are cut to a length of 2, which adapts." in told(level="site", clip=2.0, quantile=0.5)


# ---- numbers that keep a site busy for ever ----


def parse(tables: dict[str, Any]) -> Study:
    return parse_study({"study": {"name": "x"}, "data": {"source": "csv"}, **tables}, where="study.toml")


@pytest.mark.parametrize(("table", "key"), [("study", "rounds"), ("evaluation", "resamples")])
def test_rounds_and_resamples_end(table: str, key: str) -> None:
    def words(number: int) -> dict[str, Any]:
        return {table: {**({"name": "x"} if table == "study" else {}), key: number}}

    parse(words(100_000))
    with pytest.raises(Refusal, match=f"'{key}' cannot be 100001"):
        parse(words(100_001))


def test_who_takes_part_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    attendance = privately.attendance

    def counting(*given: Any, **named: Any) -> Any:
        counted.append(1)
        return attendance(*given, **named)

    monkeypatch.setattr(privately, "attendance", counting)
    study = private_study("once", PROMISE, rounds=997, participation={"cohort": 2})
    began = time.monotonic()
    found = {privacy_guard.planned_rounds(study, NAMES, 1) for _ in range(1000)}
    assert len(counted) == 1
    assert time.monotonic() - began < 5
    who = assemble.participation_of(study, NAMES, study.study.seed)
    assert found == {int(attendance(who, 997, np.ones(len(NAMES), np.int64), pooled=False).times[1])}
    privacy_guard.planned_rounds(study, NAMES, 2)
    assert len(counted) == 2, "another site has its own"
