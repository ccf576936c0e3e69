"""Underfitting is said where the loss still falls, and nowhere else."""

import math
from pathlib import Path

import pytest

from tests.support import tiny_study as tiny
from wardround.workflows.loss_course import is_still_falling, validation_losses


def course(of: object, rounds: int = 50) -> list[tuple[int, float]]:
    return [(number, float(of(number))) for number in range(1, rounds + 1)]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("losses", "falling"),
    [
        (course(lambda t: 1 - t / 100), True),
        # exp(-t / T): after 2 T the last tenth is 3.6 % of the fall, after 5 T 0.4 %.
        (course(lambda t: 0.3 + math.exp(-t / 25)), True),
        (course(lambda t: 0.3 + math.exp(-t / 10)), False),
        (course(lambda t: 0.5), False),
        (course(lambda t: 0.3 + t / 100), False),
        (course(lambda t: abs(t - 30) / 100 + 0.1), False),  # overfits since round 30
        (course(lambda t: 1000 - t / 100), False),  # falls by less than a thousandth
        (course(lambda t: 1 - t / 100, 5), False),  # too few looks
        ([], False),
    ],
)
def test_a_course_by_its_formula(losses: list[tuple[int, float]], falling: bool) -> None:
    assert is_still_falling(losses, len(losses)) is falling


def test_a_run_that_stopped_early_is_not_told_to_go_on() -> None:
    assert is_still_falling(course(lambda t: 1 - t / 100), 50)
    assert not is_still_falling(course(lambda t: 1 - t / 100), 60)


def test_rounds_without_a_look_have_no_loss() -> None:
    records = [
        {"round": 1, "measures": {}},
        {"round": 2, "measures": {"validation_loss": {"weighted": 0.5}}},
        {"round": 3, "measures": {"validation_loss": {"weighted": None}}},
    ]
    assert validation_losses(records) == [(2, 0.5)]


def test_the_note_is_in_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tiny.write_study(tmp_path, study={"rounds": 10}, algorithm={"name": "fed_avg", "learning_rate": 0.01})
    (note,) = tiny.call(capsys, "run", study, "--out", tmp_path / "out", "--json").json["notes"]
    assert note.startswith("Still learning when training ended after 10 rounds")
