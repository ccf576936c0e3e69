"""Who may import whom, and the other rules of the house that a machine can check."""

import ast
from pathlib import Path

import pytest

from wardround.engine import registry

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "wardround"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = ROOT / "tests"

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "models": {"core"},
    "aggregators": {"core"},
    "transforms": {"core", "privacy"},
    "meters": {"core", "privacy"},
    "privacy": {"core"},
    "partners": {"core", "privacy", "report"},
    "incentives": {"core", "engine", "runs"},
    "data": {"core"},
    "evaluate": {"core"},
    "algorithms": {"core", "aggregators"},
    "engine": {"core"},
    "runs": {"core"},
    "report": {"core", "evaluate", "runs", "partners"},
    "study": {"core", "engine", "data", "evaluate", "partners", "privacy", "runs"},
    "workflows": {
        *(
            "core",
            "engine",
            "data",
            "evaluate",
            "partners",
            "incentives",
            "privacy",
            "study",
            "runs",
            "report",
            "deploy",
        )
    },
    "deploy": {"core", "engine", "data", "evaluate", "partners", "privacy", "study", "runs", "workflows", "report"},
}
"""Beside itself; `cli` sits on top and may import anything."""
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "v2"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "yaml.load", "pickle.load", "pickle.loads", "os.system"}
MOST_LINES = 400


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


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


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_imports_point_inward(path: Path) -> None:
    assert wrong_imports(room_of(path), imports(parsed(path))) == []


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"cli"} == set(MAY_IMPORT), "a new room needs a line in MAY_IMPORT (and in the documentation)"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_only_from_torch_imports_torch(path: Path) -> None:
    of_torch = [name for name in imports(parsed(path)) if name.split(".")[0] in ("torch", "torchvision")]
    assert path == PACKAGE / "models" / "from_torch.py" or of_torch == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_nothing_that_runs_what_it_reads(path: Path) -> None:
    tree = parsed(path)
    assert [name for name in imports(tree) if name.split(".")[0] in FORBIDDEN_MODULES] == []
    assert wrong_calls(tree) == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    assert path.stem not in FORBIDDEN_NAMES
    assert path.parent.name not in FORBIDDEN_NAMES
    assert ast.get_docstring(parsed(path)), "a docstring on top"


RUN_FILES = ("result.json", "manifest.json", "rounds.jsonl", "model_card.json")


def named_files(tree: ast.AST) -> list[str]:
    """Files of a run folder that are named as a path or a part of one; sentences may speak of them."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if text in RUN_FILES or text.endswith(tuple(f"/{name}" for name in RUN_FILES))]


def test_only_runs_names_the_files_of_a_run_folder() -> None:
    """Whoever wants a result, a manifest or rounds asks `wardround.runs`, so that there is one format."""
    tools = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
    others = [path for path in [*MODULES, *tools] if path.parent != PACKAGE / "runs"]
    assert {named(path): found for path in others if (found := named_files(parsed(path)))} == {}


def homes_of(kind: str, name: str) -> list[Path]:
    """Where the test of a component may lie: its room mirrored, or for sources beside the other tests of data."""
    room = registry.ROOMS[kind].removeprefix("wardround.").split(".")
    mirrored = TESTS.joinpath(*room, f"test_{name}.py")
    beside = TESTS.joinpath(*room[:-1], f"test_{room[-1]}_{name}.py")
    return [mirrored, beside] if len(room) > 1 else [mirrored]


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in registry.kinds() for name in registry.components(kind)]
)
def test_every_component_has_a_test_of_its_name(kind: str, name: str) -> None:
    assert any(path.exists() for path in homes_of(kind, name)), f"write {named(homes_of(kind, name)[0])}"


def test_the_rules_find_what_they_forbid() -> None:
    """Each rule on a line that breaks it, so that a rule that sees nothing is noticed."""
    line = "from wardround.engine.fit import fit\nfrom wardround.core import x"
    line += "\ndef f():\n    import wardround.workflows.run"
    assert wrong_imports("models", imports(ast.parse(line))) == ["wardround.engine.fit.fit", "wardround.workflows.run"]
    assert wrong_imports("study", imports(ast.parse("import wardround.report.run.page"))) == [
        "wardround.report.run.page"
    ]
    assert wrong_imports("engine", imports(ast.parse("from wardround import algorithms"))) == ["wardround.algorithms"]
    assert wrong_imports("cli", imports(ast.parse("import wardround.report.run.page"))) == []
    for bad in ("eval('1')", "torch.load(p)", "yaml.load(p)", "np.load(p, allow_pickle=True)", "run(c, shell=True)"):
        assert wrong_calls(ast.parse(bad)), bad
    assert wrong_calls(ast.parse("np.load(p, allow_pickle=False); model.eval(); json.load(p)")) == []
    path = "folder / 'result.json'; f'{folder}/manifest.json'; 'see result.json'; '\"\"\"rounds.jsonl is read\"\"\"'"
    assert named_files(ast.parse(path)) == ["result.json", "/manifest.json"]
