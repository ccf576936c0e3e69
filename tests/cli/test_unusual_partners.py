"""`wardround partners` where sites are small, large, copied, flipped or gone: what the command says."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wardround.cli.app import main

STUDY = """
[study]
name = "unusual"
seed = 1
rounds = 20
user = "A"
[data]
source = "csv"
path = "patients.csv"
site = "hospital"
target = "ill"
positive = "yes"
[evaluation]
resamples = 200
[partners]
repeats = 2
measures = ["gradient_distance"]
"""
WEIGHTS = np.array([1.2, -0.8, 0.5, 0.0])


def hospitals(**patients: int) -> dict[str, pd.DataFrame]:
    """Hospitals whose patients are alike, so many of each."""
    random = np.random.default_rng(3)
    found = {}
    for name, count in patients.items():
        x = random.normal(size=(count, 4))
        ill = random.random(count) < 1 / (1 + np.exp(-(x @ WEIGHTS - 0.3)))
        found[name] = pd.DataFrame(x, columns=list("wxyz")).assign(ill=np.where(ill, "yes", "no"), hospital=name)
    return found


def told(place: Path, frames: dict[str, pd.DataFrame], *more: str) -> tuple[dict[str, object], str]:
    """The verdict and the notes of the command, which ends well."""
    pd.concat(frames.values()).to_csv(place / "patients.csv", index=False)
    (place / "study.toml").write_text(STUDY)
    with pytest.raises(SystemExit) as ended:
        main(["partners", str(place / "study.toml"), "--out", str(place / "run"), *more])
    assert ended.value.code in (0, None)
    result = json.loads((place / "run" / "result.json").read_text())
    return result["verdict"], " ".join(result["notes"])


@pytest.mark.slow
def test_a_hospital_with_twelve_patients_is_told_what_can_be_told(tmp_path: Path) -> None:
    verdict, _ = told(tmp_path, hospitals(A=12, B=120, C=120, D=120))
    assert verdict["helps"] == "unclear"
    assert "not whether it differs from them: the advice rests on the others" in str(verdict["gain"])


@pytest.mark.slow
def test_partners_that_copy_each_other_are_named(tmp_path: Path) -> None:
    frames = hospitals(A=120, B=120)
    frames |= {name: frames["B"].assign(hospital=name) for name in "CD"}
    _, notes = told(tmp_path, frames)
    for pair in ("C or B", "D or B", "D or C"):
        assert f"100 % of the patients of {pair} are held by both" in notes


@pytest.mark.slow
def test_a_partner_a_hundred_times_larger_is_taken_and_said_to_be_all_there_is(tmp_path: Path) -> None:
    verdict, notes = told(tmp_path, hospitals(A=60, B=60, C=60, D=6000))
    assert "D" in verdict["partners"]  # type: ignore[operator]
    assert "D would be 97 % of the training rows" in notes  # 6000 of 6180


@pytest.mark.slow
def test_a_partner_with_flipped_labels_is_not_taken(tmp_path: Path) -> None:
    frames = hospitals(A=120, B=120, C=120, D=120)
    frames["D"] = frames["D"].assign(ill=np.where(frames["D"]["ill"] == "yes", "no", "yes"))
    verdict, _ = told(tmp_path, frames)
    assert sorted(verdict["partners"]) == ["B", "C"]  # type: ignore[call-overload]
    assert verdict["others"] == ["D"]


@pytest.mark.slow
def test_where_all_have_withdrawn_the_local_model_is_offered(tmp_path: Path) -> None:
    gone = [word for name in "BCD" for word in ("--without", name)]
    verdict, _ = told(tmp_path, hospitals(A=120, B=120, C=120, D=120), *gone)
    assert verdict["partners"] == []
    assert "There is nobody for A to train with." in str(verdict["headline"])
