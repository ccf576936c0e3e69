"""Every mistake a user can make is told in one paragraph, with exit code 2, and leaves nothing half-written."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.support import tiny_study as tiny
from tests.support.outside_package import lay, visible
from wardround.engine.checkpoint import read_header

Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, folder: Path, study: Path, *words: str, command: str = "run") -> None:
    """The study is refused in one paragraph that holds the words, and no folder is left."""
    out = folder / "out"
    said = tiny.call(capsys, command, study, "--out", out)
    assert said.code == 2, said
    assert said.err.startswith("wardround: ")
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err
    assert "Fix: " in said.err
    assert said.out == ""
    assert not out.exists()
    for word in words:
        # The first letter of the paragraph is made a capital.
        assert word.lower() in said.err.lower(), said.err


STUDIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "data file missing": ({"data": {"path": "patient.csv"}}, ("no such file", "patient.csv", "patients.csv")),
    "target misspelt": ({"data": {"target": "outcom"}}, ("'outcom'", "did you mean 'outcome'", "patients.csv")),
    "site column misspelt": ({"data": {"site": "hospitl"}}, ("'hospitl'", "did you mean 'hospital'")),
    "dropped column misspelt": ({"data": {"drop": ["puls"]}}, ("'puls'", "did you mean 'pulse'")),
    "unknown key of a table": ({"study": {"round": 3}}, ("unknown key 'round'", "[study]", "'rounds'", "study.toml")),
    "unknown table": ({"algoritm": {"name": "x"}}, ("unknown key 'algoritm'", "'algorithm'", "study.toml")),
    "unknown key of a component": (
        {"algorithm": {"learning_rat": 0.1}},
        ("unknown key 'learning_rat'", "[algorithm]", "fed_avg", "'learning_rate'", "study.toml"),
    ),
    "unknown key of a source": ({"data": {"separater": ";"}}, ("'separater'", "'separator'", "[data]")),
    "unknown algorithm": ({"algorithm": {"name": "fed_agv"}}, ("'fed_agv'", "'fed_avg'", "study.toml")),
    "unknown aggregator": ({"aggregator": {"name": "medain"}}, ("'medain'", "'median'")),
    "unknown model": ({"model": {"name": "logistics"}}, ("'logistics'", "'logistic'")),
    "unknown source": ({"data": {"source": "cvs"}}, ("'cvs'", "'csv'")),
    "unknown partition": ({"data": {"partition": {"name": "idd"}}}, ("'idd'", "'iid'", "[data.partition]")),
    "model that takes a Python object": ({"model": {"name": "from_torch"}}, ("from_torch", "Python")),
    "negative learning rate": ({"algorithm": {"learning_rate": -0.1}}, ("greater than 0", "-0.1", "fed_avg")),
    "text for a number": ({"algorithm": {"learning_rate": "fast"}}, ("must be a number", "'fast'")),
    "table for a number": ({"algorithm": {"learning_rate": {"low": 0.1}}}, ("must be a number",)),
    "text for rounds": ({"study": {"rounds": "ten"}}, ("'rounds'", "'ten'", "[study]")),
    "no rounds": ({"study": {"rounds": 0}}, ("'rounds'", "greater than or equal to 1")),
    "shares that do not add up": ({"data": {"shares": [0.6, 0.2, 0.3]}}, ("add up to 1",)),
    "too few sites for krum": ({"aggregator": {"name": "krum"}}, ("at least 5 sites", "there are 4")),
    "early stopping without validation rows": (
        {"data": {"shares": [0.8, 0.0, 0.2]}, "stopping": {"patience": 2}},
        ("early stopping needs validation rows", "[stopping]", "shares"),
    ),
    "pattern with an unknown site": (
        {"participation": {"present": {"kenma": "1-2"}}},
        ("'kenma'", "kenema", "participation"),
    ),
    "pattern that names no rounds": ({"participation": {"present": {"bo": "3-1"}}}, ("'3-1'", "site bo")),
    "round with nobody": (
        {"participation": {"present": dict.fromkeys(tiny.HOSPITALS, "2-")}},
        ("no site takes part in round 1",),
    ),
    "participation in two ways": ({"participation": {"fraction": 0.5, "cohort": 2}}, ("fraction, cohort",)),
    "cohort larger than all": ({"participation": {"cohort": 5}}, ("5 sites", "there are 4")),
    "unknown metric": ({"study": {"metric": "roc_au"}}, ("'roc_au'", "'roc_auc'")),
    "metric of another task": ({"study": {"metric": "rmse"}}, ("'rmse'", "classification")),
    "unknown asking site": ({"study": {"user": "kenma"}}, ("'kenma'", "'kenema'")),
    "model of another task": ({"model": {"name": "linear"}}, ("2 classes",)),
    "more memory than there is": (
        {"model": {"name": "mlp", "hidden": [100_000, 100_000]}},
        ("GB of memory", "models in training"),
    ),
    "nothing left by subsampling": ({"transforms": [{"name": "subsample", "fraction": 0.0}]}, ("at most 1, not 0.0",)),
    "more than all by subsampling": ({"transforms": [{"name": "subsample", "fraction": 1.5}]}, ("at most 1, not 1.5",)),
    "no bits": ({"transforms": [{"name": "quantize", "bits": 0}]}, ("at least 1 and at most 16, not 0",)),
    "too many bits": ({"transforms": [{"name": "quantize", "bits": 17}]}, ("at least 1 and at most 16, not 17",)),
    "codes under a secure sum": (
        {"transforms": [{"name": "compression"}, {"name": "secure_sum"}]},
        ("hides single answers", 'direction = "down"'),
    ),
    "codes, a secure sum and a median": (
        {
            "transforms": [{"name": "compression", "direction": "down"}, {"name": "secure_sum"}],
            "aggregator": {"name": "median"},
        },
        ("only the sum of the answers", "weighted_mean"),
    ),
    "a width that leaves a layer empty": (
        {"model": {"name": "mlp", "hidden": [4]}, "algorithm": {"name": "federated_dropout", "width": 0.05}},
        ("none of the 4 units of the layer dense_0", "at least 0.25"),
    ),
    "budget spent at the start": ({"budget": {"bytes": 10}}, ("spent before it begins", "one round takes 272")),
    "budget of nothing": ({"budget": {"grams_co2": -1}}, ("'grams_co2' cannot be -1", "[budget]")),
}


@pytest.mark.parametrize("mistake", STUDIES)
def test_a_study_that_cannot_be_right(mistake: str, tmp_path: Path, capsys: Capture) -> None:
    tables, words = STUDIES[mistake]
    refused(capsys, tmp_path, tiny.write_study(tmp_path, **tables), *words)


@pytest.mark.parametrize("mistake", ["too few sites for krum", "unknown metric", "more memory than there is"])
def test_check_refuses_what_run_refuses(mistake: str, tmp_path: Path, capsys: Capture) -> None:
    tables, words = STUDIES[mistake]
    said = tiny.call(capsys, "check", tiny.write_study(tmp_path, **tables))
    assert said.code == 2
    assert all(word in said.err for word in words)


def test_a_study_file_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    refused(capsys, tmp_path, tmp_path / "nowhere.toml", "no such study file", "nowhere.toml")


def test_a_folder_for_a_study_file(tmp_path: Path, capsys: Capture) -> None:
    refused(capsys, tmp_path, tmp_path, "folder, not a study file")


def test_a_study_file_below_a_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    refused(capsys, tmp_path, tmp_path / "file" / "study.toml", "cannot be read")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[study\nname = 3", ("not valid TOML", "line 1")),
        (b"[study]\nname = 'a'\nname = 'b'\n", ("not valid TOML", "line 3")),
        (b"\xff\xfe\x00", ("not UTF-8",)),
        (b"", ("table [study] is missing",)),
        (b"[study]\nname = 'a'\n", ("table [data] is missing",)),
        (b"[study]\nrounds = 3\n[data]\nsource = 'csv'\n", ("key 'name' is missing", "[study]")),
        (b"study = 3\n[data]\nsource = 'csv'\n", ("'study' cannot be 3",)),
    ],
)
def test_a_study_file_that_is_no_study(content: bytes, words: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "study.toml").write_bytes(content)
    refused(capsys, tmp_path, tmp_path / "study.toml", "study.toml", *words)


def without_target_at_one_site(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(outcome=frame.outcome.astype(object).where(frame.hospital != "kenema", None))


def text_at_one_site(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(pulse=frame.pulse.astype(object).where(frame.hospital != "kenema", "fast"))


def one_row_at_a_site(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame[frame.hospital != "kenema"], frame[frame.hospital == "kenema"].head(1)])


def no_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.head(0)


def one_class(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(outcome=1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_target_at_one_site, ("target 'outcome'", "kenema: 30 of 30")),
        (text_at_one_site, ("column 'pulse'", "text at kenema", "numbers at bo")),
        (one_row_at_a_site, ("too few rows", "kenema (one row)")),
        (no_rows, ("patients.csv",)),
        (one_class, ("only one value everywhere (1)", "'outcome'")),
    ],
)
def test_rows_that_cannot_be_learned_from(
    spoil: Callable[[pd.DataFrame], pd.DataFrame], words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    refused(capsys, tmp_path, tiny.write_study(tmp_path, spoil(tiny.patients())), *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="outcome"), ("target 'outcome' is missing", "site kenema")),
        (lambda frame: frame.rename(columns={"pulse": "puls"}), ("column 'pulse' is missing", "'puls'", "kenema")),
        (lambda frame: frame.head(0), ("too few rows", "kenema (no row)")),
    ],
)
def test_one_file_of_a_folder_is_different(
    change: Callable[[pd.DataFrame], pd.DataFrame], words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "sites").mkdir()
    for name, rows in tiny.patients().groupby("hospital"):
        own = rows.drop(columns="hospital")
        (change(own) if name == "kenema" else own).to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    study = tiny.write_study(tmp_path, data={"path": "sites", "site": None})
    refused(capsys, tmp_path, study, *words)


def test_free_memory_decides(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 rows of 3 numbers alone are 1,440 bytes."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1_000))
    refused(capsys, tmp_path, tiny.write_study(tmp_path), "GB of memory", "0.0 GB are free")


SUMMED = '''"""A sum and nothing else, from another package."""

from wardround.core.chain import identity
from wardround.core.contracts import Transform


def summed() -> Transform:
    """Reveals only the sum of the answers."""
    return identity()._replace(sum_only=True)
'''


def test_a_secure_sum_with_an_aggregator_that_must_see_each_answer(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, aggregator={"name": "median"})
    there = lay(tmp_path / "there", "sums", "1", {"summed": SUMMED}, {"transform.summed": "summed:summed"})
    study.write_text(study.read_text() + '[[transforms]]\nname = "summed"\n')
    with visible(there):
        refused(capsys, tmp_path, study, "only the sum of the answers", "weighted_mean")


def test_unknown_transform_and_wrong_setting(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path)
    whole = study.read_text()
    study.write_text(whole + '[[transforms]]\nname = "clipp"\n')
    refused(capsys, tmp_path, study, "'clipp'", "'clip'")
    study.write_text(whole + '[[transforms]]\nname = "clip"\nnorm = {a = 1}\n')
    refused(capsys, tmp_path, study, "'norm' must be a number", "transform clip")


@pytest.mark.parametrize(
    ("command", "tables", "words"),
    [
        ("compare", {}, ("does not name methods to compare", "[compare]")),
        ("compare", {"compare": {"methods": ["locl"]}}, ("'locl'", "'local'", "[compare] methods")),
        ("compare", {"compare": {"methods": ["local", "local"]}}, ("named twice",)),
        ("compare", {"compare": {"methods": ["local"], "against": "global"}}, ("'global'", "against")),
        ("compare", {"compare": {"methods": ["local"], "settings": {"lokal": {}}}}, ("'lokal'", "'local'")),
        (
            "compare",
            {"compare": {"methods": ["local", "fed_prox"], "settings": {"fed_prox": {"mu": -1.0}}}},
            ("'mu'", "-1.0", "fed_prox"),
        ),
        ("tune", {}, ("no [tune] table", "[tune]")),
        ("tune", {"tune": {"parameters": {"learning_rat": [0.1, 0.2]}}}, ("'learning_rat'", "'learning_rate'")),
        ("tune", {"tune": {"parameters": {"learning_rate": [0.2, 0.1]}}}, ("no range", "learning_rate")),
        ("tune", {"tune": {"parameters": {"learning_rate": [-0.1, 0.1]}}}, ("greater than 0", "-0.1")),
        ("tune", {"tune": {"parameters": {"learning_rate": [0, 1, "log"]}}}, ("no range", "log")),
        ("tune", {"tune": {"parameters": {"learning_rate": []}}}, ("nothing to choose from",)),
        ("tune", {"tune": {"parameters": {"modell.hidden": [4, 8]}}}, ("[modell]",)),
        ("tune", {"aggregator": {"name": "krum"}, "tune": {"parameters": {"learning_rate": [0.1, 1]}}}, ("5 sites",)),
    ],
)
def test_comparing_and_tuning(
    command: str, tables: dict[str, dict[str, Any]], words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    refused(capsys, tmp_path, tiny.write_study(tmp_path, **tables), *words, command=command)


def test_the_output_folder_is_not_empty(tmp_path: Path, capsys: Capture) -> None:
    study, out = tiny.write_study(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    said = tiny.call(capsys, "run", study, "--out", out)
    assert (said.code, said.out) == (2, "")
    assert "not empty" in said.err
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    said = tiny.call(capsys, "run", study, "--out", out / "thesis.txt")
    assert said.code == 2
    assert (out / "thesis.txt").read_text() == "mine"
    said = tiny.call(capsys, "run", study, "--out", out / "thesis.txt" / "deeper")
    assert said.code == 2
    assert "cannot be created" in said.err


def test_diverging_training_names_the_round_and_keeps_the_last_good_state(tmp_path: Path, capsys: Capture) -> None:
    """Each full-batch step on a squared error multiplies the error by about 1 - 2·10⁴; 3.4·10³⁸ is reached at round 9.

    The Hessian of the mean squared error of standardised columns is about 2; with the rate 10⁴ the factor a round is
    near 2·10⁴, that is 4.3 decimal places, and 38.5 / 4.3 is 9. So rounds 6 to 12 are far from what chance can move.
    """
    frame = tiny.patients().drop(columns="outcome")
    frame["cost"] = frame.age * 2.5 + frame.pulse + 0.37
    study = tiny.write_study(
        tmp_path,
        frame,
        study={"rounds": 30},
        data={"target": "cost"},
        model={"name": "linear"},
        algorithm={"name": "fed_avg", "batch_size": 0, "learning_rate": 1e4},
    )
    said = tiny.call(capsys, "run", study, "--out", tmp_path / "out")
    assert said.code == 2
    assert len(said.err.strip().splitlines()) == 1
    done = [entry["round"] for entry in tiny.recorded(tmp_path / "out")]
    assert done == list(range(1, len(done) + 1))
    assert 5 <= len(done) <= 12
    assert f"diverged in round {len(done) + 1}:" in said.err
    assert any(name in said.err for name in tiny.HOSPITALS)
    header = read_header(tmp_path / "out" / "checkpoints" / "fed_avg-0.safetensors")
    assert header["round"] == len(done)
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], ("No such command", "rum")),
        (["run"], ("Missing argument", "STUDY")),
        (["run", "a.toml", "--ressume"], ("No such option", "--ressume")),
        (["list", "algoritm"], ("'algoritm'", "algorithm")),
        (["report", "nowhere"], ("not a run folder", "nowhere")),
    ],
)
def test_wrong_command_lines(arguments: list[str], words: tuple[str, ...], capsys: Capture) -> None:
    said = tiny.call(capsys, *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("wardround: ")
    assert all(word in said.err for word in words)


def test_json_refusals_are_one_object_too(tmp_path: Path, capsys: Capture) -> None:
    study = tiny.write_study(tmp_path, algorithm={"learning_rate": -1})
    said = tiny.call(capsys, "run", study, "--json", "--out", tmp_path / "out")
    assert said.code == 2
    assert list(said.json) == ["error"]
    assert f"wardround: {said.json['error']}\n" == said.err


def test_a_real_process_exits_with_two_and_no_traceback(tmp_path: Path) -> None:
    process = tiny.launch("run", tmp_path / "nowhere.toml")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith("wardround: There is no such study file")
    assert len(err.strip().splitlines()) == 1
