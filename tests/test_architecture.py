"""Who may import whom, and the other rules of the house that a machine can check: one test a rule."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from wardround.engine import registry

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "wardround"
TESTS = ROOT / "tests"

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "models": {"core"},
    "aggregators": {"core"},
    "transforms": {"core", "privacy"},
    "meters": {"core", "privacy"},
    "privacy": {"core"},
    "queries": {"core", "privacy"},
    "statistics": {"core", "queries"},
    "selection": {"core", "queries", "evaluate"},
    "classifiers": {"core", "data", "queries", "export", "runs", "selection"},
    "practice_gaps": {"core"},
    "weak_supervision": {"core", "engine", "queries", "statistics"},
    "analyses": {"core", "privacy", "queries", "statistics", "data", "classifiers", "selection", "weak_supervision"},
    "partners": {"core", "privacy", "queries"},
    "incentives": {"core", "engine", "runs"},
    "data": {"core", "queries", "weak_supervision"},
    "evaluate": {"core", "engine", "statistics"},
    "algorithms": {"core", "aggregators"},
    "engine": {"core"},
    "runs": {"core"},
    "report": {"core", "evaluate", "runs", "partners", "queries", "monitor"},
    "study": {"core", "engine", "data", "evaluate", "partners", "privacy", "runs", "weak_supervision"},
    "predict": {
        *("core", "engine", "data", "queries", "evaluate", "runs", "statistics", "study"),
        *("classifiers", "selection"),
    },
    "export": {"core", "engine", "data", "queries", "evaluate", "algorithms", "runs", "report", "predict"},
    "monitor": {"core", "data", "queries", "evaluate", "predict", "runs"},
    "api": {
        *("core", "engine", "data", "evaluate", "models", "monitor", "predict", "privacy", "report", "runs", "study"),
        "workflows",
    },
    "workflows": {
        *(
            "core",
            "engine",
            "data",
            "queries",
            "evaluate",
            "partners",
            "incentives",
            "privacy",
            "study",
            "runs",
            "report",
            "deploy",
            "predict",
            "export",
            "classifiers",
            "selection",
            "practice_gaps",
            "weak_supervision",
        )
    },
    "deploy": {
        *("core", "engine", "data", "queries", "evaluate", "partners", "privacy", "statistics"),
        *("study", "runs", "workflows", "report", "predict", "monitor"),
    },
}
"""Beside itself; `cli` sits on top and may import anything."""
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "v2"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "yaml.load", "pickle.load", "pickle.loads", "os.system"}
MOST_LINES = 400
MOST_FILES = 17
PARTICIPLE = re.compile(r"(ing|[^e]ed|told|said|made)$")
TERMS_OF_THE_FIELD = {
    *("centered_clipping", "nearest_mixing", "partial_pooling", "sampling", "ranking", "rule_mining"),
    *("centralized", "class_weighted", "norm_bounded"),
}
"""Module names that end like a participle because the literature calls the thing so (some are keys of a study file)."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def modules() -> tuple[tuple[Path, ast.Module, str], ...]:
    """Every module of the package: where it is, its tree, its text."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append((path, ast.parse(text), text))
    return tuple(found)


def imports(tree: ast.AST) -> list[str]:
    """Every module imported anywhere in the file, also inside functions and for the type checker only."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def wrong_imports(room: str, found: list[str]) -> list[str]:
    """Those that this room must not have."""
    wrong = []
    for name in found:
        parts = name.split(".")
        if parts[0] == "wardround" and room in MAY_IMPORT:
            # The package itself holds nothing but the version.
            of = parts[1] if len(parts) > 1 else ""
            if of not in MAY_IMPORT[room] | {room, "__version__"}:
                wrong.append(name)
    return wrong


def wrong_calls(tree: ast.AST) -> list[str]:
    wrong = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in FORBIDDEN_CALLS:
            wrong.append(dotted(node.func))
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg == "allow_pickle" and not (isinstance(value, ast.Constant) and value.value is False):
                wrong.append("allow_pickle")
            if keyword.arg == "shell" and not (isinstance(value, ast.Constant) and value.value is False):
                wrong.append("shell")
    return wrong


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def importers(*packages: str) -> list[str]:
    """The modules that import one of these packages."""
    return [
        path.relative_to(PACKAGE).as_posix()
        for path, tree, _ in modules()
        if any(name.split(".")[0] in packages for name in imports(tree))
    ]


