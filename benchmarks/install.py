"""Make the peers' environments: `python -m benchmarks.install [name ...]`, all of them when none is named.

Runs pip as the machine has it configured; all together take about 3 GB of disk. An environment that is already whole
is left alone.
"""

import argparse
import shutil
import subprocess
import sys
import venv

from benchmarks.environments import ENVIRONMENTS, Environment


def install(environment: Environment) -> None:
    """Make one environment afresh, unless the same packages are already in it."""
    if environment.ready:
        print(f"{environment.name}: already installed", file=sys.stderr)
        return
    print(f"{environment.name}: installing {' '.join(environment.packages)}", file=sys.stderr)
    shutil.rmtree(environment.directory, ignore_errors=True)
    venv.create(environment.directory, with_pip=True)
    subprocess.run([environment.python, "-m", "pip", "install", "--quiet", *environment.packages], check=True)
    environment.receipt.write_text(environment.wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the environments of the peers.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(ENVIRONMENTS)}; all when left out")
    names = parser.parse_args().names or list(ENVIRONMENTS)
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"no environment called {', '.join(unknown)}; there are {', '.join(ENVIRONMENTS)}")
    failed = []
    for name in names:
        try:
            install(ENVIRONMENTS[name])
        except subprocess.CalledProcessError as error:
            print(f"{name}: pip ended with code {error.returncode}; see its message above", file=sys.stderr)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
