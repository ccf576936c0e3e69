"""A coordinator that uses the words of [data.cleaning] to learn about single patients of a site."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support import in_process
from tests.support.adversary.actors import LyingCoordinator
from tests.support.adversary.questions import SITE, keep_policies, rows_of, with_patient_numbers
from wardround.core.errors import Refusal
from wardround.deploy.party.decisions import read_offer, store_offer
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.approvals import approve, reasons_against
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.datasets import read_datasets, table_for
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.deploy.site.study_summary import describe

PATIENT = 1007
"""A number in the column `patient`, which one row has."""


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = with_patient_numbers(tmp_path_factory.mktemp("words"))
    home = made.homes[SITE]
    plain = cleaned({}, "plain")
    store_offer(home, study_id(plain), plain.model_dump(mode="json"), "researcher")
    approve(home, study_id(plain), by="admin")
    return made


@pytest.fixture(autouse=True)
def as_before(consortium: Any) -> Iterator[None]:
    texts = {path: path.read_bytes() for path in consortium.tables.values()}
    with keep_policies(consortium):
        yield
    for path, text in texts.items():
        path.write_bytes(text)


def cleaned(cleaning: dict[str, Any], name: str = "words") -> Any:
    return in_process.study_of(name, data={"cleaning": cleaning})


def against(consortium: Any, cleaning: dict[str, Any]) -> list[str]:
    home, study = consortium.homes[SITE], cleaned(cleaning)
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    return reasons_against(home, read_offer(home, study_id(study)), None)


@pytest.mark.parametrize(
    "cleaning",
    [
        {"drop_rows": {"patient": [PATIENT]}},
        {"recode": {"patient": {str(PATIENT): ""}}},
        {"recode": {"patient": {str(PATIENT): "1010"}}},
        {"missing": {"patient": [PATIENT]}},
        {"plausible": {"patient": [1001, 10**6]}},
        # A change of everybody beside it does not hide it.
        {"drop_rows": {"patient": [PATIENT]}, "kinds": {"age": "text"}},
    ],
    ids=["drop_rows", "blank", "recode", "missing", "plausible", "hidden"],
)
def test_two_studies_may_not_differ_in_a_few_patients(consortium: Any, cleaning: dict[str, Any]) -> None:
    (reason,) = against(consortium, cleaning)
    assert "1 patient otherwise than plain-" in reason
    assert "smallest_difference is 10" in reason


def test_nor_by_a_column_that_only_the_earlier_study_read(consortium: Any) -> None:
    """First without the patient, then with everybody and without the column that told him."""
    home = consortium.homes[SITE]
    set_policy(home.policy_path, "smallest_difference", "1")
    first = cleaned({"drop_rows": {"patient": [PATIENT]}}, "first")
    store_offer(home, study_id(first), first.model_dump(mode="json"), "researcher")
    approve(home, study_id(first), by="admin")
    set_policy(home.policy_path, "smallest_difference", "10")
    second = in_process.study_of("second", data={"drop": ["patient"]})
    store_offer(home, study_id(second), second.model_dump(mode="json"), "researcher")
    (reason,) = reasons_against(home, read_offer(home, study_id(second)), None)
    assert "1 patient otherwise than first-" in reason
    (home.path / "decisions" / f"{study_id(first)}.json").unlink()


def test_the_site_may_allow_it(consortium: Any) -> None:
    set_policy(consortium.homes[SITE].policy_path, "smallest_difference", "1")
    assert against(consortium, {"drop_rows": {"patient": [PATIENT]}}) == []


def test_honest_words_are_allowed(consortium: Any) -> None:
    """A code for unknown in three rows, one word for another in forty, rows that were cancelled."""
    rows = rows_of(consortium)
    rows.loc[:2, "age"] = -999
    rows.to_csv(consortium.tables[SITE], index=False)
    assert against(consortium, {"missing": {"age": [-999]}}) == []
    assert against(consortium, {"plausible": {"age": [0, 120]}}) == []
    assert against(consortium, {"recode": {"sex": {"female": "f", "male": "m"}}}) == []
    assert against(consortium, {"drop_rows": {"sex": ["male"]}}) == []
    assert against(consortium, {"recode": {"sex": {"nobody": "f"}}}) == []


def test_no_few_patients_are_given_a_value_that_outshines_all_others(consortium: Any) -> None:
    """In a gradient over all patients a value of 1e12 is all that counts: its sign would tell the outcome of one."""
    set_policy(consortium.homes[SITE].policy_path, "smallest_difference", "1")
    (reason,) = against(consortium, {"recode": {"patient": {str(PATIENT): "1000000000000"}}})
    assert "gives 1 patient a value far outside those of all others" in reason
    # Below a limit of detection there is room: the numbers are 1000 to 1191.
    assert against(consortium, {"recode": {"patient": {str(PATIENT): "950"}}}) == []


def test_a_spotlight_would_tell_the_outcome(consortium: Any) -> None:
    """That it is an attack: with the value, a sum over all patients has the sign of one patient's outcome."""
    rows = rows_of(consortium)
    outcome = (rows["ebola"] == "confirmed").to_numpy(float)
    for place in range(20):
        value = rows["patient"].to_numpy(float).copy()
        value[place] = 1e12
        scaled = (value - np.median(value)) / 50
        gradient = ((0.5 - outcome) * scaled).sum()
        assert (gradient < 0) == (outcome[place] == 1)


