"""New patients are read as those were that a model learned from."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import tiny_study as tiny


def test_values_mean_what_the_study_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = tiny.patients().assign(sex=np.tile(["f", "m"], 60))
    written = clean.assign(
        age=[f"{value:.3f}".replace(".", ",") for value in clean["age"]],
        sex=clean["sex"].map({"f": "F ", "m": "M"}),
        pulse=clean["pulse"].mask(clean.index % 10 == 0, -999),
        status=np.where(clean.index % 9 == 0, "cancelled", "open"),
    )
    said = {
        "kinds": {"age": "decimal_comma"},
        "recode": {"sex": {"F": "f", "M": "m"}},
        "missing": {"pulse": [-999]},
        "drop_rows": {"status": ["cancelled"]},
    }
    data = {"cleaning": said, "drop": ["status"]}
    study = tiny.write_study(tmp_path, written, data=data, study={"rounds": 2})
    assert tiny.call(capsys, "run", study, "--out", tmp_path / "run").code == 0
    missing = clean.assign(pulse=clean["pulse"].mask(clean.index % 10 == 0))
    told = []
    for name, frame in (("clean", missing), ("written", written.drop(columns="status"))):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        said_now = tiny.call(capsys, "predict", tmp_path / "run", tmp_path / f"{name}.csv", "--out", tmp_path / "p.csv")
        assert said_now.code == 0, said_now.err
        told.append(pd.read_csv(tmp_path / "p.csv"))
    # Every row, also those that training left out; and the same numbers, however the values were written.
    assert len(told[0]) == 120
    pd.testing.assert_frame_equal(*told)
