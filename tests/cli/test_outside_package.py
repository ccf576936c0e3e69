"""A package of another, installed for real by pip: listed with its version, used by a study, and told when broken."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import small_site as small
from tests.support import tiny_study as tiny
from tests.support.outside_package import lay, visible
from wardround import __version__
from wardround.core.errors import Refusal
from wardround.deploy.site.approvals import approve
from wardround.deploy.site.authorization import HomeAccess
from wardround.deploy.site.policy_file import set_policy

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/add-a-package.md"
YOUDEN = '''"""Youden's index: how much better than chance the ill and the well are told apart. Biometrics, 1950."""

from wardround.evaluate.metrics import METRICS, Metric


def youden() -> Metric:
    """Sensitivity and specificity together, less 1."""
    accuracy = METRICS["balanced_accuracy"]
    return Metric(lambda rows, weights: 2 * accuracy.compute(rows, weights) - 1, accuracy.why, "Youden's index")
'''
STUMBLES = '''"""A meter that fails when it is asked."""

from wardround.core.contracts import Meter


def stumbles() -> Meter:
    """Fails after the last round."""
    return Meter(init=lambda: {}, observe=lambda state, record: state, report=lambda state: state["nothing"])
'''


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the how-to, as pip installs it, beside a metric and a package that cannot be imported."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("there")
    files = re.findall(r"<!-- module: ([\w.]+) -->\n```\w+\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert {name for name, _ in files} == {"damped_mean.py", "pyproject.toml"}
    for name, text in files:
        (source / name).write_text(text, encoding="utf-8")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    install = [sys.executable, "-m", "pip", "install", *offline, "-t", str(target), str(source)]
    subprocess.run(install, check=True, timeout=120, env={**os.environ, "PYTHONPATH": ""})
    lay(target, "clinic-metrics", "0.3", {"youden": YOUDEN}, {"metric.youden": "youden:youden"})
    lay(target, "clinic-meters", "0.4", {"stumbles": STUMBLES}, {"meter.stumbles": "stumbles:stumbles"})
    broken = {"lost": "import nowhere_to_be_found\n"}
    lay(target, "broken-extras", "9.1", broken, {"algorithm.lost": "lost:lost", "algorithm.fed_avg": "lost:fed_avg"})
    return target


def call(there: Path, *arguments: str | Path, cwd: Path = ROOT) -> tiny.Said:
    """The command line in a process of its own, with the packages on its path."""
    done = subprocess.run(
        [sys.executable, "-c", tiny.LAUNCH, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{there}", "COLUMNS": "200"},
    )
    return tiny.Said(done.returncode, done.stdout, done.stderr)


def test_listed_with_package_and_version_and_a_broken_one_as_a_warning(there: Path) -> None:
    said = call(there, "list", "--json")
    assert said.code == 0
    found = {(one["kind"], one["name"]): (one["package"], one["version"]) for one in said.json["components"]}
    assert found["aggregator", "damped_mean"] == ("damped-mean", "1.2")
    assert found["metric", "youden"] == ("clinic-metrics", "0.3")
    assert found["algorithm", "fed_avg"] == found["metric", "accuracy"] == ("wardround", __version__)
    assert ("algorithm", "lost") not in found
    (parameters,) = (one["parameters"] for one in said.json["components"] if one["name"] == "damped_mean")
    assert parameters == [
        {"name": "share", "type": "a number at least 0 and at most 1", "default": 0.5, "required": False}
    ]
    taken, lost = said.json["warnings"]
    assert "algorithm 'fed_avg' of broken-extras 9.1 cannot be used" in taken
    assert "algorithm 'lost' of broken-extras 9.1 cannot be used: importing lost failed (ModuleNotFoundError" in lost
    words = call(there, "list", "algorithm")
    assert words.code == 0
    assert re.search(r"fed_avg .* wardround\b", words.out)
    assert words.err.splitlines() == [f"Warning: {taken}.", f"Warning: {lost}."]


def losses(folder: Path) -> list[float]:
    return [one["measures"]["validation_loss"]["weighted"] for one in tiny.recorded(folder)]


def test_a_study_trains_with_it(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The quick part of the next test, in this process: a share of 0 of the mean moves nothing."""
    tables = {"study": {"metric": "youden", "rounds": 2}, "aggregator": {"name": "damped_mean", "share": 0.0}}
    study = tiny.write_study(tmp_path, **tables)
    with visible(there):
        said = tiny.call(capsys, "run", study, "--out", tmp_path / "still", "--json")
    assert said.code == 0, said.err
    still = losses(tmp_path / "still")
    assert still == [still[0]] * 2
    result = json.loads((tmp_path / "still" / "result.json").read_text())
    for site in result["methods"][0]["scores"]["sites"].values():
        assert site["youden"]["value"] == pytest.approx(2 * site["balanced_accuracy"]["value"] - 1)
    packages = json.loads((tmp_path / "still" / "manifest.json").read_text())["packages"]
    assert {"damped-mean": "1.2", "clinic-metrics": "0.3"}.items() <= packages.items()


def test_a_study_uses_it_and_another_is_not_harmed(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the mean a share of 0 moves nothing, so the loss stays; Youden's index is 2 balanced accuracy - 1."""
    tables = {"study": {"metric": "youden"}, "aggregator": {"name": "damped_mean", "share": 0.0}}
    study = tiny.write_study(tmp_path, **tables)
    said = call(there, "run", study, "--out", tmp_path / "still", "--json")
    assert said.code == 0, said.err
    still = losses(tmp_path / "still")
    assert len(still) == tiny.ROUNDS
    assert still == [still[0]] * tiny.ROUNDS
    result = json.loads((tmp_path / "still" / "result.json").read_text())
    assert result["metric"] == "youden"
    (method,) = result["methods"]
    for site in method["scores"]["sites"].values():
        assert site["youden"]["value"] == pytest.approx(2 * site["balanced_accuracy"]["value"] - 1)
    # Whoever reads the model card learns whose code ran; a meter of others that fails costs its own words only.
    outside = {"damped-mean": "1.2", "clinic-metrics": "0.3", "clinic-meters": "0.4", "broken-extras": "9.1"}
    for name in ("manifest.json", "model_card.json"):
        content = json.loads((tmp_path / "still" / name).read_text())
        packages = content["packages"] if name == "manifest.json" else content["versions"]["packages"]
        assert outside.items() <= packages.items()
    words = "The meter stumbles of clinic-meters 0.4 failed (KeyError: 'nothing')."
    assert method["meters"]["stumbles"] == {"words": words}
    assert method["meters"]["traffic"]["words"]
    # The same without packages: the mean moves, and no such names are known.
    plain = tiny.write_study(tmp_path)
    assert tiny.call(capsys, "run", plain, "--out", tmp_path / "moved", "--json").code == 0
    moved = losses(tmp_path / "moved")
    assert len(set(moved)) == tiny.ROUNDS
    assert still[0] > moved[0]
    unknown = tiny.call(capsys, "check", tiny.write_study(tmp_path, aggregator={"name": "damped_mean"}))
    assert unknown.code == 2
    assert "no aggregator called 'damped_mean'" in unknown.err


@pytest.mark.slow
def test_a_study_that_names_a_broken_one_is_refused_in_a_paragraph(there: Path, tmp_path: Path) -> None:
    said = call(there, "check", tiny.write_study(tmp_path, algorithm={"name": "lost"}))
    assert said.code == 2
    assert "The algorithm 'lost' of broken-extras 9.1 cannot be used: importing lost failed" in said.err
    assert "[algorithm]). Fix: repair or uninstall the package broken-extras" in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_site_refuses_it_until_its_policy_allows_package_and_version(there: Path, tmp_path: Path) -> None:
    with visible(there):
        home = small.make(tmp_path)
        offer = small.offered(home, small.study(aggregator={"name": "damped_mean"}))
        set_policy(home.policy_path, "components", "*")
        for packages in ("", "clinic-metrics", "damped-mean>=1.3"):
            set_policy(home.policy_path, "packages", packages)
            with pytest.raises(Refusal, match=r"comes from the package damped-mean 1\.2, which is not allowed"):
                approve(home, offer.id, by="ben")
        assert "damped_mean" not in sys.modules
        set_policy(home.policy_path, "packages", "damped-mean>=1.2,<2")
        assert approve(home, offer.id, by="ben").state == "approved"
        assert HomeAccess(home).state(offer.id) == ("ok", "")
