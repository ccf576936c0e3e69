"""Asking every site a question, and words inside the arrays of an answer.

Messages carry arrays only, so that every transport and every privacy transform sees all that leaves a site; words
(names of categories) travel as the bytes of their JSON.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wardround.core.contracts import Message, Query, Report, Site

Ask = Callable[[Query, Message], Report]
"""How a question reaches all sites: `ask_all` on this machine, or an engine's `ask`."""


def ask_all(query: Query, message: Message, sites: Sequence[Site]) -> Report:
    """Each site answers for itself; only the answers are combined."""
    return query.combine([query.ask(message, site) for site in sites])


def pack(value: Any) -> np.ndarray[Any, Any]:
    """Plain values as bytes in an array.

    >>> unpack(pack({"yes": 3}))
    {'yes': 3}
    """
    return np.frombuffer(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), np.uint8)


def unpack(array: Any) -> Any:
    return json.loads(np.asarray(array, np.uint8).tobytes().decode())
