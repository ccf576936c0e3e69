from pathlib import Path

import pandas as pd
import pytest

from wardround.core.errors import Refusal
from wardround.data.sources.parquet import parquet

FRAME = pd.DataFrame({"h": ["B", "A", "B"], "age": pd.array([1, None, 3], "Int64"), "y": [True, False, True]})


def test_file_with_a_site_column(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    table = parquet(path=tmp_path / "a.parquet", site="h", target="y")
    assert list(table.sites) == ["A", "B"]
    assert table.sites["B"]["age"].tolist() == [1, 3]
    assert table.sites["A"]["age"].isna().all()


def test_folder_with_a_file_a_site(tmp_path: Path) -> None:
    for name in ("Bo", "Kenema"):
        FRAME.drop(columns="h").to_parquet(tmp_path / f"{name}.parquet")
    table = parquet(path=tmp_path, target="y", drop=("age",))
    assert {name: list(frame.columns) for name, frame in table.sites.items()} == {"Bo": ["y"], "Kenema": ["y"]}


def test_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(Refusal, match=r"a\.parquet"):
        parquet(path=tmp_path / "a.parquet", target="y")
