"""What a reply may hold, topic by topic: which words and arrays, of which types, shapes and ranges, in how many bytes.

The coordinator looks before it uses anything, so a site that answers nonsense is named and left out, and nothing that
it sends can end a study of the others. Arrays must be exactly those of the topic. Words that are not known are left
alone, since a newer site may tell more. What depends on the study (the shapes of an answer, the agreed rows, a query's
columns) is looked at beside this, in `coordinator/answer_bounds.py`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wardround.core.text import plain_line
from wardround.deploy.protocol.replies import HUGE, Reply
from wardround.deploy.protocol.requests import Topic
from wardround.deploy.protocol.status import Status
from wardround.deploy.protocol.wire import LARGEST_MESSAGE

MOST_ROWS = 10**9
"""Patients of one site; a larger number is a fault or a lie."""
LARGEST_CELL = 10**6
MOST_METRICS = 200
MOST_ARRAYS = 100
"""Of an answer to a query."""
SMALL = 1 << 16
ONE_ARRAY = 1 << 10
"""Bytes for the name, type and place of an array."""
LARGEST_REPLY: Mapping[str, int] = {
    **dict.fromkeys(
        (Topic.OFFER, Topic.SETTLE, Topic.PREPARE, Topic.BEGIN, Topic.JUDGE, Topic.FINISH, Topic.AGREE), SMALL
    ),
    Topic.FIGURES: 1 << 20,
    Topic.QUERY: 1 << 24,
}
"""Bytes; an answer of a round has those of its arrays, which the coordinator knows."""
FIGURE_NUMBERS, FIGURE_WORDS = ("value", "low", "high"), ("undefined", "no_interval")


def largest_reply(topic: str, sizes: Sequence[int] | None = None) -> int:
    """How many bytes a reply may have; `sizes` are those of its arrays, where they are known."""
    if sizes is None:
        return LARGEST_REPLY.get(topic, LARGEST_MESSAGE)
    return min(LARGEST_MESSAGE, sum(sizes) + ONE_ARRAY * len(sizes) + SMALL)


def form_problem(topic: Topic, reply: Reply) -> str | None:
    """Why a reply does not have the form of its topic; none if it has."""
    if reply.status is Status.DIVERGED:
        trained = topic in (Topic.ROUND, Topic.SECURE, Topic.HALVES)
        return None if trained else "it says that training diverged, but it was not asked to train"
    return FORMS[topic](reply)


def accept_form(reply: Reply) -> str | None:
    """Of an answer of a round: its arrays are compared with the algorithm's."""
    return None


def nothing_problem(reply: Reply) -> str | None:
    return "it sent arrays where none were asked for" if reply.message.arrays else None


def rows_problem(reply: Reply) -> str | None:
    """Of `prepare`: rows for training, validation and test, and the cell in which the site counts."""
    arrays = reply.message.arrays
    rows = np.asarray(arrays["rows"]) if set(arrays) == {"rows"} else np.empty(0)
    if rows.shape != (3,) or rows.dtype != np.int64:
        return "it does not tell three numbers of rows"
    if np.min(rows) < 0 or np.max(rows) > MOST_ROWS:
        return "it tells numbers of rows that no site has"
    cell = reply.header.get("cell", 1)
    if type(cell) is not int or not 1 <= cell <= LARGEST_CELL:
        return "it tells an invalid smallest cell"
    return None


def known_rows_problem(reply: Reply) -> str | None:
    """Of `agree`: how many rows there are, and the cell in which the site counts."""
    arrays = reply.message.arrays
    rows = np.asarray(arrays["rows"]) if set(arrays) == {"rows"} else np.empty(0)
    if rows.shape != () or rows.dtype != np.int64 or not 0 <= int(rows) <= MOST_ROWS:
        return "it does not tell a number of rows that a site can have"
    cell = reply.header.get("cell", 1)
    return None if type(cell) is int and 1 <= cell <= LARGEST_CELL else "it tells an invalid smallest cell"


def losses_problem(reply: Reply) -> str | None:
    """Of `judge`: how many rows, the sum of their losses, how many were predicted rightly. A loss may be infinite."""
    arrays = reply.message.arrays
    if set(arrays) != {"rows", "loss", "right"}:
        return "it does not tell rows, loss and right answers"
    for name, kinds in (("rows", "iu"), ("loss", "f"), ("right", "iuf")):
        if np.shape(arrays[name]) != () or np.asarray(arrays[name]).dtype.kind not in kinds:
            return f"its '{name}' is not one number of the right type"
    if not 0 <= int(arrays["rows"]) <= MOST_ROWS:
        return "it tells a number of rows that no site has"
    if not math.isfinite(float(arrays["right"])):
        return "its number of right answers is not finite"
    return None


def letter_problem(reply: Reply) -> str | None:
    """Of a step of a secure sum: a letter, and with the masked answer a vector."""
    arrays = reply.message.arrays
    if not isinstance(reply.header.get("letter"), dict):
        return "it sent no letter"
    if set(arrays) - {"vector"} - {"packed"} or len(arrays) > 1:
        return "it sent arrays that are not part of a secure sum"
    if "packed" in arrays and (np.ndim(arrays["packed"]) != 1 or np.asarray(arrays["packed"]).dtype != np.uint8):
        return "its masked answer is not a vector of the ring"
    if "vector" in arrays and (np.ndim(arrays["vector"]) != 1 or np.asarray(arrays["vector"]).dtype != np.uint64):
        return "its masked answer is not a vector of the ring"
    return None


