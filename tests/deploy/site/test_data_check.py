"""Whether data fit a study is found before anybody approves it, all at once, and stays at the site."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support import small_site
from tests.support import tiny_study as tiny
from tests.support.in_process import Consortium, study_of
from wardround.deploy.home import SiteHome
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.study_id import study_id
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import set_policy
from wardround.deploy.site.studies.data_check import find_misfits, missing_columns

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path) -> SiteHome:
    return small_site.make(tmp_path)


def rewrite(home: SiteHome, **columns: Any) -> None:
    path = home.path.parent / "patients.csv"
    small_site.patients().astype(object).assign(**columns).to_csv(path, index=False)


def declared(**data: Any) -> Any:
    return small_site.study(data={"cleaning": {"kinds": {"pulse": "number"}}, **data})


def test_data_that_fit(home: SiteHome) -> None:
    assert find_misfits(home, declared()) == []


def test_all_misfits_are_told_at_once(home: SiteHome) -> None:
    frame = small_site.patients()
    rewrite(
        home,
        age=["old", *frame["age"][1:]],
        pulse=[f"fast {n}" for n in range(len(frame))],
        outcome=[None, *frame["outcome"][1:]],
    )
    found = " ".join(one.sentence for one in find_misfits(home, declared()))
    assert "'age' holds a mixture of text and numbers" in found
    assert "'pulse' is declared to hold numbers" in found
    assert "the target 'outcome' is unknown in some rows" in found.replace("The target", "the target")


def test_missing_columns_are_all_named_with_the_nearest_one(home: SiteHome) -> None:
    study = small_site.study(data={"target": "outcom", "groups": ["sexx"]})
    first, second = find_misfits(home, study)
    assert "no column 'outcom'" in first.what
    assert "'outcome'" in first.what
    assert "no column 'sexx'" in second.what


def test_a_column_that_would_be_filled_in_is_none_that_is_missing(home: SiteHome) -> None:
    ranges = {"preparation": {"ranges": {"lactate": [0.0, 20.0]}}}
    assert missing_columns(home, small_site.study(data=ranges)) == ["lactate"]
    assert missing_columns(home, small_site.study(data={**ranges, "missing_columns": "fill"})) == []


def test_approval_shows_and_refuses_what_does_not_fit(home: SiteHome, capsys: Capture) -> None:
    frame = small_site.patients()
    rewrite(home, age=["old", *frame["age"][1:]])
    offer = small_site.offered(home)
    shown = tiny.call(capsys, "site", "studies", offer.id, "--home", home.path)
    assert "What does not fit" in shown.out
    asked = ["site", "approve", offer.id, "--yes", "--by", "fatu", "--home", home.path]
    refused = tiny.call(capsys, *asked)
    assert refused.code == 2
    assert "add --anyway" in refused.err
    assert tiny.call(capsys, *asked, "--anyway").code == 0


def test_nothing_about_the_data_leaves_before_an_approval_unless_the_policy_says_so(home: SiteHome) -> None:
    """What is told are columns that the study itself names; a value in a row is never among it, whatever is asked."""
    frame = small_site.patients()
    rewrite(home, age=["old", *frame["age"][1:]])
    study = small_site.study(data={"groups": ["ward"], "cleaning": {"kinds": {"age": "number"}}})
    small_site.offered(home, study)
    access = HomeAccess(home)
    quiet = access.state(study_id(study))
    assert quiet == (Status.WAITING, "freetown has not decided yet")
    set_policy(home.policy_path, "mismatches", "told")
    status, why = HomeAccess(home).state(study_id(study))
    assert status is Status.WAITING
    assert why == "freetown has not decided yet; its data have no column, or none that may be read, called ward"
    small_site.patients().to_csv(home.path.parent / "patients.csv", index=False)
    assert HomeAccess(home).state(study_id(study))[1] == why


def test_whether_a_column_exists_that_the_policy_denies_is_not_told(home: SiteHome) -> None:
    """A coordinator that names columns by the hundred, in studies that nobody will approve."""
    rewrite(home, hiv=["no"] * len(small_site.patients()))
    set_policy(home.policy_path, "mismatches", "told")
    set_policy(home.policy_path, "columns", "*")
    set_policy(home.policy_path, "columns_denied", "hiv, syphilis")
    study = small_site.study(data={"groups": ["hiv", "syphilis", "age", "ward"]})
    small_site.offered(home, study)
    _, why = HomeAccess(home).state(study_id(study))
    assert why.endswith("no column, or none that may be read, called hiv, syphilis, ward")


def test_a_column_that_one_site_lacks_is_filled_in_there(tmp_path: Path) -> None:
    """`--allow all` lists the columns that exist: one that does not was then refused as not allowed."""
    consortium = Consortium(tmp_path)
    table = consortium.tables["kenema"]
    pd.read_csv(table).drop(columns="temperature").to_csv(table, index=False)
    left = [str(column) for column in pd.read_csv(table).columns]
    set_policy(consortium.homes["kenema"].policy_path, "columns", ",".join(left))
    result = consortium.conduct(study_of("filled", 1, data={"missing_columns": "fill"}))
    assert any("No value of temperature at kenema" in note for note in result["notes"])
