"""What the transcript adds to a plain round: the same study with and without it, in turn, in one process.

    python -m benchmarks.transcript

Three sites with real homes over the transport `in_process`, so a round is training, files and hashes, without a
network, which would make the share of the transcript smaller. Prints the medians over rounds: seconds, and seconds of
the processor, which do not depend on what else the machine does (nor see how long the disk takes).
"""

import statistics
import tempfile
from pathlib import Path

from tests.support.in_process import Consortium, study_of
from wardround.deploy.coordinator.run_study import conduct
from wardround.deploy.coordinator.studies.submission import Submission
from wardround.deploy.coordinator.transcript_record import signer_of
from wardround.runs.folder import RunFolder

ROUNDS, REPEATS = 8, 4
WARM = 2
"""Rounds in which programs are compiled."""


def times(
    consortium: Consortium, hidden: list[int], turn: int, *, signed: bool, keeps: str
) -> list[tuple[float, float]]:
    """Seconds and processor seconds of every round but the first ones."""
    study = study_of(
        f"bench-{len(hidden)}-{turn}-{signed}-{keeps}",
        ROUNDS,
        model={"name": "mlp", "hidden": hidden} if hidden else {"name": "logistic"},
        evaluation={"every": ROUNDS},
        deploy={"transcript": keeps},
    )
    folder = RunFolder.create(consortium.run(study), resume=False)
    submission = Submission(study, consortium.names, "bench")
    conduct(submission, folder, consortium, signer=signer_of(consortium.home) if signed else None)
    return [(one["seconds"], one["cpu_seconds"]) for one in consortium.rounds(study)][WARM:]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        consortium = Consortium(Path(place))
        for name, hidden in (("30 parameters", []), ("1.1 M parameters", [1024, 1024])):
            for keeps in ("hashes", "sums"):
                found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
                for turn in range(REPEATS):
                    for signed in (turn % 2 == 0, turn % 2 == 1):
                        found[signed] += times(consortium, hidden, turn, signed=signed, keeps=keeps)
                for place_in, what in enumerate(("seconds", "processor")):
                    plain, kept = (
                        statistics.median(one[place_in] for one in found[signed]) for signed in (False, True)
                    )
                    told = f"{plain * 1e3:.1f} ms without, {kept * 1e3:.1f} ms with, x {kept / plain:.3f}"
                    print(f"{name}, {keeps}, {what}: {told}", flush=True)


if __name__ == "__main__":
    main()
