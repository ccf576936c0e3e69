import gzip
from pathlib import Path

import pytest

from wardround.core.contracts import Message, Site
from wardround.core.errors import Refusal
from wardround.data.query import ask_all
from wardround.data.schema import agree
from wardround.data.sources.csv import csv
from wardround.data.table import Table
from wardround.queries.cards import cards, cards_of

TEXT = """hospital,patient,age,sex,outcome
0301,1,40,f,died
0301,2,,m,lived
Bo,3,61,f,lived
Bo,4,58,m,NA
"""


def write(path: Path, text: str = TEXT) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**options: object) -> str:
    with pytest.raises(Refusal) as caught:
        csv(**options)  # type: ignore[arg-type]
    return str(caught.value)


def check(table: Table) -> None:
    sites = [Site(name, frame) for name, frame in table.sites.items()]
    agree(cards_of(ask_all(cards(target=table.target), Message({}), sites)), table, missing_target="drop")


def test_rows_go_to_the_site_their_column_names(tmp_path: Path) -> None:
    table = csv(path=write(tmp_path / "a.csv"), site="hospital", target="outcome", drop=("patient",))
    # "0301" keeps its zero: it is a name, not a number.
    assert list(table.sites) == ["0301", "Bo"]
    assert list(table.sites["Bo"].columns) == ["age", "sex", "outcome"]
    assert table.sites["Bo"]["age"].tolist() == [61, 58]
    assert table.sites["0301"]["age"].isna().tolist() == [False, True]
    assert table.sites["Bo"]["outcome"].isna().tolist() == [False, True]
    assert list(table.sites["Bo"].index) == [0, 1]


def test_gz_gives_the_same_table(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt", encoding="utf-8") as out:
        out.write(TEXT)
    packed = csv(path=tmp_path / "a.csv.gz", site="hospital", target="outcome")
    plain = csv(path=write(tmp_path / "a.csv"), site="hospital", target="outcome")
    assert all(packed.sites[name].equals(plain.sites[name]) for name in ("0301", "Bo"))


def test_no_site_means_one_pool(tmp_path: Path) -> None:
    table = csv(path=write(tmp_path / "a.csv"), target="outcome")
    assert {name: len(frame) for name, frame in table.sites.items()} == {"all": 4}


def test_folder_has_one_file_a_site(tmp_path: Path) -> None:
    write(tmp_path / "kenema.csv", "age,outcome\n3,1\n4,0\n")
    with gzip.open(tmp_path / "bo.csv.gz", "wt", encoding="utf-8") as out:
        out.write("age,outcome\n5,1\n")
    write(tmp_path / "notes.txt", "not data")
    table = csv(path=tmp_path, target="outcome")
    assert {name: frame["age"].tolist() for name, frame in table.sites.items()} == {"bo": [5], "kenema": [3, 4]}


def test_folder_and_site_column_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path / "bo.csv")
    message = refusal(path=tmp_path, target="outcome", site="hospital")
    assert "hospital" in message
    assert "leave site out" in message


def test_two_files_for_one_site_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "bo.csv")
    with gzip.open(tmp_path / "bo.csv.gz", "wt", encoding="utf-8") as out:
        out.write(TEXT)
    assert "two files are named for site bo" in refusal(path=tmp_path, target="outcome").lower()


def test_folder_without_files_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(path=tmp_path, target="outcome")


def test_missing_file_names_the_path_and_what_is_beside(tmp_path: Path) -> None:
    write(tmp_path / "patients.csv")
    message = refusal(path=tmp_path / "patient.csv", target="outcome")
    assert str(tmp_path / "patient.csv") in message
    assert "patients.csv" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"site": "hospitl"}, ("'hospitl'", "did you mean 'hospital'")),
        ({"site": "hospital", "drop": ("pateint",)}, ("drop", "'pateint'", "did you mean 'patient'")),
        ({"site": "hospital", "groups": ("Sex ",)}, ("groups", "did you mean 'sex'")),
        ({"site": "hospital", "drop": ("outcome",)}, ("target 'outcome'", "dropped")),
        ({"site": "outcome"}, ("target 'outcome'", "the site")),
        ({"site": "hospital", "task": "ranking"}, ("'ranking'", "classification, regression")),
    ],
)
def test_names_that_do_not_exist(tmp_path: Path, options: dict[str, object], words: tuple[str, ...]) -> None:
    message = refusal(path=write(tmp_path / "a.csv"), target="outcome", **options)
    assert all(word in message for word in words), message