def test_imports_point_inward() -> None:
    wrong = {named(path): wrong_imports(room_of(path), imports(tree)) for path, tree, _ in modules()}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"cli"} == set(MAY_IMPORT), "a new room needs a line in MAY_IMPORT (and in the documentation)"


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path, _, _ in modules()}
    assert [named(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_parties_never_import_each_other() -> None:
    rooms = ("coordinator", "site", "second")
    wrong = [
        (named(path), name)
        for path, tree, _ in modules()
        for own in (*rooms, "party")
        if path.is_relative_to(PACKAGE / "deploy" / own)
        for name in imports(tree)
        if name.startswith(tuple(f"wardround.deploy.{other}." for other in rooms if other != own))
    ]
    assert wrong == []


def test_only_from_torch_imports_torch() -> None:
    assert importers("torch", "torchvision") == ["models/from_torch.py"]


def test_only_the_transport_imports_the_federated_runtime() -> None:
    assert [path for path in importers("nvflare") if not path.startswith("deploy/transport/")] == []


def test_nothing_that_runs_what_it_reads() -> None:
    assert importers(*FORBIDDEN_MODULES) == []
    wrong = {named(path): wrong_calls(tree) for path, tree, _ in modules()}
    assert {path: calls for path, calls in wrong.items() if calls} == {}


def test_modules_are_short_and_say_what_they_are() -> None:
    assert [named(path) for path, _, text in modules() if len(text.splitlines()) > MOST_LINES] == []
    assert [named(path) for path, _, _ in modules() if {path.stem, path.parent.name} & FORBIDDEN_NAMES] == []
    assert [named(path) for path, tree, _ in modules() if not ast.get_docstring(tree)] == [], "a docstring on top"


def test_a_module_is_a_noun() -> None:
    names = {path.stem for path, _, _ in modules()}
    assert sorted(name for name in names - TERMS_OF_THE_FIELD if PARTICIPLE.search(name)) == []


def test_a_folder_is_not_crowded() -> None:
    for top in (PACKAGE, TESTS):
        count = Counter(path.parent for path in top.rglob("*.py"))
        assert {named(folder): files for folder, files in count.items() if files > MOST_FILES} == {}


def test_a_class_name_exists_once() -> None:
    where: dict[str, list[str]] = {}
    for path, tree, _ in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(named(path))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


RUN_FILES = ("result.json", "manifest.json", "rounds.jsonl", "model_card.json")


def named_files(tree: ast.AST) -> list[str]:
    """Files of a run folder that are named as a path or a part of one; sentences may speak of them."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if text in RUN_FILES or text.endswith(tuple(f"/{name}" for name in RUN_FILES))]


def test_only_runs_names_the_files_of_a_run_folder() -> None:
    """Whoever wants a result, a manifest or rounds asks `wardround.runs`, so that there is one format."""
    files = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
    tools = [path for path in files if ".peers" not in path.parts]  # other frameworks, after `make bench`
    trees = [(path, tree) for path, tree, _ in modules() if path.parent != PACKAGE / "runs"]
    trees += [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in tools]
    assert {named(path): found for path, tree in trees if (found := named_files(tree))} == {}


def homes_of(kind: str, name: str) -> list[Path]:
    """Where the test of a component may lie: its room mirrored, or for sources beside the other tests of data."""
    room = registry.ROOMS[kind].removeprefix("wardround.").split(".")
    mirrored = TESTS.joinpath(*room, f"test_{name}.py")
    inner = [TESTS.joinpath(*room, one, f"test_{name}.py") for one in registry.INNER_ROOMS.get(kind, ())]
    beside = TESTS.joinpath(*room[:-1], f"test_{room[-1]}_{name}.py")
    return [mirrored, beside, *inner] if len(room) > 1 else [mirrored, *inner]


def test_every_component_has_a_test_of_its_name() -> None:
    missing = [
        named(homes_of(kind, name)[0])
        for kind in registry.ROOMS
        for name in registry.components(kind)
        if not any(path.exists() for path in homes_of(kind, name))
    ]
    assert missing == []


def test_the_rules_find_what_they_forbid() -> None:
    """Each rule on a line that breaks it, so that a rule that sees nothing is noticed."""
    line = (
        "from wardround.engine.fit import fit\nfrom wardround.core import x\ndef f():\n    import wardround.runs.read"
    )
    assert wrong_imports("models", imports(ast.parse(line))) == ["wardround.engine.fit.fit", "wardround.runs.read"]
    assert wrong_imports("engine", imports(ast.parse("from wardround import algorithms"))) == ["wardround.algorithms"]
    assert wrong_imports("cli", imports(ast.parse("import wardround.report.run.page"))) == []
    for bad in ("eval('1')", "torch.load(p)", "yaml.load(p)", "np.load(p, allow_pickle=True)", "run(c, shell=True)"):
        assert wrong_calls(ast.parse(bad)), bad
    assert wrong_calls(ast.parse("np.load(p, allow_pickle=False); model.eval(); json.load(p)")) == []
    assert [word for word in ("telling", "described", "card", "feed", "told") if PARTICIPLE.search(word)] == [
        "telling",
        "described",
        "told",
    ]
    path = "folder / 'result.json'; f'{folder}/manifest.json'; 'see result.json'; '\"\"\"rounds.jsonl is read\"\"\"'"
    assert named_files(ast.parse(path)) == ["result.json", "/manifest.json"]
