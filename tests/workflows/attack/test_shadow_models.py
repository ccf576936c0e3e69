"""Members of a study trained by our own private descent are told no better than its epsilon allows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from wardround.privacy.attacks import membership
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.study.methods import own_method
from wardround.workflows.attack.shadow_models import Shadows, shadows_of
from wardround.workflows.training_plan import plan_training

MODELS, ROWS, COLUMNS, DELTA = 12, 24, 60, 1e-3


def shadows(folder: Path, **privacy: float) -> Shadows:
    """Outcomes that mean nothing and more columns than patients: all there is to learn is learned by heart."""
    random = np.random.default_rng(5)
    frame = pd.DataFrame(random.normal(size=(4 * ROWS, COLUMNS)).round(3), columns=[f"x{n}" for n in range(COLUMNS)])
    frame = frame.assign(hospital=np.repeat(tiny.HOSPITALS, ROWS), outcome=random.integers(0, 2, 4 * ROWS))
    tables = {"privacy": {"level": "sample", "delta": DELTA, "clip": 1.0, **privacy}} if privacy else {}
    study = read_study(
        tiny.write_study(
            folder,
            frame,
            study={"rounds": 30},
            algorithm={"name": "fed_avg", "batch_size": 6, "learning_rate": 0.5},
            **tables,
        )
    )
    setting = assemble.load_setting(study, study.study.seed)
    return shadows_of(study, plan_training(study, setting, own_method(study)), MODELS)


def found(told: Shadows) -> list[membership.Membership]:
    """Both attacks on every model in turn, LiRA with all others as its shadows."""
    ratios = membership.lira(membership.confidence(told.right), told.members)
    return [
        membership.yeom(-np.log(np.clip(told.right, 1e-12, 1.0)), told.members),
        membership.evaluate_attack(ratios, told.members, 0.0),
    ]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return shadows(tmp_path_factory.mktemp("bare"))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [pytest.param(0.5, marks=pytest.mark.slow), 2.0])
def test_under_our_own_noise_no_attack_passes_the_bound(tmp_path, bare, epsilon):
    told = shadows(tmp_path, epsilon=epsilon)
    assert told.epsilon == epsilon
    bound = membership.largest_advantage(epsilon, DELTA)
    simple, strong = found(told)
    for attack in (simple, strong):
        # One-sided at one in a thousand.
        assert attack.advantage <= bound + 3.1 * attack.error
    # The noise comes from the operating system, so this differs from run to run; the gap is many times its error.
    control = found(bare)[1]
    assert control.advantage - 3.1 * control.error > strong.advantage + 3.1 * strong.error


def test_without_noise_members_are_told_beyond_the_bound(bare):
    """The positive control: what an epsilon of 0.5 would allow is passed by far, so the bound is worth something."""
    simple, strong = found(bare)
    assert strong.advantage - 3.1 * strong.error > membership.largest_advantage(0.5, DELTA)
    assert simple.advantage > 5 * simple.error


@pytest.mark.slow
def test_it_is_the_noise_that_protects(tmp_path, bare):
    """Clipped as under privacy, but with a hundredth of the noise: members are told as they are without."""
    loud = found(shadows(tmp_path, noise_multiplier=0.02))[1]
    assert loud.advantage > 0.8 * found(bare)[1].advantage
