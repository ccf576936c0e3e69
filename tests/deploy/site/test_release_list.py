"""The list of releases follows from the approved words alone, is finite, and a larger one is told from a smaller."""

from typing import Any

import pytest

from tests.support import in_process
from wardround.core.errors import Refusal
from wardround.deploy.site.release.gate import LETTERS, Place, ReleaseClaim, ReleaseGate
from wardround.deploy.site.release.release_list import (
    SPARE_LOOKS,
    Release,
    from_json,
    growth,
    hash_of,
    most_features,
    release_list,
    sentences,
    to_json,
)

COLUMNS = {"age": "number", "sex": "text", "ebola": "text"}
SITES = ["bo", "freetown", "kenema"]


def listed(rounds: int = 4, cell: int = 10, columns: dict[str, str] | None = None, **tables: Any) -> dict[str, Release]:
    data = in_process.study_of("x").data.model_dump(mode="json", exclude_none=True)
    tables = {"deploy": {"sites": SITES}, **tables}
    tables["data"] = {**data, **tables.get("data", {})}
    study = in_process.study_of("listed", rounds, **tables)
    return {one.kind: one for one in release_list(study, columns or COLUMNS, cell)}


def times(found: dict[str, Release]) -> dict[str, int]:
    return {kind: one.times for kind, one in found.items()}


def test_a_plain_study() -> None:
    """Of four rounds every second is looked at; the median takes one histogram where answers are coarse."""
    assert times(listed(evaluation={"every": 2})) == {
        "query/cards": 1,
        "query/moments": 1,
        "query/category_counts": 1,
        "query/extremes": 1,
        "query/histogram": 1,
        "prepare": 1,
        "round": 4,
        "diverged": 4,
        "judge": 2 + SPARE_LOOKS,
        "figures": 1,
        "settle": 1,
        "begin": 1,
        "finish": 1,
        "refusal": 100,
    }


@pytest.mark.parametrize(
    ("rounds", "every", "stopping", "looks"),
    [
        (4, 1, None, 4),
        (5, 2, None, 3),  # after rounds 2 and 4, and at the end
        (4, 1, {"patience": 2, "user": True}, 5),  # whether the asking site has a loss at all is looked at beforehand
    ],
)
def test_looks_are_as_many_as_training_takes(rounds: int, every: int, stopping: Any, looks: int) -> None:
    more = {} if stopping is None else {"stopping": stopping, "study": {"user": "bo"}}
    assert listed(rounds, evaluation={"every": every}, **more)["judge"].times == looks + SPARE_LOOKS


def test_exact_statistics_and_other_imputations() -> None:
    exact = listed(data={"preparation": {"smallest_cell": 1}}, cell=1)
    assert (exact["query/histogram"].times, exact["query/histogram"].precision) == (5, "exact")
    frequent = listed(data={"preparation": {"impute": "most_frequent", "smallest_cell": 10}})
    assert frequent["query/category_counts"].times == 2
    assert not {"query/histogram", "query/extremes"} & set(frequent)


def test_a_choice_of_partners_is_counted_before_it_is_made() -> None:
    """Leave-one-out over three sites: a training of all, and one without each of two; each of four rounds."""
    found = times(listed(study={"user": "bo"}, partners={"name": "leave_one_out"}))
    assert (found["training"], found["probe/losses"]) == (3 * 4, 1)
    assert found["begin"] == 1 + 3 + 1
    found = times(listed(study={"user": "bo"}, partners={"name": "influence", "iterations": 7}))
    assert (found["training"], found["probe/curvature"]) == (4, 7)
    found = times(listed(study={"user": "bo"}, partners={"name": "gradient_distance", "rounds": 2}))
    assert found["training"] == 2


def test_sums_and_noise() -> None:
    masked = listed(transforms=[{"name": "secure_sum"}])
    assert "round" not in masked
    assert masked["secure"].times == 4
    private = listed(privacy={"epsilon": 1.0, "delta": 1e-3})
    assert private["round"].noised
    assert "diverged" not in private, "under noise there is no word for it"


def test_an_answer_has_room_for_what_other_sites_know_and_no_more() -> None:
    """One number, and 200 categories at each of three sites; 100 outcomes: 601 * 100 weights and 100 offsets."""
    found = listed()
    study = in_process.study_of("x", deploy={"sites": SITES})
    assert most_features(study, COLUMNS) == 1 + 3 * 200
    numbers = 601 * 100 + 100 + 1
    assert 4 * numbers < found["round"].bytes < 4 * numbers + 8192
    assert found["judge"].bytes == 4096
    assert found["round"].request < 3 * 4 * numbers + (1 << 21)


