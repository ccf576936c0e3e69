"""The transcript of a study: what the coordinator asked in every round, who answered, the sum, and the model after it.

A journal (`core/journals`) in the study's run folder, one line a round, each chained to the one before by SHA-256;
its end is signed with the coordinator's key when training is done. An answer is told by the SHA-256 of its bytes, which
the site that sent it has in its own audit log; of sums and models their hashes are told, and beside the journal lie the
sums themselves where they are kept. The server's step is a function of the state before and the sum, so whoever holds
the sums can replay the training without any patient's row (`replay.py`). No time stands in an entry: a coordinator that
died and does a round again writes the same line, which is then not written twice. A round that comes out otherwise the
second time (another site was there) is a second line with the same number, and the first one stays.
"""

import hashlib
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)
from safetensors import SafetensorError
from safetensors.numpy import load

from wardround import __version__
from wardround.core.contracts import Tree
from wardround.core.journals.journal import Content, Format, Journal, Violation, canonical_json
from wardround.core.journals.journal_head import Head, head_path, parse_head
from wardround.deploy.trust.certificates import Key
from wardround.deploy.trust.log_heads import SIGNATURE, Countersigned, Keys, sign, signature_problem

NAME = "transcript.jsonl"
CERTIFICATE = "coordinator.pem"
LARGEST = 16 << 20
"""Bytes of a transcript that are sent to sites, or read from anybody."""
MOST_KEPT = 64 << 20
"""Bytes of sums that are kept unless the study says otherwise."""
LONGEST_REASON = 200
HEAD_SEAL, WITNESS_SEAL = b"wardround transcript head\n", b"wardround transcript countersignature\n"

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Arrays = dict[str, np.ndarray[Any, Any]]


class TranscriptEntry(BaseModel):
    """What every entry has."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def content(self) -> Content:
        return self.model_dump(mode="json")


class TaskWords(TranscriptEntry):
    """What is predicted from how many features."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    target: str
    horizons: tuple[float, ...] = ()
    segmentation: bool = False

    @model_serializer(mode="wrap")
    def _words(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What holds only of some tasks is not in the transcripts of others, whose hashes stay what they were.
        return {key: value for key, value in write(self).items() if key not in ("horizons", "segmentation") or value}


class Opening(TranscriptEntry):
    """The study as the sites approved it, what they agreed on, and the model before the first round."""

    kind: Literal["begin"] = "begin"
    study: str
    words: str
    """The study as JSON, in the order of its words: its identity depends on it."""
    sites: tuple[str, ...]
    """In the order of their numbers."""
    task: TaskWords
    agreed_schema: Digest
    agreed_preparation: Digest
    """Hashes of the words that every site got in `settle` and `prepare`."""
    noise: dict[str, Any] | None
    method: dict[str, Any]
    """What goes with every request for a round: the recipes and the seed."""
    model: Digest
    state: Digest
    linear: bool
    """Whether the server's step needs nothing but the sum of the answers; else what it takes is all of them."""
    sums: bool
    """Whether what it takes is kept beside the transcript."""
    software: dict[str, str]


class RoundEntry(TranscriptEntry):
    """One round: the hash of what was sent to all, each answer's, the sum's (empty: none was opened), the state's.

    Where each site was sent a message of its own, `sent` is the hash of what they were cut from.
    """

    kind: Literal["round"] = "round"
    round: int = Field(ge=1)
    sent: Digest
    asked: tuple[str, ...]
    answers: dict[str, Digest]
    absent: dict[str, str]
    sum: Digest | Literal[""]
    state: Digest
    parts: dict[str, Digest] | None = None
    """Hashes of what each site was sent, where that differs."""

    def content(self) -> Content:
        return self.model_dump(mode="json", exclude={"parts"} if self.parts is None else None)

    def sent_to(self, site: str) -> str:
        return self.sent if self.parts is None else self.parts.get(site, "")


class LossEntry(TranscriptEntry):
    """Sites were asked how well the model does on their validation patients: who answered, not what."""

    kind: Literal["judged"] = "judged"
    round: int = Field(ge=0)
    sent: Digest
    answers: dict[str, Digest]


class Resumption(TranscriptEntry):
    """The coordinator was started again with other software."""

    kind: Literal["resumed"] = "resumed"
    software: dict[str, str]


class Closing(TranscriptEntry):
    """Where training stopped, and the model that is published: the one after the best round, or after the last."""

    kind: Literal["end"] = "end"
    rounds: int = Field(ge=0)
    best_round: int | None
    stopped_early: bool
    state: Digest
    model: Digest


AnyEntry = Opening | RoundEntry | LossEntry | Resumption | Closing
ENTRIES: TypeAdapter[AnyEntry] = TypeAdapter(Annotated[AnyEntry, Field(discriminator="kind")])


def read_entry(content: Content) -> AnyEntry:
    try:
        return ENTRIES.validate_json(canonical_json(content))
    except ValidationError:
        raise ValueError("its entry is malformed") from None


FORMAT = Format("transcript", read_entry, "restore it from a copy, or start the study again in another folder")


# ---- hashes ----


def leaves_of(tree: Tree) -> Arrays:
    """The arrays of a nest by their path, as numpy arrays."""
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(jax.device_get(tree))]
    return dict(zip(leaf_names(tree), leaves, strict=True))


