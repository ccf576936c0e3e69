"""What a site was asked in an analysis, so that whoever asks cannot leave the course of an honest run.

A file in the study's folder: by kind of question the hashes of those that were answered, and the hashes of arrays that
stay the same. A second set of edges around the same patients, or a last question put again with another model, is
refused: the difference of two answers could be one patient. The same question again, as after a crash, is no news.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wardround.core.analysis import Analysis
from wardround.core.contracts import Message
from wardround.core.errors import Refusal
from wardround.core.files import write_whole

FILE = "questions.json"
REMEDY = "ask for what was approved"


def remember_question(path: Path, analysis: Analysis, message: Message) -> None:
    """Refuse what an honest run would not ask, or else write down that it was asked."""
    if analysis.kind is None:
        return
    kind, most, fixed = analysis.kind(message)
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"asked": {}, "fixed": {}}
    asked, mine = known["asked"].get(kind, []), digest_of((message.arrays, message.meta))
    if mine in asked:
        return
    if len(asked) >= most:
        raise Refusal(
            f"a question of the kind {kind!r} was asked, and the analysis has {most} of them" if kind else
            "what is asked is not a question of this analysis",
            remedy=REMEDY,
        )  # fmt: skip
    for name in fixed:
        if name in message.arrays:
            own = digest_of(message.arrays[name])
            if known["fixed"].setdefault(name, own) != own:
                raise Refusal(
                    f"what is asked has another {name!r} than before, and the difference of two answers could be one"
                    " patient",
                    remedy=REMEDY,
                )
    known["asked"][kind] = [*asked, mine]
    write_whole(path, json.dumps(known).encode())


def digest_of(tree: Any) -> str:
    """Of names, types, shapes and numbers."""
    leaves, structure = jax.tree.flatten(tree)
    found = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()
