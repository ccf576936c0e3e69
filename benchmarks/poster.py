"""How long the study of privacy, uneven data and fairness takes, and what it says of each claim.

    python -m benchmarks.poster [--out DIR] [--study FILE]

Runs `wardround compare examples/adult_poster.toml` in a process of its own, as a user would, and prints one JSON
object: seconds by the clock and of computing, the machine's load before and after (the clock tells little where others
compute, too), and for every claim the verdict, how many tests speak for and against it, and the means that were held
against each other. Needs WARDROUND_DATA. Noise is drawn afresh, so another run gives other last digits.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wardround.report.fairness.poster import claims_of, read_grid
from wardround.report.fairness.verdicts import label
from wardround.runs.read import require_result
from wardround.runs.result import CasesResult

STUDY = Path(__file__).resolve().parents[1] / "examples" / "adult_poster.toml"
CALL = "from wardround.cli.app import main; main()"


def timed(study: Path, out: Path) -> dict[str, Any]:
    """The whole command, from its start to the written page."""
    before, started = os.getloadavg()[0], time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", CALL, "compare", str(study), "--out", str(out)], check=True, stdout=subprocess.DEVNULL
    )
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "largest_memory_mb": round(used.ru_maxrss / 1024),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }


def answers(out: Path) -> list[dict[str, Any]]:
    result = require_result(out)
    assert isinstance(result, CasesResult)
    return [
        {
            "claim": claim.words,
            "verdict": claim.verdict,
            "tests": len(claim.tests),
            "for": claim.count("for"),
            "against": claim.count("against"),
            "ends": list(claim.ends),
            "means": {label(name): claim.mean_ends(name) for name in dict.fromkeys(test.what for test in claim.tests)},
        }
        for claim in claims_of(read_grid(out, result))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="keep the run here")
    parser.add_argument("--study", type=Path, default=STUDY)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wardround-poster-") as place:
        out = asked.out or Path(place) / "run"
        told = timed(asked.study, out)
        print(json.dumps({**told, "claims": answers(out)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