def leaf_names(tree: Tree) -> list[str]:
    """The path of every array in a nest, which may be abstract."""
    return [
        "/".join(str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part)))) for part in path)
        for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def digest_of(tree: Tree) -> str:
    """The SHA-256 of all arrays of a nest: names, types, shapes and every bit."""
    found = hashlib.sha256()
    arrays = leaves_of(tree)
    for name in sorted(arrays):
        array = arrays[name]
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def words_digest(words: Any) -> str:
    return hashlib.sha256(canonical_json(words)).hexdigest()


CONSONANTS, VOWELS = "bdfghjklmnprstvz", "aiou"


def spoken(digest: str) -> str:
    """The first 128 bits of a hash as eight words of five letters, to be read over the telephone."""
    words = []
    for place in range(0, 32, 4):
        bits = int(digest[place : place + 4], 16)
        word = CONSONANTS[bits >> 12], VOWELS[bits >> 10 & 3], CONSONANTS[bits >> 6 & 15], VOWELS[bits >> 4 & 3]
        words.append("".join((*word, CONSONANTS[bits & 15])))
    return "-".join(words)


def software() -> dict[str, str]:
    """What the bits of a float may depend on."""
    device = jax.devices()[0]
    return {
        "wardround": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "device": f"{device.platform} {device.device_kind}",
    }


# ---- signatures under the end: the coordinator's, and those of sites ----


class TranscriptSigner(NamedTuple):
    """Who signs the end of a transcript."""

    who: str
    key: Key
    certificate: str


def sign_transcript(entries: int, digest: str, signer: TranscriptSigner) -> Head:
    unsigned = Head(entries, digest, signer.who, "")
    return Head(entries, digest, signer.who, sign(signer.key, unsigned.signed_bytes(HEAD_SEAL)))


def witness_bytes(head: Head, by: str) -> bytes:
    return WITNESS_SEAL + canonical_json({"by": by, "head": asdict(head)})


def countersign_transcript(head: Head, by: str, key: Key) -> Countersigned:
    """A site's signature under the transcript that it was shown: it cannot be shown another without that being seen."""
    return Countersigned(head, by, sign(key, witness_bytes(head, by)))


def witness_problem(keys: Keys, seen: Countersigned) -> str:
    """What is wrong with a site's signature under a transcript, or nothing."""
    return signature_problem(keys, seen.by, seen.signature, witness_bytes(seen.head, seen.by))


def head_problem(keys: Keys, head: Head) -> str:
    """What is wrong with the coordinator's signature, or nothing."""
    return signature_problem(keys, head.who, head.signature, head.signed_bytes(HEAD_SEAL))


# ---- reading ----


@dataclass(frozen=True)
class Transcript:
    """A transcript as it was read: its entries, the hashes after 0, 1, 2, ... of them, and what breaks the chain."""

    entries: tuple[AnyEntry, ...]
    hashes: tuple[str, ...]
    violations: tuple[Violation, ...]
    head: Head | None
    certificate: str

    @property
    def opening(self) -> Opening | None:
        first = self.entries[0] if self.entries else None
        return first if isinstance(first, Opening) else None

    @property
    def closing(self) -> Closing | None:
        last = self.entries[-1] if self.entries else None
        return last if isinstance(last, Closing) else None


def parse_transcript(lines: bytes, head: bytes, certificate: bytes) -> Transcript:
    """A transcript from its bytes; a ValueError says what cannot be read at all."""
    if len(lines) > LARGEST:
        raise ValueError(f"it has {len(lines)} bytes, and {LARGEST} are read")
    with tempfile.TemporaryFile() as file:
        file.write(lines)
        file.flush()
        chain = Journal(Path(NAME), FORMAT).check(file.fileno())
    return Transcript(
        tuple(line.entry for line in chain.lines),
        chain.hashes,
        (*chain.violations, *chain.torn),
        parse_head(head.rstrip(b"\n"), SIGNATURE) if head else None,
        certificate.decode("utf-8", "replace"),
    )


def load_transcript_head(path: Path) -> Head | None:
    try:
        return parse_head(head_path(path).read_bytes().rstrip(b"\n"), SIGNATURE)
    except (FileNotFoundError, ValueError):
        return None


def sum_path(folder: Path, digest: str) -> Path:
    return folder / f"{digest}.safetensors"


def read_sum(folder: Path, digest: str) -> Arrays | None:
    """The arrays of a sum that lies beside a transcript; none where it was not kept, or is not what it is named."""
    try:
        return load(sum_path(folder, digest).read_bytes())
    except (OSError, SafetensorError):
        return None


def transcript_folder(run: Path) -> Path:
    """Where the transcript of a run lies."""
    return run / "transcript"


def file_bytes(path: Path) -> bytes:
    """What is in a file, nothing where there is none."""
    return path.read_bytes() if os.path.exists(path) else b""
