"""What a private study tells beside its rounds: its noise keeps the promise for each part of the patients."""

import pytest

from tests.support.adversary.noise import private_study
from wardround.core.contracts import Task
from wardround.privacy.accountant import Step, epsilon
from wardround.study import assemble
from wardround.study.methods import own_method
from wardround.study.privacy import Patients
from wardround.study.release_noise import look_count, release_noise, statistics_steps

PROMISE = {"epsilon": 2.0, "delta": 1e-4}


def test_looks_are_those_of_the_rounds_and_one_more() -> None:
    """Ten rounds, every third: after 3, 6, 9 and 10; the asking site's is looked at before the first, too."""
    study = private_study("a", PROMISE, rounds=10, evaluation={"every": 3})
    assert look_count(study) == 4 + 1
    watched = private_study("a", PROMISE, rounds=10, evaluation={"every": 3}, stopping={"patience": 2, "user": True})
    assert look_count(watched) == 4 + 1 + 1


def test_each_part_of_the_patients_is_promised_epsilon() -> None:
    found = release_noise(private_study("a", PROMISE, rounds=3, declared=False))
    looks = epsilon([Step(1.0, found.looks or 0.0, found.look_count)], 1e-4)
    figures = epsilon([Step(1.0, found.figures or 0.0, 1)], 1e-4)
    statistics = epsilon([Step(1.0, found.statistics or 0.0, 2)], 1e-5)
    assert 1.98 < looks <= 2.0
    assert 1.98 < figures <= 2.0
    assert 0.198 < statistics <= 0.2, "a tenth of epsilon, at a tenth of delta"


def test_declared_columns_and_whole_sites_ask_for_no_statistics() -> None:
    assert release_noise(private_study("a", PROMISE)).statistics is None
    assert statistics_steps(private_study("a", PROMISE)) == ()
    site = release_noise(private_study("a", {"level": "site", **PROMISE}, declared=False))
    assert (site.statistics, site.looks, site.figures) == (None, None, None)


@pytest.mark.slow
def test_the_noise_of_the_rounds_leaves_room_for_the_statistics() -> None:
    """Statistics and rounds of the same patients together keep the promise, and need more noise than rounds alone."""
    import numpy as np

    from wardround.engine.participation import everyone
    from wardround.engine.split_round import row_of

    task = Task((4,), ("no", "yes"), "ebola")
    patients = Patients(("bo", "freetown", "kenema"), np.array([96, 96, 96]), row_of(task))
    noise = {}
    for declared in (True, False):
        study = private_study("a", PROMISE, declared=declared)
        before = statistics_steps(study)
        found, protection = assemble.plan_noise(study, own_method(study), task, patients, everyone(3), before=before)
        assert found.privacy is not None
        assert protection is not None
        noise[declared] = found.privacy.noise_multiplier
        rounds = [step._replace(times=3 * step.times) for step in protection.rounds["bo"]]
        # Naming categories takes a twentieth of delta.
        assert 1.97 < epsilon([*rounds, *before], 1e-4 * (1.0 if declared else 0.95)) <= 2.0
    assert noise[False] > noise[True]


def test_with_a_noise_multiplier_all_have_it() -> None:
    found = release_noise(private_study("a", {"noise_multiplier": 3.0}, declared=False))
    assert (found.statistics, found.looks, found.figures) == pytest.approx((3.0, 3.0, 3.0))
