"""Video frames of faces with who, when and whether there was pain: from a folder, or made up with a known signal.

Pain is Prkachin and Solomon's scale (eq. 3.1): AU4 + max(AU6, AU7) + max(AU9, AU10) + AU43, from 0 to 16; a frame is
positive from 1 on. The folder is site/subject/session/frame, or without the sites, with labels.csv, which has a column
`pain`, or one for each of the action units au4, au6, au7, au9, au10, au43. The real images are restricted and come with
nothing here.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wardround.core.errors import Refusal
from wardround.core.text import natural_order
from wardround.engine import registry

Numbers = np.ndarray[Any, Any]
UNITS = ("au4", "au6", "au7", "au9", "au10", "au43")
LAYOUTS = ("site/subject/session/frame", "subject/session/frame")
SUFFIXES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")


@dataclass(frozen=True)
class PainFrames:
    """Frames of all people: bytes (rows, height, width, 1), 1 for pain, the person, the number of the session."""

    x: Numbers
    y: Numbers
    subject: Numbers
    session: Numbers
    notes: tuple[str, ...] = ()

    @property
    def subjects(self) -> list[str]:
        return sorted({str(one) for one in self.subject}, key=natural_order)

    def of(self, subjects: list[str]) -> "PainFrames":
        rows = np.isin(self.subject, subjects)
        return PainFrames(self.x[rows], self.y[rows], self.subject[rows], self.session[rows], self.notes)


def pain_intensity(units: Any) -> Numbers:
    """Prkachin and Solomon's pain intensity of rows with the columns of `UNITS`."""
    au4, au6, au7, au9, au10, au43 = (np.asarray(units[name], np.float64) for name in UNITS)
    return au4 + np.maximum(au6, au7) + np.maximum(au9, au10) + au43


def layout_of(folder: Path) -> str:
    """With sites or without, as most images lie; an empty folder is refused by whoever reads it."""
    depths = [len(path.relative_to(folder).parts) for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES]
    return LAYOUTS[0] if depths.count(4) > depths.count(3) else LAYOUTS[1]


def read_frames(folder: Path, *, size: int = 250, layout: str = "") -> PainFrames:
    """The frames of a folder, grey, with spread-out contrast; people without a single positive frame are left out.

    A person who was filmed at several sites is one person, so that nobody is both trained on and tested.
    """
    source = registry.find("source", "images")
    table = source.build(
        where=str(folder),
        path=str(folder),
        target="pain",
        layout=layout or layout_of(folder),
        size=[size, size],
        equalize=True,
    )
    rows, moved = one_table(table.sites)
    if "pain" not in rows.columns and not set(UNITS) <= set(rows.columns):
        raise Refusal(
            "the labels tell neither pain nor the action units it is made of",
            where=str(folder),
            remedy=f"add a column pain to labels.csv, or the columns {', '.join(UNITS)}",
        )
    intensity = np.asarray(rows["pain"], np.float64) if "pain" in rows.columns else pain_intensity(rows)
    known = ~np.isnan(intensity)
    notes = [*table.notes, *moved]
    if not known.all():
        notes.append(f"Left out without a known pain intensity: {int((~known).sum())} frames.")
    rows, y = rows[known], (intensity[known] >= 1).astype(np.int32)
    people = rows["subject"].to_numpy(str)
    painless = sorted(set(people) - set(people[y > 0]), key=natural_order)
    if painless:
        notes.append(f"Left out, since no frame shows pain: {', '.join(painless)}.")
    kept = ~np.isin(people, painless)
    if not kept.any():
        raise Refusal("no frame shows pain", where=str(folder), remedy="check the labels")
    x = np.stack([one.pixels for one, use in zip(rows["image"], kept, strict=True) if use])
    return PainFrames(x, y[kept], people[kept], session_numbers(rows[kept]), tuple(notes))


