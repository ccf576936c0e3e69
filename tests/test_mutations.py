"""The table of mutations is current: each place is there, and each test that guards one runs in the quick suite."""

import ast
from pathlib import Path

from tests.mutations import MUTATIONS
from tests.mutations.mutation import apply
from tests.support.amount import LONG

ROOT = Path(__file__).resolve().parents[1]


def test_every_place_is_there_once() -> None:
    for one in MUTATIONS:
        apply(one, (ROOT / "wardround" / one.file).read_text())
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)


def test_every_guard_runs_in_the_quick_suite() -> None:
    guards = sorted({guard for one in MUTATIONS for guard in one.tests})
    asleep = [guard for guard in guards if not quick_tests(*guard.partition("::")[::2])]
    assert asleep == []


def quick_tests(file: str, name: str) -> list[str]:
    """The tests of a file (or the one named) of which at least a variant is neither marked slow nor listed as long."""
    found = [node for node in ast.parse((ROOT / "tests" / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    return [
        node.name
        for node in found
        if node.name.startswith("test") and node.name == (name or node.name) and not is_slow(node)
        if "" not in LONG.get(f"tests/{file}::{node.name}", ())
    ]


def is_slow(test: ast.FunctionDef) -> bool:
    return any(ast.unparse(mark).startswith("pytest.mark.slow") for mark in test.decorator_list)


def test_every_long_test_is_there() -> None:
    """Else a test that was renamed would be quick again, and nobody would know why the suite takes long."""
    for name in LONG:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), name
