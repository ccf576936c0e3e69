"""What the page about Python shows works, block after block; the notebooks run from beginning to end."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/use-from-python.md"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_about_python_works(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    known = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        run = compile(block, str(PAGE), "exec")
        exec(run, known)
    assert len(known["losses"]) == 2 * 3 * 10
    assert known["watched"].page.exists()
    assert known["watched"].windows["patients"].sum() == len(known["patients"])
    assert known["finished"].predict(known["tomorrow"])["intensive_care"].isin(["yes", "no"]).all()
    assert known["classifier"].score(known["rows"], known["patients"]["intensive_care"]) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_every_notebook_runs(path, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert any("text/html" in out.get("data", {}) for out in shown)


def test_there_are_two_notebooks_without_outputs():
    nbformat = pytest.importorskip("nbformat")
    assert [path.stem for path in NOTEBOOKS] == ["first_study", "own_method"]
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") for cell in cells), "results belong to whoever runs it"
