"""Shakespeare by speaking role: predict the next character, each role a client (a small stand-in for LEAF's set).

Needs the folder shakespeare_roles: 7,097 speeches of 299 roles ("tiny Shakespeare", public domain; without plays). A
role's speeches are put one after the other; a row is `length` characters and the one that follows, one row every `step`
characters. The first 80 % of a role's characters train and the rest test, as LEAF cuts by time; no row has characters
of both. Characters are LEAF's 80; others count as a blank.
"""

import gzip
from collections.abc import Iterator

import numpy as np
import pandas as pd

from wardround.core.bounds import Count, CountOrAll
from wardround.core.contracts import Task
from wardround.core.federation import Federation
from wardround.data.datasets.leaf.clients import ClientRows, federation_of
from wardround.data.datasets.leaf.leaf_files import LETTERS, SHARES, letters_of
from wardround.data.folder import data_file

TRAINS = 0.8


def shakespeare_roles(
    *, length: Count = 80, step: Count = 1, fewest: CountOrAll = 2, roles: CountOrAll = 0
) -> Federation:
    """Shakespeare's roles as clients, next-character prediction (roles: only so many, 0 for all; step: rows apart)."""
    with gzip.open(data_file("shakespeare_roles", "tinyshakespeare_roles.csv.gz"), "rt", encoding="utf-8") as file:
        speeches = pd.read_csv(file, keep_default_na=False)
    spoken = speeches.groupby("role", sort=True)["text"].agg("\n".join)
    chosen = (
        spoken if not roles else spoken.iloc[np.random.default_rng(0).permutation(len(spoken))[:roles]].sort_index()
    )

    def rows() -> Iterator[ClientRows]:
        for role, text in chosen.items():
            codes = np.array(letters_of(str(text)), np.int32)
            starts = np.arange(0, len(codes) - length, step)
            windows = codes[starts[:, None] + np.arange(length)] if len(starts) else np.zeros((0, length), np.int32)
            following = codes[starts + length] if len(starts) else np.zeros(0, np.int32)
            cut = int(TRAINS * len(codes))
            trains, tests = starts + length < cut, starts >= cut
            yield ClientRows(str(role), windows[trains], following[trains], 0)
            yield ClientRows(str(role), windows[tests], following[tests], 2)

    task = Task((length,), tuple(LETTERS), "character")
    return federation_of(rows(), task, shares=SHARES, fewest=fewest, seed=0, where="data set shakespeare_roles")
