"""Every command builds a method once for each split and reads each split once; what is refused compiles nothing."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.support import tiny_study as tiny
from tests.support.images.algorithms import OF_TABLES
from wardround.engine.simulate import Simulation
from wardround.study import assemble
from wardround.study.file import read_study
from wardround.study.methods import own_method
from wardround.workflows.training_plan import check_methods, first_shapes

Calls = Counter[str]
PRIVATE = {"level": "sample", "epsilon": 5.0, "delta": 1e-3, "clip": 1.0}
COUNTED = ((assemble, "build"), (assemble, "with_noise"), (assemble, "read_rows"), (Simulation, "begin"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """How often the real functions are called; they do their work as ever."""
    found: Calls = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            found[name] += 1
            return real(*given, **named)

        return call

    for owner, name in COUNTED:
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    return found


# A split is read once. A method is built once for every split that it is trained on, under [privacy] once without and
# once with its noise. A training begins once.
COMMANDS: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "run": ("run", {}, {"read_rows": 1, "build": 1, "begin": 1}),
    "private run": ("run", {"privacy": PRIVATE}, {"read_rows": 1, "build": 2, "with_noise": 1, "begin": 1}),
    # Three methods on two splits.
    "compare": (
        "compare",
        {"compare": {"methods": ["local", "fed_avg", "fine_tune"], "repeats": 2}},
        {"read_rows": 2, "build": 6, "begin": 6},
    ),
    # Weight Erosion is trained for each of the four sites in turn, FedAvg for all.
    "compare for each site": (
        "compare",
        {"compare": {"methods": ["fed_avg", "weight_erosion"], "users": "each", "repeats": 1}},
        {"read_rows": 1, "build": 5, "begin": 5},
    ),
    # Each of two rates is tried, and the method is built once more with the one that was found.
    "compare at rates": (
        "compare",
        {"compare": {"methods": ["fed_avg"], "rates": [0.1, 0.2], "repeats": 1}},
        {"read_rows": 1, "build": 2, "begin": 3},
    ),
    # Two cases of the same data with two methods each.
    "cases": (
        "compare",
        {
            "compare": {
                "methods": ["local", "fed_avg"],
                "repeats": 1,
                "cases": [{"name": "a"}, {"name": "b", "study": {"rounds": 2}}],
            }
        },
        {"read_rows": 1, "build": 4, "begin": 4},
    ),
    # The study itself, both ends of the range, and two trials on two folds.
    "tune": (
        "tune",
        {"tune": {"trials": 2, "folds": 2, "parameters": {"learning_rate": [0.1, 0.5]}}},
        {"read_rows": 1, "build": 7, "begin": 4},
    ),
    # On each of two splits the study's algorithm and the one of the site alone.
    "partners": (
        "partners",
        {"study": {"user": "bo"}, "partners": {"name": "ndoye", "repeats": 2, "measures": ["ndoye"]}},
        {"read_rows": 2, "build": 4},
    ),
    "attack": ("attack", {}, {"read_rows": 1, "build": 1}),
    # Own method and the two that are compared; nothing is trained.
    "check": ("check", {"compare": {"methods": ["local", "fine_tune"]}}, {"read_rows": 1, "build": 3, "begin": 0}),
    "check of cases": (
        "check",
        {"compare": {"methods": ["local"], "cases": [{"name": "a"}, {"name": "b"}]}},
        {"read_rows": 1, "build": 4, "begin": 0},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one == "private run" else one for one in COMMANDS]
)
def test_nothing_is_done_twice(name: str, calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, tables, expected = COMMANDS[name]
    study = tiny.write_study(tmp_path, **tables)
    more: list[str | Path] = [] if command == "check" else ["--out", tmp_path / "out"]
    more += ["--shadows", "8"] if command == "attack" else []
    said = tiny.call(capsys, command, study, *more)
    assert said.code == 0, said.err
    assert {key: calls[key] for key in expected} == expected
    assert calls["with_noise"] == expected.get("with_noise", 0)


def test_retraining_reads_and_builds_once(calls: Calls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tiny.write_study(tmp_path)
    assert tiny.call(capsys, "run", study, "--out", tmp_path / "run").code == 0
    calls.clear()
    said = tiny.call(capsys, "retrain", tmp_path / "run", "--without", "bo", "--out", tmp_path / "new")
    assert said.code == 0, said.err
    assert calls == {"read_rows": 1, "build": 1, "begin": 1}


@pytest.mark.parametrize("name", OF_TABLES)
def test_shapes_are_those_of_the_real_first_state(name: str, tmp_path: Path) -> None:
    """What is checked without computing is what training begins with."""
    model = {"name": "mlp" if name == "federated_dropout" else "logistic"}  # which has no units to leave out
    words = {"study": {"user": "bo"}, "model": model, "algorithm": {"name": name, "batch_size": None}}
    study = read_study(tiny.write_study(tmp_path, **words))
    ((plan,),) = check_methods(study, assemble.load_setting(study, 1), [own_method(study)])
    params, progress = first_shapes(plan)
    real = plan.first_params()
    with plan.engine() as engine:
        begun = engine.begin(plan.algorithm, real)
    for shapes, arrays in ((params, real), (progress, begun)):
        assert jax.tree.structure(shapes) == jax.tree.structure(arrays)
        for shape, array in zip(jax.tree.leaves(shapes), jax.tree.leaves(arrays), strict=True):
            assert (shape.shape, shape.dtype) == (jnp.shape(array), jnp.asarray(array).dtype)


# In a process of its own: what another test compiled before would not be compiled again.
LISTEN = """
import json, sys
from contextlib import redirect_stderr
from io import StringIO
import jax
from wardround.cli.app import main

compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: compiled.append(event) if event.endswith("backend_compile_duration") else None
)
told = []
for arguments in json.loads(sys.argv[1]):
    compiled.clear()
    with redirect_stderr(StringIO()) as words:
        try:
            main(arguments)
        except SystemExit as left:
            told.append([left.code, len(compiled), words.getvalue()])
print("told:" + json.dumps(told))
"""
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown algorithm": ("run", {"algorithm": {"name": "fed_avgg"}}, "no algorithm called 'fed_avgg'"),
    "setting out of range": ("run", {"algorithm": {"learning_rate": -1.0}}, "'learning_rate' must be greater than 0"),
    "a layer that the model does not have": ("run", {"algorithm": {"name": "layer_split", "shared": ["tail"]}}, "tail"),
    "unknown metric": ("run", {"study": {"metric": "rocauc"}}, "no metric 'rocauc'"),
    "metric of another task": ("run", {"study": {"metric": "rmse"}}, "no metric 'rmse'"),
    "too few sites for the aggregator": ("run", {"aggregator": {"name": "krum", "bad": 3}}, "at least 9 sites"),
    "secure sum under a median": (
        "run",
        {"aggregator": {"name": "median"}, "transforms": [{"name": "secure_sum"}]},
        "reveals only the sum",
    ),
    "secure sum of one site a round": (
        "run",
        {"participation": {"cohort": 1}, "transforms": [{"name": "secure_sum"}]},
        "fewer than 3",
    ),
    "stopping without validation rows": (
        "run",
        {"data": {"shares": [0.8, 0.0, 0.2]}, "stopping": {"patience": 2}},
        "early stopping needs validation rows",
    ),
    "a network that does not fit into memory": (
        "run",
        {"model": {"name": "mlp", "hidden": [4000000, 400000]}},
        "of memory",
    ),
    "unknown asking site": (
        "run",
        {"algorithm": {"name": "weight_erosion"}, "study": {"user": "bow"}},
        "'bow' is not among the sites",
    ),
    "partners chosen in two ways": (
        "run",
        {"study": {"user": "bo"}, "partners": {"name": "ndoye", "top": 1, "threshold": 0.5}},
        "chosen in two ways",
    ),
    "a partner who does not exist": (
        "partners",
        {"study": {"user": "bo"}, "partners": {"by_hand": ["nobody"]}},
        "not among the possible partners",
    ),
    "privacy of an algorithm that looks at losses": (
        "run",
        {"algorithm": {"name": "cluster", "batch_size": 8}, "privacy": PRIVATE},
        "noise does not cover",
    ),
    "privacy with too large a delta": (
        "run",
        {"privacy": {"level": "sample", "epsilon": 5.0, "delta": 0.5, "clip": 1.0}},
        "a delta of 0.5",
    ),
    "privacy of sites weighted by patients": (
        "run",
        {"algorithm": {"weights": "samples"}, "privacy": {"level": "site", "epsilon": 5.0, "delta": 0.01, "clip": 1.0}},
        "needs equal weights",
    ),
    "the last of several methods": (
        "compare",
        {"compare": {"methods": ["fed_avg", "local", "cluster"]}, "privacy": PRIVATE},
        "noise does not cover",
    ),
    "the last of several cases": (
        "compare",
        {"compare": {"methods": ["fed_avg"], "cases": [{"name": "a"}, {"name": "b", "study": {"metric": "rmse"}}]}},
        "no metric 'rmse'",
    ),
    "rates without validation rows": (
        "compare",
        {"data": {"shares": [0.8, 0.0, 0.2]}, "compare": {"methods": ["fed_avg"], "rates": [0.1, 0.2]}},
        "rates are chosen by the loss",
    ),
    "a value to tune that is out of range": ("tune", {"tune": {"parameters": {"batch_size": [8, 16, -1]}}}, "not -1"),
    "an attack on an unknown transform": (
        "attack",
        {"transforms": [{"name": "secure_sun"}]},
        "no transform called 'secure_sun'",
    ),
    "a check of an unknown model": ("check", {"model": {"name": "logistik"}}, "no model called 'logistik'"),
}
"""The command, what the study says wrong, and words of the refusal."""


def test_what_is_refused_compiles_nothing(tmp_path: Path) -> None:
    arguments = []
    for number, (command, tables, _) in enumerate(REFUSED.values()):
        place = tmp_path / str(number)
        place.mkdir()
        more = [] if command == "check" else ["--out", str(place / "out")]
        arguments.append([command, str(tiny.write_study(place, **tables)), *more])
    # A check that finds nothing wrong compiles nothing either; a run does, so the counter counts.
    sound = str(tiny.write_study(tmp_path))
    arguments += [["check", sound], ["run", sound, "--out", str(tmp_path / "out")]]
    done = subprocess.run(
        [sys.executable, "-c", LISTEN, json.dumps(arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.rpartition("told:")[2])
    found = dict(zip([*REFUSED, "check", "run"], told, strict=True))
    code, compiled, _ = found.pop("run")
    assert code == 0
    assert compiled > 0
    assert found.pop("check")[:2] == [0, 0]
    assert {name: one[:2] for name, one in found.items()} == {name: [2, 0] for name in REFUSED}
    for name, (_, _, words) in REFUSED.items():
        assert words in found[name][2].lower(), name
