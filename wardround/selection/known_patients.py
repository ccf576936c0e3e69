"""Patients of a site whose outcome is known: by them it decides, for a new patient, whose classifier knows more.

Prepared rows and each classifier's loss for them. They are rows about patients and stay where these are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from wardround.core.errors import Refusal
from wardround.selection.competence import Pick, competence, cross_entropy, loss_nearby, pick_other
from wardround.selection.neighbours import nearest

Values = np.ndarray[Any, Any]
FILE = "neighbours.safetensors"


class KnownPatients(NamedTuple):
    """`x` has the shape (known, features), `losses` (own and others, known)."""

    x: Values
    losses: Values

    def sources(self, x: Values, scores: Values, k: int, epsilon: float, pick: Pick, threshold: float) -> Values:
        """Which other classifier decides for every prepared row, -1: the own one; `scores` are the others'."""
        found = competence(loss_nearby(self.losses, nearest(self.x, x, k)), epsilon)
        who = pick_other(found, scores, pick)
        return np.where(found[who, np.arange(len(who))] > threshold, who, -1)

    def content(self) -> bytes:
        """As a file."""
        return bytes(save({"x": np.asarray(self.x, np.float32), "losses": np.asarray(self.losses, np.float64)}))


def known_patients(x: Values, scores: Values, outcome: Values) -> KnownPatients:
    """From validation rows as prepared, scored by the own classifier and the others'."""
    return KnownPatients(x, np.stack([cross_entropy(one, outcome) for one in scores]))


def read_known_patients(content: bytes, sources: Sequence[str], where: str) -> KnownPatients:
    try:
        found = load(content)
        patients = KnownPatients(found["x"], found["losses"])
        good = patients.x.ndim == 2 and patients.losses.shape == (1 + len(sources), len(patients.x))
    except (SafetensorError, KeyError, ValueError):
        good = False
    if not good:
        raise Refusal(
            "the file of known patients is damaged", where=where, remedy="restore it, or make the choice again"
        )
    return patients
