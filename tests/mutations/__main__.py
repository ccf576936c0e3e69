"""Breaks a promise of the code on purpose, in one place at a time, and sees whether the quick suite notices.

`python -m tests.mutations [NAME...]` copies the package, applies one mutation after the other and runs the test files
that guard the place, without those marked slow. A mutation that no test notices is a hole in the suite: it fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutations import MUTATIONS
from tests.mutations.mutation import Mutation, apply

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ROOT / ".pytest_cache" / "compiled"
LONGEST = 600
"""Seconds that the tests of one mutation may take."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other says that it could not run the tests, so nothing is known."""


def run_tests(copy: Path, tests: tuple[str, ...], *, seconds: int = LONGEST) -> tuple[int | None, str]:
    """The exit code of pytest in the copy (none: it took too long) and the last lines it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "WARDROUND_TESTS"}
    environment |= {"PYTHONPATH": str(copy), "JAX_COMPILATION_CACHE_DIR": str(COMPILED)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *(f"tests/{path}" for path in tests)],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no result within {seconds} s"
    return done.returncode, "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])


def judge(mutation: Mutation, copy: Path) -> tuple[str, str]:
    """killed, survived or unclear, and what pytest printed; the copy is left as it was."""
    path = copy / "wardround" / mutation.file
    source = path.read_text()
    compiled = Path(cache_from_source(str(path)))
    try:
        path.write_text(apply(mutation, source))
        compiled.unlink(missing_ok=True)  # it is known by a time in whole seconds
        code, said = run_tests(copy, mutation.tests)
    finally:
        path.write_text(source)
        compiled.unlink(missing_ok=True)
    return {FAILED: "killed", PASSED: "survived"}.get(-1 if code is None else code, "unclear"), said


def main(names: list[str]) -> int:
    unknown = set(names) - {one.name for one in MUTATIONS}
    if unknown:
        sys.exit(f"no such mutation: {', '.join(sorted(unknown))}. There are: {', '.join(m.name for m in MUTATIONS)}")
    chosen = [one for one in MUTATIONS if not names or one.name in names]
    verdicts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="wardround-mutations-") as folder:
        copy = Path(folder)
        for part in ("wardround", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for one in chosen:
            apply(one, (copy / "wardround" / one.file).read_text())
        # Only tests that pass on the code as it is can notice anything.
        guards = tuple(dict.fromkeys(test for one in chosen for test in one.tests))
        code, said = run_tests(copy, guards, seconds=LONGEST * 3)
        if code != PASSED:
            sys.exit(f"not all guards pass without a mutation\n{said}")
        for one in chosen:
            began = time.monotonic()
            verdict, said = judge(one, copy)
            verdicts.append(verdict)
            print(f"{verdict:<9}{one.name} ({one.file}, {time.monotonic() - began:.0f} s)", flush=True)
            if verdict != "killed":
                print(said, flush=True)
    killed = verdicts.count("killed")
    print(f"{killed} of {len(chosen)} mutations were noticed by the quick suite.")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