def test_a_list_that_grew_is_told_from_one_that_shrank() -> None:
    before = tuple(listed().values())
    assert from_json(to_json(before)) == before
    assert hash_of(from_json(to_json(before))) == hash_of(before)
    for more, words in (
        (listed(5), "answers of training: 5 times, 4 approved"),
        (listed(cell=5), "numbers of rows: groups of 5 patients, 10 approved"),
        (listed(columns={**COLUMNS, "town": "text"}), "statistics moments"),
        (listed(transforms=[{"name": "secure_sum"}]), "masked answers of training would be new"),
        (listed(algorithm={"name": "scaffold"}), "answers of training: other arrays"),
    ):
        assert any(words in one for one in growth(before, tuple(more.values())))
        assert hash_of(tuple(more.values())) != hash_of(before)
    for less in (listed(3), listed(cell=20)):
        assert growth(before, tuple(less.values())) == []
    noised = tuple(listed(privacy={"epsilon": 1.0, "delta": 1e-3}).values())
    assert any("without the approved noise" in one for one in growth(noised, before))
    assert growth((), before)
    with pytest.raises(Refusal, match="damaged"):
        from_json([{"kind": "round"}])


def test_the_list_in_words() -> None:
    text = sentences(tuple(listed().values()))
    assert text[0].startswith("statistics cards: all patients of the dataset, once, at most ")
    assert any(one.startswith("losses while training goes on: validation patients, at most 7 times,") for one in text)
    assert any(one.startswith("refusals: nothing about patients, at most 100 times,") for one in text)


# ---- the gate ----


def gate(**tables: Any) -> ReleaseGate:
    return ReleaseGate(tuple(listed(**tables).values()), 4)


def test_the_gate_counts_down_and_remembers() -> None:
    one = gate()
    for number in range(1, 5):
        asked = ReleaseClaim("round", f"0/{number}", f"r{number}", f"s{number}")
        one.admit(asked)
        one.release(asked, 100, ["update", "weight"])
        one.claim(asked)
        one.admit(asked)
    with pytest.raises(Refusal, match="rounds 1 to 4"):
        one.admit(ReleaseClaim("round", "0/5", "r5"))
    again = gate()
    again.recall([claim for used in one.claims.values() for claim in used.values()])
    with pytest.raises(Refusal, match="there is one answer, and no second"):
        again.admit(ReleaseClaim("round", "0/2", "other"))
    with pytest.raises(Refusal, match="would be another one now"):
        again.release(ReleaseClaim("round", "0/2", "r2", "other bytes"), 100, [])
    again.release(ReleaseClaim("round", "0/2", "r2", "s2"), 100, [])


def test_nothing_passes_that_is_larger_or_other_than_listed() -> None:
    one = gate()
    claim = ReleaseClaim("judge", "a", "a", "s")
    for size, arrays, why in (
        (5000, ["loss"], "5000 bytes, and 4096 are listed"),
        (100, ["loss", "rows", "labels"], "arrays that are not listed"),
    ):
        with pytest.raises(Refusal, match=why):
            one.release(claim, size, arrays)
    with pytest.raises(Refusal, match="are allowed for judge"):
        one.check_size(Place("judge"), 1 << 30)
    for kind in ("judge of other patients", "query/cells_of", "diverged", "refusal", "training", "halves"):
        with pytest.raises(Refusal):
            one.require(Place(kind))
    with pytest.raises(Refusal, match="no 'diverged' leave"):
        gate(privacy={"epsilon": 1.0, "delta": 1e-3}).release(ReleaseClaim("round", "0/1", "r"), 9, [], diverged=True)


def test_a_secure_sum_may_be_tried_again_but_not_without_end_and_not_with_another_model() -> None:
    one = gate(transforms=[{"name": "secure_sum"}])
    for letter in range(LETTERS):
        asked = ReleaseClaim("secure", "0/1", "model", str(letter))
        one.admit(asked)
        one.release(asked, 100, ["vector"])
        one.claim(asked)
    with pytest.raises(Refusal, match="asked too often"):
        one.admit(asked)
    with pytest.raises(Refusal, match="asked before in other words"):
        one.admit(asked._replace(request="another model"))
    with pytest.raises(Refusal, match="only the sum of the answers is opened"):
        one.require(Place("round"))