def one_table(sites: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of all sites, and a remark on people of several; a session is told apart by its site."""
    if len(sites) == 1:
        return next(iter(sites.values())), []
    at = Counter(str(one) for frame in sites.values() for one in frame["subject"].unique())
    several = sorted((one for one, count in at.items() if count > 1), key=natural_order)
    parts = [frame.assign(session=[f"{name}/{one}" for one in frame["session"]]) for name, frame in sites.items()]
    said = f"Filmed at several sites, and taken for one person each: {', '.join(several)}."
    return pd.concat(parts, ignore_index=True), [said] if several else []


def session_numbers(rows: pd.DataFrame) -> Numbers:
    """Sessions counted from 0 for each person, in the natural order of their names."""
    found = np.zeros(len(rows), np.int64)
    for _, own in rows.reset_index(drop=True).groupby("subject"):
        order = {name: at for at, name in enumerate(sorted(own["session"].unique(), key=natural_order))}
        found[own.index] = [order[name] for name in own["session"]]
    return found


def make_faces(
    *, subjects: int = 24, sessions: int = 5, frames: int = 24, side: int = 32, share: float = 0.25, seed: int = 0
) -> PainFrames:
    """Drawn faces: brows, eyes, nose and mouth move with their action units; people and light differ.

    In a third of all sessions a person feels no pain at all, as in the real data.
    """
    generator = np.random.default_rng(seed)
    images, labels, people, times = [], [], [], []
    for person in range(subjects):
        traits = generator.normal(0, 1, 4)
        for session in range(sessions):
            hurts = session == 0 or generator.random() > 1 / 3
            for _ in range(frames):
                pain = hurts and generator.random() < share
                units = draw_units(generator) if pain else dict.fromkeys(UNITS, 0.0)
                images.append(draw_face(units, traits, side, generator))
                labels.append(int(pain_intensity(units) >= 1))
                people.append(f"{person + 1:02d}")
                times.append(session)
    x = np.stack(images)[..., None]
    return PainFrames(x, np.array(labels, np.int32), np.array(people), np.array(times, np.int64))


def draw_units(generator: np.random.Generator) -> dict[str, float]:
    """Action units of a face in pain: mostly one or two, and mostly weak, as in the real data."""
    units = dict.fromkeys(UNITS, 0.0)
    while pain_intensity(units) < 1:
        for name in UNITS:
            if generator.random() < 0.4:
                units[name] = 1.0 if name == "au43" else float(min(5, 1 + generator.poisson(0.7)))
    return units


def draw_face(units: dict[str, float], traits: Numbers, side: int, generator: np.random.Generator) -> Numbers:
    """One face in bytes; all lengths are of half the image's side."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    x = x + 0.04 * generator.normal()
    wide, brow_at, mouth_at = 0.75 + 0.05 * traits[0], -0.42 + 0.04 * traits[1], 0.45 + 0.04 * traits[2]
    image = np.where((x / wide) ** 2 + (y / 0.95) ** 2 < 1, 0.7 + 0.06 * traits[3], 0.15)
    brow = brow_at + 0.03 * generator.normal() + 0.04 * units["au4"]
    eye = 0.12 - 0.012 * max(units["au6"], units["au7"]) - 0.04 * units["au43"]
    parts = [
        (np.abs(y - brow) < 0.06) & (np.abs(np.abs(x) - 0.35) < 0.2),
        (np.abs(y + 0.15) < eye) & (np.abs(np.abs(x) - 0.35) < 0.14),
        (np.abs(y - 0.1) < 0.03 * max(units["au9"], units["au10"])) & (np.abs(x) < 0.12),
        (np.abs(y - mouth_at) < 0.05 + 0.02 * units["au10"]) & (np.abs(x) < 0.3),
    ]
    for part in parts:
        image = np.where(part, 0.25, image)
    noisy = image + generator.normal(0, 0.1, image.shape)
    return np.round(np.clip(noisy, 0, 1) * 255).astype(np.uint8)
