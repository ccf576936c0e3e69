"""A transcript to hand out: one safetensors file with the lines, the signatures, the sums and the published model.

The same is read from a run folder, from a site's study folder (which has no sums), and from such a file. Sums that have
fewer than three answers in them are not handed out: whoever knows the own one would know the other.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from wardround.core.errors import Refusal
from wardround.core.files import write_whole
from wardround.core.journals.journal_head import head_path
from wardround.deploy.trust.transcript.entries import (
    CERTIFICATE,
    NAME,
    Arrays,
    RoundEntry,
    Transcript,
    file_bytes,
    parse_transcript,
    read_sum,
    transcript_folder,
)
from wardround.runs.file_names import MODEL

WITNESSES = "countersigned.json"
FEWEST_ANSWERS = 3
PARTS = ("lines", "head", "certificate", "witnesses")


@dataclass(frozen=True)
class TranscriptSource:
    """A transcript and what came with it: `sum_of` gives a sum by its hash, or none; `model` is the published one."""

    where: str
    transcript: Transcript
    witnesses: Mapping[str, Any]
    sum_of: Callable[[str], Arrays | None]
    model: Arrays | None
    raw: Mapping[str, bytes]


def write_witnesses(folder: Path, found: Mapping[str, Any]) -> None:
    write_whole(folder / WITNESSES, json.dumps(found, sort_keys=True).encode())


def read_source(path: Path) -> TranscriptSource:
    """From a file that was handed out, a run folder, or the folder of a study at a site or coordinator."""
    if path.is_file():
        return read_file(path)
    for folder in (transcript_folder(path), transcript_folder(path / "run"), path):
        if (folder / NAME).exists():
            return read_folder(folder)
    raise Refusal(
        "there is no transcript",
        where=str(path),
        remedy="name the folder of a finished study, or a file from `wardround coordinator transcript`",
    )


def read_folder(folder: Path) -> TranscriptSource:
    parts = (folder / NAME, head_path(folder / NAME), folder / CERTIFICATE, folder / WITNESSES)
    raw = dict(zip(PARTS, map(file_bytes, parts), strict=True))
    model = folder.parent / MODEL
    # A site's own model may be a personal one; the one of a run folder is what was published.
    published = load_file(model) if model.exists() and (folder.parent / "agreement.json").exists() else None
    return source_of(str(folder), raw, lambda digest: read_sum(folder, digest), published)


def read_file(path: Path) -> TranscriptSource:
    try:
        with safe_open(str(path), framework="numpy") as file:
            names = set(file.keys())
            raw = {part: file.get_tensor(part).tobytes() if part in names else b"" for part in PARTS}
            model = {name[6:]: file.get_tensor(name) for name in sorted(names) if name.startswith("model:")}
    except (OSError, SafetensorError) as error:
        raise Refusal(
            f"this is not a transcript: {error}", where=str(path), remedy="ask the coordinator for the file again"
        ) from None

    def sum_of(digest: str) -> Arrays | None:
        with safe_open(str(path), framework="numpy") as file:
            found = {name[65:]: file.get_tensor(name) for name in names if name.startswith(f"{digest}:")}
        return found or None

    return source_of(str(path), raw, sum_of, model or None)


def source_of(
    where: str, raw: Mapping[str, bytes], sum_of: Callable[[str], Arrays | None], model: Arrays | None
) -> TranscriptSource:
    try:
        transcript = parse_transcript(raw["lines"], raw["head"], raw["certificate"])
        witnesses = json.loads(raw["witnesses"] or b"{}")
        if not isinstance(witnesses, dict):
            raise ValueError("its countersignatures are malformed")
    except (ValueError, RecursionError) as problem:
        raise Refusal(
            f"the transcript cannot be read: {problem}", where=where, remedy="ask the coordinator for it again"
        ) from None
    return TranscriptSource(where, transcript, witnesses, sum_of, model, raw)


def hand_out(run: Path, out: Path) -> str:
    """Write the file that sites may have; gives why it holds no sums, or nothing."""
    source = read_source(run)
    tensors: Arrays = {part: np.frombuffer(source.raw[part], np.uint8) for part in PARTS if source.raw[part]}
    tensors |= {f"model:{name}": array for name, array in (source.model or {}).items()}
    opening, without = source.transcript.opening, reason_without_sums(source)
    first = {} if opening is None else source.sum_of(opening.model) or {}
    if not without:
        for entry in source.transcript.entries:
            if isinstance(entry, RoundEntry) and entry.sum:
                found = source.sum_of(entry.sum)
                if found is None:
                    without = f"the sum of round {entry.round} is missing in {source.where}"
                    break
                tensors |= {f"{entry.sum}:{name}": array for name, array in found.items()}
    if without:
        tensors = {name: array for name, array in tensors.items() if name[64:65] != ":"}
    tensors |= {f"{opening.model}:{name}": array for name, array in first.items()} if opening else {}
    if out.exists():
        raise Refusal("the file exists already", where=str(out), remedy="choose another name with --out")
    write_whole(out, save(tensors))
    return without


def reason_without_sums(source: TranscriptSource) -> str:
    opening = source.transcript.opening
    if opening is None or not opening.sums:
        return "none were kept (see [deploy] transcript)"
    if not opening.linear:
        return "the aggregator sees each site's answer, and other sites must not"
    few = [
        entry.round
        for entry in source.transcript.entries
        if isinstance(entry, RoundEntry) and entry.sum and len(entry.answers) < FEWEST_ANSWERS
    ]
    if few:
        return f"the sum of round {few[0]} has fewer than {FEWEST_ANSWERS} answers in it, which would tell single ones"
    return ""