def halves_problem(reply: Reply) -> str | None:
    """Of a round for two servers: the masked half, a parcel for the second server, and the seed of what was dealt."""
    parcel, deal = reply.header.get("parcel"), reply.header.get("deal")
    if not isinstance(parcel, dict) or not isinstance(deal, str):
        return "it sent no parcel for the second server"
    if not is_ring_vectors(reply, {"masked": 1}):
        return "its masked half does not have the shape of the model"
    return None


def opening_problem(reply: Reply) -> str | None:
    """Of the second server: whom it left out and why, and where it opened the round its two halves."""
    opened, left_out = reply.header.get("opened"), reply.header.get("left_out")
    if type(opened) is not bool or not isinstance(left_out, dict):
        return "it does not say whether it opened the round, and whom it left out"
    if not all(isinstance(why, str) for why in left_out.values()):
        return "it does not say why it left sites out"
    if not is_ring_vectors(reply, {"gram": 2, "half": 1} if opened else {}):
        return "its numbers do not have the shape that they should have"
    return None


def is_ring_vectors(reply: Reply, dimensions: Mapping[str, int]) -> bool:
    """Whether a reply has exactly these arrays of whole numbers, each with so many dimensions."""
    arrays = reply.message.arrays
    return arrays.keys() == dimensions.keys() and all(
        isinstance(arrays[name], np.ndarray) and arrays[name].dtype == np.uint64 and arrays[name].ndim == many
        for name, many in dimensions.items()
    )


def query_form_problem(reply: Reply) -> str | None:
    """Of any query: named arrays of numbers, none of which is not a number."""
    arrays = reply.message.arrays
    if not arrays or len(arrays) > MOST_ARRAYS:
        return "its answer does not have the arrays of the query"
    for name, one in arrays.items():
        if not isinstance(one, np.ndarray | np.generic):
            return "its answer does not have the arrays of the query"
        if one.dtype.kind == "f" and np.isnan(one).any():
            return f"'{plain_line(name, 40)}' holds values that are not numbers"
    return None


def figures_problem(reply: Reply) -> str | None:
    """Of `figures`: none, or for this site the rows and every metric with its interval."""
    block = reply.header.get("figures")
    if block is None or reply.message.arrays:
        return nothing_problem(reply)
    site = reply.header.get("site")
    if not isinstance(block, dict) or not all(isinstance(block.get(part), dict) for part in ("sites", "rows")):
        return "its figures do not have the right form"
    if set(block["rows"]) != {site} or set(block["sites"]) != {site}:
        return "it tells figures of others, or none of its own"
    rows, metrics = block["rows"][site], block["sites"][site]
    if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
        return "it tells a number of test rows that no site has"
    return metrics_problem(metrics)


def metrics_problem(metrics: Any) -> str | None:
    if not isinstance(metrics, dict) or len(metrics) > MOST_METRICS:
        return "its figures do not have the right form"
    found = {name: why for name, one in metrics.items() if (why := figure_problem(one))}
    return next((f"its figure '{plain_line(name, 40)}' {why}" for name, why in found.items()), None)


def figure_problem(figure: Any) -> str:
    """What is wrong with one figure; empty if nothing is."""
    if not isinstance(figure, dict):
        return "does not have the right form"
    numbers = [figure.get(name) for name in FIGURE_NUMBERS]
    # `type` and not isinstance: true is no number.
    if not all(one is None or type(one) in (int, float) for one in numbers):
        return "holds something that is no number"
    if any(one is not None and not abs(one) <= HUGE for one in numbers):
        return "is not finite, or too large"
    low, high = numbers[1:]
    if low is not None and high is not None and low > high:
        return "has an interval that ends before it begins"
    if not all(isinstance(figure.get(name, ""), str) for name in FIGURE_WORDS):
        return "has a reason that is no text"
    return ""


def figures_of(reply: Reply, names: Sequence[str]) -> dict[str, Any] | None:
    """The figures in a reply of the right form: what a result holds of these metrics, and nothing else."""
    block = reply.header.get("figures")
    if not block:
        return None
    site = str(reply.header["site"])
    metrics = {
        name: {
            **{key: float(one[key]) for key in FIGURE_NUMBERS if one.get(key) is not None},
            **{key: plain_line(one[key], 300) for key in FIGURE_WORDS if one.get(key)},
        }
        for name, one in block["sites"][site].items()
        if name in names
    }
    return {
        "sites": {site: {name: {"value": None, **one} for name, one in metrics.items()}},
        "rows": {site: int(block["rows"][site])},
    }


FORMS: Mapping[Topic, Callable[[Reply], str | None]] = {
    Topic.OFFER: nothing_problem,
    Topic.QUERY: query_form_problem,
    Topic.SETTLE: nothing_problem,
    Topic.PREPARE: rows_problem,
    Topic.BEGIN: nothing_problem,
    Topic.ROUND: accept_form,
    Topic.SECURE: letter_problem,
    Topic.HALVES: halves_problem,
    Topic.OPEN: opening_problem,
    Topic.JUDGE: losses_problem,
    Topic.FIGURES: figures_problem,
    Topic.FINISH: nothing_problem,
    Topic.AGREE: known_rows_problem,
    Topic.ANALYSIS: accept_form,
}