def test_rows_without_a_site_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "hospital,outcome\nBo,1\n,0\n,1\n")
    assert "2 rows without the name of a site" in refusal(path=path, site="hospital", target="outcome")


def test_unreadable_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"this is not gzip")
    assert "a.csv.gz" in refusal(path=tmp_path / "a.csv.gz", target="outcome")
    (tmp_path / "b.csv").write_bytes("größe,outcome\n1,2\n".encode("latin-1"))
    assert "b.csv" in refusal(path=tmp_path / "b.csv", target="outcome")
    write(tmp_path / "c.csv", "a,outcome\n1,2\n1,2,3\n")
    assert "c.csv" in refusal(path=tmp_path / "c.csv", target="outcome")
    write(tmp_path / "d.csv", "")
    assert "d.csv" in refusal(path=tmp_path / "d.csv", target="outcome")


def test_latin_text_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes("größe;outcome\n1,5;2\n".encode("latin-1"))
    table = csv(path=tmp_path / "b.csv", target="outcome", encoding="latin-1", separator=";", decimal=",")
    assert table.sites["all"]["größe"].tolist() == [1.5]


def test_wrong_separator_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "age;outcome\n1;2\n")
    assert 'separator = ";"' in refusal(path=path, target="outcome")


def test_column_there_twice_is_refused_not_renamed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "age,age,outcome\n1,2,3\n")
    assert "column 'age' appears twice" in refusal(path=path, target="outcome").lower()


def test_separator_inside_a_quoted_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"sodium, mmol","urea, mmol",y\n1,2,3\n')
    assert list(csv(path=path, target="y").sites["all"].columns) == ["sodium, mmol", "urea, mmol", "y"]


def test_more_fields_than_names_are_refused_not_shifted(tmp_path: Path) -> None:
    for text in ("age,y\n1,2,3\n4,5,6\n", "age,y\n0,2,3\n1,5,6\n", "age,y\nx,2,3\n"):
        path = write(tmp_path / "a.csv", text)
        assert "more fields than the header" in refusal(path=path, target="y")


def test_truncated_gz_and_unknown_encoding_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"age,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000)))
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert "a.csv.gz" in refusal(path=tmp_path / "a.csv.gz", target="y")
    assert "a.csv" in refusal(path=write(tmp_path / "a.csv"), target="outcome", encoding="utf-9")
    assert "one character" in refusal(path=write(tmp_path / "a.csv"), target="outcome", separator="||")


def test_a_word_at_one_site_is_traced_to_that_site(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "h,chol,y\nA,1,0\nA,2.5,1\nB,?,0\nB,3,1\n")
    table = csv(path=path, site="h", target="y")
    with pytest.raises(Refusal, match=r"'chol'.*numbers at A, text at B.*missing_words.*categories"):
        check(table)
    mended = csv(path=path, site="h", target="y", missing_words=("?",))
    check(mended)
    assert mended.sites["A"]["chol"].tolist() == [1.0, 2.5]
    coded = csv(path=path, site="h", target="y", categories=("chol",))
    check(coded)
    assert coded.sites["A"]["chol"].tolist() == ["1", "2.5"]


def test_codes_become_text_without_decimal_points(tmp_path: Path) -> None:
    # The missing value makes pandas read floats at A; the labels must still be those of B.
    write(tmp_path / "A.csv", "cp,y\n1,0\n,1\n")
    write(tmp_path / "B.csv", "cp,y\n1,0\n2,1\n")
    table = csv(path=tmp_path, target="y", categories=("cp",))
    assert table.sites["A"]["cp"].tolist() == ["1", None]
    assert table.sites["B"]["cp"].tolist() == ["1", "2"]


def test_group_that_is_dropped_is_only_kept_aside(tmp_path: Path) -> None:
    table = csv(path=write(tmp_path / "a.csv"), site="hospital", target="outcome", drop=("sex",), groups=("sex",))
    assert table.aside == ("sex",)
    assert "sex" in table.sites["Bo"].columns
