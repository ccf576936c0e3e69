"""Whether a figure goes up or down on its grid: at random, in proportion, and known to nobody but the site.

Rounded to the nearest step, a figure could be tuned: a coordinator chooses the model, and with it a mean that lies just
below the middle of two steps without one patient and just above with it. Here a figure between two steps is told as the
upper one with a probability of its distance from the lower one (unbiased random rounding: Hundepool et al.,
"Statistical Disclosure Control", Wiley 2012, section 5.4.3), so a patient who makes a part of a step shows with the
probability of that part, wherever the model puts the figure.

The chance is drawn by a key of the site's own, one for each study, from the predictions and outcomes themselves: the
same model gets the same answer, however often and in whatever words it is asked about.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

import numpy as np

from wardround.core.contracts import Scores
from wardround.core.files import write_whole
from wardround.queries.cells import Offset

NAME = "grid.key"


def grid_offset(folder: Path, scores: Scores) -> Offset:
    """For the figures of these predictions, by the key in the study's folder, which is made at first use."""
    path = folder / NAME
    if not path.exists():
        write_whole(path, secrets.token_bytes(32))
        path.chmod(0o600)
    return offset_by(path.read_bytes(), scores)


def offset_by(key: bytes, scores: Scores) -> Offset:
    seen = hashlib.sha256()
    for array in (scores.predicted, scores.actual):
        seen.update(np.ascontiguousarray(array).tobytes())
    drawn = hmac.new(key, seen.digest(), "sha256").digest()

    def offset(name: str) -> float:
        return int.from_bytes(hmac.new(drawn, name.encode(), "sha256").digest()[:8]) / 2**64

    return offset
