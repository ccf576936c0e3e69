"""The pain experiment in one command: `python -m benchmarks.pain [FOLDER]`.

With a folder (subject/session/frame and labels.csv, see `wardround/workflows/pain/frames.py`) it runs as in the thesis:
250 x 250 pixels cropped to 215, both groups, 30 rounds. Without one, people are drawn, with a known sign of pain, at a
size that two cores manage in minutes. Prints the tables in Markdown: weighted mean and SD between people, by person, by
session, ranks. Frames and predictions are written nowhere.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from wardround.workflows.pain.experiment import PainExperiment, PainSettings, ScoresByMethod, two_groups
from wardround.workflows.pain.frames import make_faces, read_frames
from wardround.workflows.pain.scores import METRICS, rank_table, slice_table, table_of

SMALL: dict[str, Any] = {
    "model": {"flip": True, "rotation": 10.0, "crop": 26, "filters": (6, 12), "dense": 16, "statistics_rate": 2.0},
    "learning_rate": 0.05,
    "batch_size": 16,
    "rounds": 12,
    "patience": 3,
    "threshold": 24,
    "shards": (0.05, 0.2, 0.6),
}
"""Made-up people: drawn at 30 x 30."""
REAL: dict[str, Any] = {
    "model": {"flip": True, "rotation": 10.0, "crop": 215, "statistics_rate": 100.0},
    "learning_rate": 0.001,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--setting", choices=("sessions", "balanced", "unbalanced"), default="sessions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[123])
    parser.add_argument("--flip", action="store_true", help="let the groups change places")
    parser.add_argument("--buffer", action="store_true", help="validate on each person's last session")
    parser.add_argument("--fallback", action="store_true", help="FP: a person keeps a model until a new one is better")
    said = parser.parse_args()
    frames = read_frames(said.folder) if said.folder else make_faces(side=30, subjects=16, sessions=4, frames=20)
    for note in frames.notes:
        print(note, file=sys.stderr)
    settings = PainSettings(**(REAL if said.folder else SMALL), buffer=said.buffer, fallback=said.fallback)
    first, second = two_groups(frames, flip=said.flip)
    found: ScoresByMethod = {}
    started = time.process_time()
    for seed in said.seeds:

        def tell(name: str, seed: int = seed) -> None:
            print(f"seed {seed}: {name} ({time.process_time() - started:.0f} s of CPU time)", file=sys.stderr)

        for name, scores in PainExperiment(first, second, settings, seed).run(said.setting, tell).items():
            found.setdefault(name, []).extend(scores)
    shows = "session" if said.setting == "sessions" else "percent of the frames"
    print(f"Weighted mean ± SD between people, %:\n\n{table_of(found)}\n")
    for metric in METRICS:
        print(f"By person:\n\n{slice_table(found, 'subject', metric)}\n")
        print(f"By {shows}:\n\n{slice_table(found, 'session', metric)}\n")
    print(f"Ranks by person:\n\n{rank_table(found, 'subject')}\n\nRanks by {shows}:\n\n{rank_table(found, 'session')}")


if __name__ == "__main__":
    main()
