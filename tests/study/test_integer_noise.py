"""A study whose sites add their noise inside the secure sum: how much, and the epsilon that the meter tells."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from wardround.privacy.accountant import Step, epsilon
from wardround.privacy.distributed_noise import NoisePlan, epsilon_of, plan_for
from wardround.study.integer_noise import multipliers

ROUNDS = tiny.ROUNDS
ENTRIES = 8
"""Three features and two classes: 6 weights and 2 biases."""


def run(folder: Path, capsys: Any, transforms: str = '[[transforms]]\nname = "secure_sum"\n', **tables: Any) -> Any:
    folder.mkdir(exist_ok=True)
    path = tiny.write_study(folder, tiny.patients(40), **tables)
    path.write_text(path.read_text() + transforms)
    return tiny.call(capsys, "run", path, "--out", folder / "out")


def meters(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "result.json").read_text())["methods"][0]["meters"]


PRIVATE = {"level": "site", "delta": 0.01, "seeded": True}


def test_an_epsilon_becomes_the_discrete_mechanisms_noise_and_the_meter_tells_its_epsilon(tmp_path, capsys) -> None:
    said = run(tmp_path, capsys, privacy={**PRIVATE, "epsilon": 2.0, "clip": 0.5})
    assert said.code == 0, said.err
    told = meters(tmp_path)["privacy"]
    plan = plan_for(2.0, 0.01, ROUNDS, clip=0.5, entries=ENTRIES, fraction_bits=20, sites=4)
    assert told["noise_multiplier"] == pytest.approx(plan.noise_multiplier, rel=1e-12)
    assert told["site_epsilon"] == pytest.approx(epsilon_of(plan, ROUNDS, 0.01), rel=1e-9)
    assert 1.999 < told["site_epsilon"] <= 2.0
    # The tight accountant of continuous noise would tell less: it does not hold for discrete noise.
    assert told["site_epsilon"] > epsilon([Step(1.0, plan.noise_multiplier, ROUNDS)], 0.01)
    # Another patient moves an answer twice as far.
    half = NoisePlan(plan.noise_multiplier / 2, 0.5, ENTRIES, 20, 4)
    assert told["sample_epsilon"] == pytest.approx(epsilon_of(half, ROUNDS, 0.01), rel=1e-6)
    assert told["site_epsilon_towards_coordinator"] is None, "it never sees a single answer"
    # Eight numbers and the weight, 8 bytes each.
    assert meters(tmp_path)["traffic"]["bytes_up_a_site_a_round"] == 8 * (ENTRIES + 1)


@pytest.mark.slow
def test_a_round_with_more_sites_than_must_answer_costs_less(tmp_path, capsys) -> None:
    said = run(
        tmp_path,
        capsys,
        privacy={**PRIVATE, "noise_multiplier": 3.0},
        participation={"present": {"bo": "1"}},
    )
    assert said.code == 0, said.err
    # Three answer at least, so each adds 3 / sqrt(3); in the first round four do: 3 sqrt(4/3).
    first, second = (one["measures"]["privacy"]["whole_sites"]["makeni"] for one in tiny.recorded(tmp_path / "out")[:2])
    assert first == [[1.0, pytest.approx(3 * (4 / 3) ** 0.5), 1]]
    assert second == [[1.0, pytest.approx(3.0), 1]]


def test_what_a_round_costs_by_hand() -> None:
    # With 20 binary places sums of such noise are one: rho = 1 / (2 z²), four times that for another patient.
    plan = NoisePlan(2.0, 1.0, 100, 20, sites=4)
    assert multipliers(plan, 4) == pytest.approx({"whole_sites": 2.0, "patients": 1.0})
    assert multipliers(plan, 9) == pytest.approx({"whole_sites": 3.0, "patients": 1.5})
    # Coarse noise, 0.5 units a site, is charged for how far its sums are from one.
    coarse = NoisePlan(1.0, 0.5, 1, 0, sites=4)
    assert coarse.site_deviation == pytest.approx(0.5)
    assert multipliers(coarse, 4)["whole_sites"] == pytest.approx((2 * coarse.rho) ** -0.5)
    assert multipliers(coarse, 4)["whole_sites"] < 0.9


def test_an_adapting_length_costs_the_same(tmp_path, capsys) -> None:
    said = run(tmp_path, capsys, privacy={**PRIVATE, "noise_multiplier": 3.0, "quantile": 0.5})
    assert said.code == 0, said.err
    told = meters(tmp_path)["privacy"]
    assert told["site_epsilon"] == pytest.approx(epsilon_of(NoisePlan(3.0, 1.0, 8, 20, 4), ROUNDS, 0.01), rel=1e-9)
    assert "clip" in tiny.recorded(tmp_path / "out")[-1]["measures"]["told"]


@pytest.mark.slow
def test_the_word_alone_does_not_take_the_noise_away(tmp_path, capsys) -> None:
    private = {**PRIVATE, "noise_multiplier": 1.0, "whole_numbers": True}
    said = run(tmp_path, capsys, transforms="", privacy=private)
    # Without the transform nobody would add it in whole numbers, so the sites add the usual noise.
    assert said.code == 0, said.err
    assert meters(tmp_path)["privacy"]["site_epsilon_towards_coordinator"] is not None


@pytest.mark.parametrize(
    ("transforms", "tables", "why"),
    [
        (["secure_sum"], {"participation": {"present": {"bo": "1", "kenema": "1"}}}, "fewer than 3"),
        (["secure_sum", "clip"], {}, "as the last of the transforms"),
        (["secure_sum", "secure_sum"], {}, "as the last of the transforms"),
        (["two_servers", "secure_sum"], {}, "as the last of the transforms"),
        (["secure_sum"], {"aggregator": {"name": "median"}}, "reveals only the sum"),
    ],
)
def test_what_a_secure_sum_cannot_be_is_refused_before_the_first_round(
    tmp_path, capsys, transforms: list[str], tables: dict[str, Any], why: str
) -> None:
    said = run(tmp_path, capsys, "".join(f'[[transforms]]\nname = "{name}"\n' for name in transforms), **tables)
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert why in " ".join(said.err.split()), said.err
    assert not tiny.recorded(tmp_path / "out")


def test_noise_must_fit_into_the_bits_of_the_ring(tmp_path, capsys) -> None:
    """Multiplier 2, clip 1 and 6 binary places: 2 x (64 + 1.4) / sqrt(4) = 65 steps a site; four sites need 4 x 65 for
    their answers and 16 x 65 x 2 for their noise, 2,355 in all: 13 bits with the sign."""
    narrow = '[[transforms]]\nname = "secure_sum"\nfraction_bits = 6\nbound = 4.0\nbits = '
    private = {**PRIVATE, "noise_multiplier": 2.0, "clip": 1.0}
    said = run(tmp_path, capsys, privacy=private, transforms=f"{narrow}12\n")
    assert said.code == 2
    assert "does not fit into 12 bits" in said.err
    assert "give secure_sum 13 bits" in said.err
    said = run(tmp_path, capsys, privacy=private, transforms=f"{narrow}13\n")
    assert said.code == 0, said.err
    # Nine numbers are two groups of eight, 13 bytes each, where 64 bits take 72 and single precision 36.
    assert meters(tmp_path)["traffic"]["bytes_up_a_site_a_round"] == 26
