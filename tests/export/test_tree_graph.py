"""Boosted trees as an ONNX file give the model's predictions in onnxruntime."""

import numpy as np
import pytest

from tests.support.analyses.tree_sites import COLUMNS, patients
from wardround.api.commands import analyse
from wardround.export.onnx_model import onnx_bytes, onnx_inputs, run_onnx
from wardround.predict.predictor import load_predictor
from wardround.study.file import parse_study


@pytest.mark.parametrize("target", ["dies", "course", "stay"])
def test_onnxruntime_gives_the_same_to_1e5(tmp_path, target):
    table = patients(900, 1).assign(hospital=np.repeat(["A", "B", "C"], 300))
    table.to_csv(tmp_path / "patients.csv", index=False)
    study = parse_study(
        {
            "study": {"name": "trees"},
            "data": {"source": "csv", "path": str(tmp_path / "patients.csv"), "site": "hospital"},
            "analysis": {
                "name": "boosted_trees", "target": target, "columns": list(COLUMNS), "trees": 5, "depth": 3,
                "effects": 0,
            },
        },
        where="test",
    )  # fmt: skip
    analyse(study, out=tmp_path / "run")
    predictor = load_predictor(tmp_path / "run")
    rows = patients(400, 5)
    rows.loc[:9, "age"] = np.nan
    rows.loc[10:19, "ward"] = None
    rows.loc[20:29, "ward"] = "never seen"
    # Values at an edge and next to it must take the same way.
    edges = predictor.params["edges"][0][:20]
    rows.loc[30:49, "age"], rows.loc[50:69, "age"] = edges, np.nextafter(edges, -np.inf)
    found = run_onnx(onnx_bytes(predictor), onnx_inputs(predictor.preparation, rows))[0]
    np.testing.assert_allclose(found, predictor.predict(rows), atol=1e-5 * max(1, np.abs(found).max()))
