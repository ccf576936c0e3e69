"""What a study over real sites tells of its patients: who they are, and whom the model flags, no patient by itself."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from wardround.core.contracts import Message, Scores
from wardround.core.errors import Refusal
from wardround.deploy.coordinator.answer_bounds import RowLimits
from wardround.deploy.coordinator.clinical.risk_table import risks_problem
from wardround.deploy.coordinator.schema_agreement import table_without_rows
from wardround.deploy.party.decisions import read_offer
from wardround.deploy.protocol.replies import Reply, read_reply
from wardround.deploy.protocol.status import Status
from wardround.deploy.site.clinical.own_report import own_report
from wardround.deploy.site.release.disclosure import coarse_counts
from wardround.deploy.site.release.grid_offset import offset_by
from wardround.deploy.site.study_summary import describe
from wardround.report.run.page import report_page
from wardround.study.file import parse_study

BANDS = [0.2, 0.4, 0.6]
CELL = 10


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return in_process.Consortium(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def told(consortium: Any) -> tuple[Any, dict[str, Any]]:
    study = in_process.study_of("told", 2, evaluation={"resamples": 20, "risk_bands": BANDS})
    return study, consortium.conduct(study)


def test_the_patients_are_those_of_the_tables(consortium: Any, told: tuple[Any, dict[str, Any]]) -> None:
    _, result = told
    frames = {name: pd.read_csv(path) for name, path in consortium.tables.items()}
    for name, frame in frames.items():  # in whole cells, rounded down
        flow = result["flow"]["sites"][name]
        assert flow["read"] == len(frame) // CELL * CELL
        assert flow["without_outcome"] == 0
    columns = {one["name"]: one for one in result["patient_table"]["columns"]}
    assert "ebola" not in columns
    assert "hospital" not in columns
    training = sum(site["train"] for site in result["sites"])
    assert result["patient_table"]["patients"] == training
    every = pd.concat(frames.values())
    for name, low, high in (("age", 0.25, 0.75), ("temperature", 0.25, 0.75)):
        cell, values = columns[name]["all"], every[name].dropna()
        step = (values.max() - values.min()) / 64
        # Of the training patients, a random part of all: quartiles within a twentieth of the patients, and the grid.
        for key, share in (("low", low), ("median", 0.5), ("high", high)):
            near = values.quantile([max(0, share - 0.06), min(1, share + 0.06)])
            assert near.iloc[0] - 3 * step <= cell[key] <= near.iloc[1] + 3 * step, (name, key)
    counts = dict(zip(columns["sex"]["levels"], columns["sex"]["all"]["counts"], strict=True))
    assert all(count % CELL == 0 for count in counts.values())
    assert abs(sum(counts.values()) - training) < 2 * CELL * len(frames)


def test_flagged_patients_and_bands_are_right_but_for_the_cells(
    consortium: Any, told: tuple[Any, dict[str, Any]]
) -> None:
    study, result = told
    clinical = result["methods"][0]["clinical"]
    point = clinical["operating_point"]
    assert point["threshold"] == 0.5
    assert set(clinical["decision_curve"]["thresholds"]) == {*BANDS, 0.5}
    for name, home in consortium.homes.items():
        own = own_report(home, read_offer(home, consortium.id(study)))
        assert own.methods[0].clinical is not None
        assert own.methods[0].clinical.operating_point is not None
        assert own.sites[0].test is not None
        site = point["sites"][name]
        bands = len(BANDS) + 2
        four = ("true_positives", "false_positives", "false_negatives", "true_negatives")
        assert all(site[key] % CELL == 0 for key in four)
        assert abs(sum(site[key] for key in four) - own.sites[0].test) < 2 * bands * CELL
    page = report_page(consortium.run(study))
    for heading in ("included", "patients", "operating", "calibration", "decisions"):
        assert f'<section id="{heading}"' in page, heading


def test_whoever_approves_reads_of_it(consortium: Any, told: tuple[Any, dict[str, Any]]) -> None:
    study, _ = told
    home = consortium.homes["bo"]
    words = " ".join(
        one for _, lines in describe(home, read_offer(home, consortium.id(study)), None).parts for one in lines
    )
    assert "have a predicted risk below 20 %, 20 to 40 %, 40 to 50 %, 50 to 60 %, 60 % or more." in words
    assert "rounded at random to a multiple of 10" in words
    assert "10 counts of patients by predicted risk" in words
    plain = in_process.study_of("untold", 1)
    consortium.handlers["bo"].access.store_offer(consortium.id(plain), plain.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, consortium.id(plain)), None)
    assert "predicted risk" not in " ".join(one for _, lines in shown.parts for one in lines)


def test_without_the_setting_nothing_of_it_leaves(consortium: Any) -> None:
    study = in_process.study_of("silent", 1)
    heads: list[dict[str, Any]] = []
    before = consortium.change

    def listen(site: str, topic: str, header: dict[str, Any], reply: bytes) -> bytes:
        if topic == "figures":
            heads.append(dict(read_reply(reply).header))
        return reply

    consortium.change = listen
    result = consortium.conduct(study)
    consortium.change = before
    assert len(heads) == 3
    assert all("risks" not in head for head in heads)
    assert "clinical" not in result["methods"][0]
    assert "risk_bands" in report_page(consortium.run(study))


def test_privacy_refuses_it() -> None:
    study = in_process.study_of("noised", 1, evaluation={"risk_bands": BANDS})
    words = study.model_dump(mode="json", exclude_none=True)
    words["privacy"] = {"epsilon": 3.0, "delta": 1e-5}
    with pytest.raises(Refusal, match="risk_bands"):
        table_without_rows(parse_study(words, where="test"))


def test_one_patient_shows_with_a_chance_of_one_cell() -> None:
    """The attacker knows all others: of 4,000 keys, how often does the table differ by one patient's presence?"""
    rng = np.random.default_rng(0)
    counts = np.array([[37, 9, 4], [1, 12, 20]])
    more = counts + np.array([[0, 1, 0], [0, 0, 0]])
    seen: dict[str, list[int]] = {"without": [], "with": []}
    for name, table in (("without", counts), ("with", more)):
        for _ in range(4_000):
            key = rng.bytes(32)
            offset = offset_by(key, Scores(np.zeros((1, 2)), np.zeros(1), np.array([0, 1])))
            told = coarse_counts(table, CELL, offset)
            assert all(one % CELL == 0 for line in told for one in line)
            seen[name].append(told[0][1])
    means = [float(np.mean(seen[name])) for name in ("without", "with")]
    # Unbiased: 9 and 10 on average. A count of 9 is told as 0 or 10; of 10 always as 10. The advantage is 0.1.
    assert means == pytest.approx([9, 10], abs=0.3)
    advantage = np.mean(np.array(seen["with"]) == 10) - np.mean(np.array(seen["without"]) == 10)
    assert advantage == pytest.approx(1 / CELL, abs=3 * math.sqrt(0.09 / 4_000))


@pytest.mark.parametrize(
    "risks",
    [
        [[1, 2], [3, 4]],
        [[10, 0, 0, 0, 0], [-10, 0, 0, 0, 0]],
        [[10, 0, 0, 0, 0], [True, 0, 0, 0, 0]],
        [[10, 0, 0, 0, 0], [1.5, 0, 0, 0, 0]],
        [[10**7, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        "many",
        {"0": []},
    ],
)
def test_a_lying_site_is_named_and_left_out(risks: Any) -> None:
    said = in_process.study_of("lie", 1, evaluation={"risk_bands": BANDS}).evaluation
    limits = RowLimits(None)
    limits.rows["bo"], limits.cells["bo"] = (100, 30, 40), CELL
    honest = Reply(Status.OK, {"site": "bo", "risks": [[10, 10, 0, 0, 0], [0, 0, 10, 10, 0]]}, Message({}), 0)
    assert risks_problem(honest, said, limits) is None
    assert risks_problem(honest._replace(header={"site": "bo", "risks": risks}), said, limits)
