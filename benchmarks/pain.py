"""The pain experiment in one command: `python -m benchmarks.pain [FOLDER]`.

With a folder (site/subject/session/frame, or without the sites, and labels.csv; `wardround/workflows/pain/frames.py`)
it runs as in the thesis: 250 x 250 pixels cropped to 215, both groups, 30 rounds. Without one, people are drawn, with a
known sign of pain, at a size that two cores manage in minutes. Prints the tables in Markdown: weighted mean and SD
between people (7.1), by person (7.4), by session (7.5), ranks (7.6, 7.7). `--setting all` runs the three settings one
after the other. Frames and predictions are written nowhere.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wardround.core.errors import Refusal
from wardround.workflows.pain.experiment import STARTS, WAYS, PainExperiment, PainSettings, ScoresByMethod, two_groups
from wardround.workflows.pain.frames import PainFrames, make_faces, read_frames
from wardround.workflows.pain.scores import METRICS, rank_table, slice_table, table_of

SETTINGS = ("sessions", "balanced", "unbalanced")
SMALL: dict[str, Any] = {
    "model": {"flip": True, "rotation": 10.0, "crop": 26, "filters": (6, 12), "dense": 16, "statistics_rate": 0.5},
    "learning_rate": 0.2,
    "batch_size": 16,
    "local_epochs": 5,
    "rounds": 12,
    "patience": 5,
    "threshold": 24,
    "shards": (0.05, 0.2, 0.6),
}
"""Made-up people: drawn at 30 x 30. Rate and passes were chosen by the validation loss of pre-training on group 1."""
REAL: dict[str, Any] = {
    "model": {"flip": True, "rotation": 10.0, "crop": 215, "statistics_rate": 100.0},
    "learning_rate": 0.001,
}


def settings_of(said: argparse.Namespace) -> PainSettings:
    chosen = REAL if said.folder else SMALL
    loss = {"loss": said.loss, "positive_weight": said.positive_weight} if said.loss != "cross_entropy" else {}
    crop = {"crop": round(chosen["model"]["crop"] * said.size / 250)} if said.folder else {}
    named = {
        "rounds": said.rounds,
        "local_epochs": said.local_epochs,
        "learning_rate": said.rate,
        "patience": said.patience,
        "ways": tuple(said.ways),
        "starts": tuple(said.starts),
    }
    model = {**chosen["model"], **loss, **crop}
    if said.rate:
        model["statistics_rate"] = 0.1 / said.rate
    given = {name: value for name, value in named.items() if value is not None}
    return PainSettings(**{**chosen, **given, "model": model}, buffer=said.buffer, fallback=said.fallback)


def run(frames: PainFrames, setting: str, said: argparse.Namespace) -> ScoresByMethod:
    first, second = two_groups(frames, flip=said.flip, first=said.first)
    found: ScoresByMethod = {}
    started = time.process_time()
    for seed in said.seeds:

        def tell(name: str, seed: int = seed) -> None:
            spent = time.process_time() - started
            print(f"{setting}, seed {seed}: {name} ({spent:.0f} s of CPU time)", file=sys.stderr)

        for name, scores in PainExperiment(first, second, settings_of(said), seed).run(setting, tell).items():
            found.setdefault(name, []).extend(scores)
    return found


def print_tables(found: ScoresByMethod, setting: str) -> None:
    shows = "session" if setting == "sessions" else "percent of the frames"
    print(f"## {setting.capitalize()}\n\nWeighted mean ± SD between people, %:\n\n{table_of(found)}\n")
    for metric in METRICS:
        print(f"By person:\n\n{slice_table(found, 'subject', metric)}\n")
    for metric in METRICS:
        print(f"By {shows}:\n\n{slice_table(found, 'session', metric, gaps=setting == 'sessions')}\n")
    print(
        f"Ranks by person:\n\n{rank_table(found, 'subject')}\n\nRanks by {shows}:\n\n{rank_table(found, 'session')}\n"
    )


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--setting", choices=(*SETTINGS, "all"), default="sessions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[123])
    parser.add_argument("--layout", default="", help="how the folders are laid out, if it cannot be seen")
    parser.add_argument("--size", type=int, default=250, help="pixels to which the folder's images are brought")
    parser.add_argument(
        "--first", nargs="+", default=[], metavar="PERSON", help="who pre-trains (the others are tested)"
    )
    parser.add_argument("--flip", action="store_true", help="let the groups change places")
    parser.add_argument("--buffer", action="store_true", help="validate on each person's last session")
    parser.add_argument("--fallback", action="store_true", help="FP: a person keeps a model until a new one is better")
    parser.add_argument("--loss", choices=("cross_entropy", "weighted", "hinge"), default="cross_entropy")
    parser.add_argument("--positive-weight", type=float, default=2.0, help="of a frame with pain (weighted loss)")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    for name, kind in (("rounds", int), ("local-epochs", int), ("patience", int), ("rate", float)):
        parser.add_argument(f"--{name}", type=kind)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    said = parser_of().parse_args(arguments)
    try:
        if said.folder:
            frames = read_frames(said.folder, size=said.size, layout=said.layout)
        else:
            frames = make_faces(side=30, subjects=16, sessions=4, frames=20)
        for note in frames.notes:
            print(note, file=sys.stderr)
        for setting in SETTINGS if said.setting == "all" else (said.setting,):
            print_tables(run(frames, setting, said), setting)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
