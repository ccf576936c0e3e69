"""The folder of real data: found by the variable, missed in plain words."""

from pathlib import Path

import pytest

from wardround.core.errors import Refusal
from wardround.data.datasets.adult import adult
from wardround.data.folder import data_file, data_folder


def test_the_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "rows.csv").write_text("a\n1\n")
    assert data_folder() == tmp_path
    assert data_file("set", "rows.csv") == tmp_path / "set" / "rows.csv"


def test_without_the_variable_it_lies_beside_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARDROUND_DATA", raising=False)
    repository = Path(__file__).resolve().parents[2]
    assert data_folder() == repository.parent / "shared" / "data"


def test_what_is_missing_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    with pytest.raises(
        Refusal, match=r"uci_adult is not on this computer \(there is no folder .*uci_adult\).*WARDROUND_DATA"
    ):
        adult()
    (tmp_path / "uci_adult").mkdir()
    with pytest.raises(Refusal, match=r"there is no file .*adult\.csv\.gz"):
        adult()
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(Refusal, match=r"there is no folder .*nowhere\)"):
        adult()
