"""Data are read where they lie, and a study sees no column that it may not see."""

import stat

import pandas as pd
import pytest

from tests.support import small_site as small
from wardround.core.errors import Refusal
from wardround.data.sources.csv import csv
from wardround.deploy.site import datasets
from wardround.deploy.site.policy import Policy
from wardround.deploy.site.policy_file import read_policy, set_policy
from wardround.queries.columns import kind_of


@pytest.fixture
def home(tmp_path):
    return small.make(tmp_path)


def test_a_look_tells_rows_kinds_and_what_seems_to_identify():
    seen = datasets.summarize_table(small.patients())
    assert seen.rows == 100
    assert seen.kinds == {
        "age": "number",
        "pulse": "number",
        "sex": "text",
        "patient_id": "number",
        "outcome": "number",
    }
    assert seen.identifying == {"patient_id": "its name contains 'id'"}


def test_identifiers_are_known_by_name_by_value_and_by_variety():
    rows = 300
    frame = pd.DataFrame(
        {
            "MRN": 1,
            "lastName": "x",
            "zipCode": 2,
            "date_of_birth": 3,
            "fluid": range(rows),
            "note": [f"text {number % 250}" for number in range(rows)],
            "weight": [number + 0.5 for number in range(rows)],
            "width": [number % 7 for number in range(rows)],
            "identity_matrix": 0,
        }
    )
    found = datasets.identifying_columns(frame, {column: str(kind_of(frame[column])) for column in frame})
    assert found == {
        "MRN": "its name contains 'mrn'",
        "lastName": "its name contains 'name'",
        "zipCode": "its name contains 'zip'",
        "date_of_birth": "its name contains 'birth'",
        "fluid": "every row has a different value",  # "id" inside a word is no identifier, a new number in each row is
        "note": "250 different text values",
    }


def test_what_is_registered_is_found_again_and_nothing_was_copied(home, tmp_path):
    small.patients().to_parquet(tmp_path / "more.parquet")
    datasets.add(home, "more", "parquet", {"path": str(tmp_path / "more.parquet")})
    assert list(datasets.read_datasets(home)) == ["patients", "more"]
    pd.testing.assert_frame_equal(datasets.frame_of("more", datasets.read_datasets(home)["more"]), small.patients())
    assert stat.S_IMODE(home.data_path.stat().st_mode) == 0o600
    assert not [path for path in home.path.rglob("*") if path.suffix in (".csv", ".parquet")]
    with pytest.raises(Refusal, match="choose one: there are: patients, more"):
        datasets.find(home, None)
    datasets.remove(home, "more")
    assert datasets.find(home, None) == "patients"
    with pytest.raises(Refusal, match="no dataset called 'more'"):
        datasets.remove(home, "more")
    (tmp_path / "patients.csv").unlink()
    with pytest.raises(Refusal, match="no such file"):
        datasets.table_for(home, "patients", small.study(), read_policy(home.policy_path))


@pytest.mark.parametrize(
    ("name", "source", "settings", "what"),
    [
        ("patients", "csv", {"path": "patients.csv"}, "already"),
        ("../x", "csv", {"path": "patients.csv"}, "cannot be the name of a dataset"),
        ("x", "cvs", {"path": "patients.csv"}, "did you mean 'csv'"),
        ("x", "frame", {}, "no source called 'frame'"),
        ("x", "csv", {}, "'path' is missing"),
        ("x", "csv", {"path": "patients.csv", "seperator": ";"}, "did you mean 'separator'"),
        ("x", "csv", {"path": "absent.csv"}, "no such file"),
        ("x", "csv", {"path": "."}, "a site has one"),
    ],
)
def test_what_cannot_be_registered_is_told_and_not_written(home, tmp_path, monkeypatch, name, source, settings, what):
    monkeypatch.chdir(tmp_path)
    before = home.data_path.read_bytes()
    with pytest.raises(Refusal) as refused:
        datasets.add(home, name, source, settings)
    assert what in str(refused.value)
    assert home.data_path.read_bytes() == before


def test_a_target_that_is_not_there_is_told(home, tmp_path):
    with pytest.raises(Refusal, match="did you mean 'outcome'"):
        datasets.add(home, "x", "csv", {"path": str(tmp_path / "patients.csv")}, target="outcom")


def test_a_password_is_never_shown():
    entry = datasets.DatasetEntry(source="sql", url="postgresql://ward:se:cret/@db.local:5432/x", query="select 1")
    assert "cret" not in entry.description
    assert entry.description == "sql, url postgresql://ward:***@db.local:5432/x, query select 1"
    asked = datasets.DatasetEntry(source="sql", url="postgresql://db.local/x?user=ward&Password=secret&a=b")
    assert asked.description == "sql, url postgresql://db.local/x?user=ward&Password=***&a=b"
    plain = datasets.DatasetEntry(source="sql", url="postgresql://db.local:5432/x")
    assert plain.description == "sql, url postgresql://db.local:5432/x"


def test_the_table_of_a_study_is_what_the_simulation_would_read(home, tmp_path):
    """The same file with the same words through the source itself, which knows nothing of homes and policies."""
    asked = small.study(data={"categories": ["age"], "groups": ["sex"], "positive": "1"})
    table = datasets.table_for(home, "patients", asked, read_policy(home.policy_path))
    same = csv(
        path=tmp_path / "patients.csv",
        target="outcome",
        drop=("patient_id",),
        categories=("age",),
        groups=("sex",),
        positive="1",
    )
    pd.testing.assert_frame_equal(table.sites["freetown"], same.sites["all"])
    assert (table.target, table.groups, table.aside, table.positive) == ("outcome", ("sex",), (), "1")


def test_a_column_dropped_but_kept_for_fairness_is_aside_and_so_is_the_patient(home):
    set_policy(home.policy_path, "columns", "*")
    asked = small.study(data={"drop": ["sex"], "groups": ["sex"], "split_by": "patient_id"})
    table = datasets.table_for(home, "patients", asked, read_policy(home.policy_path))
    assert table.aside == ("sex", "patient_id")
    assert "sex" in table.sites["freetown"].columns


def test_what_the_policy_does_not_allow_is_not_even_read(home):
    for policy in (Policy(columns=["age", "outcome"]), Policy(columns=["*"], columns_denied=["p*", "sex"])):
        asked = small.study(data={"drop": []})
        assert list(datasets.table_for(home, "patients", asked, policy).sites["freetown"]) == ["age", "outcome"]
        read, withheld = datasets.columns_for(asked, policy, datasets.summarize_table(small.patients()).kinds)
        assert (read, withheld) == (["age", "outcome"], ["pulse", "sex", "patient_id"])


def test_places_in_a_study_are_never_looked_at(home):
    asked = small.study(data={"path": "/etc/passwd", "url": "http://example.org", "site": "sex", "drop": []})
    table = datasets.table_for(home, "patients", asked, read_policy(home.policy_path))
    assert list(table.sites["freetown"]) == ["age", "pulse", "outcome"]
    assert "passwd" not in table.origin
