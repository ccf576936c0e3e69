"""[privacy] in a study file: calibrated, executed, reported, resumed; and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_study as tiny
from wardround.core.components.recipes import from_json, names_in, recipe_of, to_json
from wardround.core.errors import Refusal
from wardround.engine.participation import everyone
from wardround.privacy.accountant import Step, epsilon
from wardround.study import assemble
from wardround.study.file import PrivacySection, read_study
from wardround.study.methods import own_method
from wardround.study.privacy import KIND, protect, words_in

ROUNDS, call, patients, recorded, write_study = tiny.ROUNDS, tiny.call, tiny.patients, tiny.recorded, tiny.write_study

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3, "seeded": True}


def run(folder: Path, capsys: pytest.CaptureFixture[str], *more: str, **tables: Any) -> Any:
    folder.mkdir(exist_ok=True)
    return call(capsys, "run", write_study(folder, patients(40), **tables), "--json", "--out", folder / "out", *more)


def meter(folder: Path) -> dict[str, Any]:
    result = json.loads((folder / "out" / "result.json").read_text())
    return dict(result["methods"][0]["meters"]["privacy"])


def test_an_epsilon_is_calibrated_kept_and_reported_from_what_was_executed(tmp_path, capsys) -> None:
    said = run(tmp_path, capsys, privacy=PRIVATE)
    assert said.code == 0, said.err
    told = meter(tmp_path)
    # 40 patients a site, 24 of them for training; batches of 8: ceil(24 / 8) = 3 steps a round with rate 1/3.
    rate, noise, times = told["steps"]["bo"][0]
    assert (rate, times) == (pytest.approx(1 / 3), 3 * ROUNDS)
    assert told["noise_multiplier"] == noise
    assert told["clip"] == 1.0
    assert told["sample_epsilon"] == pytest.approx(epsilon([Step(rate, noise, times)], 1e-3), abs=1e-6)
    assert 0.99 < told["sample_epsilon"] <= 1.0
    assert told["site_epsilon"] is None


def test_the_same_seed_gives_the_same_bits_and_fresh_noise_does_not(tmp_path, capsys) -> None:
    noise = {"noise_multiplier": 3.0, "delta": 1e-3}
    models = []
    for name, table in (("a", {"seeded": True}), ("b", {"seeded": True}), ("c", {})):
        assert run(tmp_path / name, capsys, privacy={**noise, **table}).code == 0
        models.append((tmp_path / name / "out" / "model.safetensors").read_bytes())
    assert models[0] == models[1] != models[2]
    assert meter(tmp_path / "c")["sample_epsilon"] == meter(tmp_path / "a")["sample_epsilon"]


def test_whole_sites(tmp_path, capsys) -> None:
    said = run(tmp_path, capsys, privacy={"level": "site", "epsilon": 1.0, "delta": 0.01, "quantile": 0.5})
    assert said.code == 0, said.err
    told = meter(tmp_path)
    noise = told["noise_multiplier"]
    assert 0.99 < told["site_epsilon"] <= 1.0
    assert told["site_epsilon"] == pytest.approx(epsilon([Step(1.0, noise, ROUNDS)], 0.01), abs=1e-6)
    # Another patient moves an answer by twice the bound at most; four sites share the noise that a coordinator sees.
    assert told["sample_epsilon"] == pytest.approx(epsilon([Step(1.0, noise / 2, ROUNDS)], 0.01), abs=1e-6)
    assert told["site_epsilon_towards_coordinator"] == pytest.approx(told["sample_epsilon"])
    assert "clip" in recorded(tmp_path / "out")[-1]["measures"]["told"]


def test_a_site_that_was_away_spends_less(tmp_path, capsys) -> None:
    said = run(
        tmp_path,
        capsys,
        privacy={"noise_multiplier": 2.0, "delta": 1e-3, "seeded": True},
        participation={"present": {"bo": "1"}},
    )
    assert said.code == 0, said.err
    steps = meter(tmp_path)["steps"]
    assert (steps["bo"][0][2], steps["makeni"][0][2]) == (3, 3 * ROUNDS)


def test_methods_side_by_side(tmp_path, capsys) -> None:
    path = write_study(
        tmp_path,
        patients(40),
        privacy={"noise_multiplier": 2.0, "delta": 1e-3, "seeded": True},
        compare={"methods": ["local", "centralized", "global"], "repeats": 1},
    )
    said = call(capsys, "compare", path, "--json", "--out", tmp_path / "out")
    assert said.code == 0, said.err
    told = {
        m["name"]: m["meters"]["privacy"] for m in json.loads((tmp_path / "out" / "result.json").read_text())["methods"]
    }
    assert told["local"]["sample_epsilon"] == 0.0, "nothing left the sites"
    # All 96 training patients in one place, batches of 8: a rate of 1/12, and 12 steps a round.
    rate, _, times = told["centralized"]["steps"]["all"][0]
    assert (rate, times) == (pytest.approx(1 / 12), 12 * ROUNDS)
    assert told["centralized"]["sample_epsilon"] < told["global"]["sample_epsilon"]


REFUSED = [
    ({"epsilon": 0.0}, "greater than 0"),
    ({"epsilon": -1}, "greater than 0"),
    ({}, "either epsilon or noise_multiplier"),
    ({"epsilon": 1.0, "noise_multiplier": 1.0}, "either epsilon or noise_multiplier"),
    ({"epsilon": 1.0, "delta": 0.1}, "delta of 0.1 is above one in the 24 patients of the largest site"),
    ({"level": "site", "epsilon": 1.0, "delta": 0.5}, "delta of 0.5 is above one in the 4 sites"),
    ({"epsilon": 1.0, "sigma": 2}, "Unknown key 'sigma'"),
    ({"level": "patient", "epsilon": 1.0}, "'sample' or 'site'"),
    ({"epsilon": 1.0, "quantile": 0.5}, 'belong to level = "site"'),
]


@pytest.mark.parametrize(("table", "why"), REFUSED)
def test_words_that_cannot_be_right(tmp_path, capsys, table: dict[str, Any], why: str) -> None:
    said = run(tmp_path, capsys, privacy={"clip": 1.0, **table})
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert why in said.err.replace("\n", " ").replace("  ", " "), said.err
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"algorithm": {"name": "meta", "kind": "maml"}}, "differentiates gradients"),
        ({"algorithm": {"name": "cluster"}}, "looks at the losses"),
        ({"aggregator": {"name": "class_weighted"}}, "looks at 1 rows"),
        ({"partners": {"name": "ndoye", "top": 1}, "study": {"user": "bo"}}, "choice of partners"),
        ({"aggregator": {"name": "median"}, "privacy": {"level": "site"}}, "must see single answers"),
        ({"algorithm": {"weights": "samples"}, "privacy": {"level": "site"}}, "needs equal weights"),
    ],
)
def test_what_noise_would_not_cover(tmp_path, capsys, tables: dict[str, Any], why: str) -> None:
    private = {"noise_multiplier": 1.0, "delta": 1e-3, **tables.pop("privacy", {})}
    said = run(tmp_path, capsys, privacy=private, **tables)
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert why in said.err.replace("\n", " "), said.err


def private_algorithm(folder: Path, **privacy: Any):
    study = read_study(write_study(folder, patients(40), privacy={"noise_multiplier": 1.0, "delta": 1e-3, **privacy}))
    federation = assemble.load_setting(study, 1).federation
    settled, _ = assemble.with_noise(study, own_method(study), federation, everyone(4))
    return assemble.build(settled, own_method(settled), federation.task, federation.sites)


def test_a_private_algorithm_has_a_recipe_that_only_makes_a_private_one(tmp_path) -> None:
    algorithm = private_algorithm(tmp_path)
    recipe = from_json(json.loads(json.dumps(to_json(recipe_of(algorithm)))))
    assert names_in(recipe)[:2] == ((KIND, "sample"), ("algorithm", "fed_avg"))
    privacy, words = words_in(recipe)
    assert privacy == PrivacySection(noise_multiplier=1.0, delta=1e-3)
    made = protect(privacy, assemble._algorithm, words)
    assert recipe_of(made) == recipe


def test_seeded_noise_is_refused_at_a_real_site(tmp_path) -> None:
    recipe = recipe_of(private_algorithm(tmp_path, seeded=True))
    with pytest.raises(Refusal, match="follow from the study's seed"):
        words_in(recipe)


def test_an_epsilon_without_its_noise_makes_no_algorithm(tmp_path) -> None:
    study = read_study(write_study(tmp_path, patients(40), privacy={"epsilon": 1.0}))
    federation = assemble.load_setting(study, 1).federation
    with pytest.raises(Refusal, match="has not been found"):
        assemble.build(study, own_method(study), federation.task, federation.sites)