def test_rows_that_come_after_the_approval_count_too(consortium: Any) -> None:
    """Nobody had the value when the study was approved; the first request comes when somebody has."""
    home = consortium.homes[SITE]
    rows = rows_of(consortium)
    study = cleaned({"drop_rows": {"patient": [7777]}}, "waits")
    one = LyingCoordinator(consortium, study)
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    approve(home, study_id(study), by="admin")
    assert len(HomeAccess(home).table(study).sites[SITE]) == len(rows)
    pd.concat([rows, rows[:1].assign(patient=7777)]).to_csv(consortium.tables[SITE], index=False)
    with pytest.raises(Refusal, match="1 patient otherwise"):
        HomeAccess(home).table(study)
    consortium.restart(SITE)
    said = one.send(
        SITE, "query", {"query": {"kind": "query", "name": "cards", "settings": {}, "parts": []}, "on": "raw"}
    )
    assert said.why.startswith("The data of this site cannot be read as the study says")
    assert "patient" not in said.why


def test_whoever_approves_reads_how_many_patients_each_word_touches(consortium: Any) -> None:
    home = consortium.homes[SITE]
    rows = rows_of(consortium)
    study = cleaned({"drop_rows": {"sex": ["male"], "patient": [PATIENT]}, "recode": {"sex": {"female": "f"}}}, "read")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, study_id(study)))
    text = "\n".join(sentence for _, sentences in shown.parts for sentence in sentences)
    men, women = ((rows["sex"] == sex).sum() for sex in ("male", "female"))
    assert f"recode of sex: {women} of {len(rows)} rows; drop_rows by sex: {men} of {len(rows)} rows" in text
    assert f"drop_rows by patient: 1 of {len(rows)} rows" in text
    assert "Warning: fewer than 10 patients are touched by drop_rows by patient." in text


def test_a_rule_or_word_that_few_patients_have_is_found_in_none(consortium: Any) -> None:
    """A column that is 1 for one patient is a spotlight: its weight changes by her outcome alone."""
    home, rows = consortium.homes[SITE], rows_of(consortium)
    rows["note"] = np.where(np.arange(len(rows)) == 7, "seen, ada lovelace", "seen, fever")
    rows.to_csv(consortium.tables[SITE], index=False)
    rules = [
        {"name": "threshold", "condition": f"patient = {PATIENT}", "label": "confirmed"},
        {"name": "unigram", "column": "note", "word": "lovelace", "label": "confirmed"},
        {"name": "threshold", "condition": "sex = female", "label": "excluded"},
    ]
    words = {"rules": rules, "texts": {"note": {"words": ["ada", "fever"]}}}
    study = in_process.study_of("votes", data={"cleaning": words}, model={"name": "weasel", "hidden": [4]})
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, study_id(study)))
    text = "\n".join(dict(shown.parts)["What is read"])
    women = int((rows["sex"] == "female").sum())
    assert f"rule 3: {women} of {len(rows)} rows" in text
    assert "Warning: fewer than 10 patients are touched by rule 1, rule 2, the word 'ada' of note." in text
    table = table_for(home, read_datasets(home).popitem()[0], study, read_policy(home.policy_path))
    found = table.sites[SITE]
    assert [int((found[name] != 0).sum()) for name in ("rule 1", "rule 2", "rule 3")] == [0, 0, women]
    assert [int((found[name] != 0).sum()) for name in ("note 1", "note 2")] == [0, len(rows) - 1]


def test_whoever_approves_sees_leaks_copies_and_outsiders_and_nobody_else_does(consortium: Any) -> None:
    home = consortium.homes[SITE]
    rows = rows_of(consortium).drop(columns="patient")
    rows["ward"] = np.where(rows["ebola"] == "confirmed", "isolation", "general")
    rows.loc[:2, "age"] = -999
    pd.concat([rows, rows[:40]]).to_csv(consortium.tables[SITE], index=False)
    study = cleaned({}, "leaks")
    store_offer(home, study_id(study), study.model_dump(mode="json"), "researcher")
    shown = describe(home, read_offer(home, study_id(study)))
    text = "\n".join(dict(shown.parts)["What your rows show"])
    for part in (
        "'ward' alone tells ebola nearly perfectly",
        "'age' has 6 values far outside the rest",
        "-999",
        "copies",
    ):
        assert part in text
    assert {one["kind"] for one in shown.facts["warnings"]} == {"leak", "outsiders", "copies"}
    before = home.audit_path.read_bytes()
    approve(home, study_id(study), by="admin")
    assert b"isolation" not in home.audit_path.read_bytes()[len(before) :]
    assert b"-999" not in home.audit_path.read_bytes()[len(before) :]
