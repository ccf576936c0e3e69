"""An analysis in simulation: from a study file to a folder, a page and words on the screen."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import wardround as wr
from tests.support.analyses.patients import patients
from wardround.cli.app import app
from wardround.core.errors import Refusal

STUDY = """
[study]
name = "ages"
[data]
source = "csv"
path = "patients.csv"
site = "site"
[analysis]
name = "glm"
formula = "death ~ age + sex"
family = "binomial"
"""


@pytest.fixture
def folder(tmp_path):
    frames = patients()
    pd.concat([frame.assign(site=name) for name, frame in frames.items()]).to_csv(
        tmp_path / "patients.csv", index=False
    )
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_from_the_command_line(folder):
    told = run("check", folder / "study.toml")
    assert "Each site is asked at most 40 times" in " ".join(told.output.split())
    told = run("run", folder / "study.toml", "--out", folder / "out")
    assert (told.exit_code, "Per 1 of age the odds of death" in told.output) == (0, True)
    written = json.loads((folder / "out" / "result.json").read_text())
    assert (written["format"], written["kind"], written["deployed"]) == (1, "analysis", False)
    assert (folder / "out" / "report.html").stat().st_size > 1e6
    again = run("run", folder / "study.toml", "--out", folder / "out", "--resume", "--json")
    assert json.loads(again.stdout)["numbers"] == written["numbers"]


def test_what_trains_does_not_take_it(folder):
    for command in ("compare", "tune"):
        refused = run(command, folder / "study.toml").exception
        assert isinstance(refused, Refusal)


def test_from_python(folder):
    frames = patients()
    study = wr.build_study(frames, analysis=wr.glm(formula="death ~ age + sex", family="binomial"))
    found = wr.run(study, out=folder / "api")
    assert isinstance(found, wr.FinishedAnalysis)
    assert list(found.tables["coefficients"]["term"]) == ["(intercept)", "age", "sex=m"]
    assert found.figure("effects").data
    with pytest.raises(Refusal, match="no chart called 'pie'"):
        found.figure("pie")


def test_under_a_secure_sum_it_is_the_same_and_needs_three_sites(folder):
    hidden = STUDY + '[[transforms]]\nname = "secure_sum"\n'
    (folder / "hidden.toml").write_text(hidden)
    plain, summed = (wr.run(wr.read_study(folder / f"{name}.toml"), out=folder / name) for name in ("study", "hidden"))
    assert summed.numbers["coefficients"] == pytest.approx(plain.numbers["coefficients"], rel=1e-12)
    frames = dict(list(patients().items())[:2])
    two = wr.build_study(frames, analysis=wr.glm(formula="death ~ age"), transforms=["secure_sum"])
    with pytest.raises(Refusal, match="2 sites with patients take part"):
        wr.run(two, out=folder / "two")


def test_a_partition_deals_the_rows_out(folder):
    dealt = STUDY.replace('site = "site"', 'drop = ["site"]') + '[data.partition]\nname = "iid"\nsites = 4\n'
    (folder / "dealt.toml").write_text(dealt)
    found = wr.run(wr.read_study(folder / "dealt.toml"), out=folder / "dealt")
    plain = wr.run(wr.read_study(folder / "study.toml"), out=folder / "plain")
    assert len(found.result.sites) == 4
    assert found.numbers["coefficients"] == pytest.approx(plain.numbers["coefficients"], rel=1e-8)
